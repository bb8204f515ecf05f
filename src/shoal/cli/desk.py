"""Desk: one page for a person to look at, asked for by the rules of every crawl."""

from __future__ import annotations

import mimetypes
from pathlib import Path

import msgspec

from shoal.config import Settings
from shoal.core.page import Response
from shoal.core.url import canonical, lane_of, resolve
from shoal.equip import http_fetcher
from shoal.errors import Act, FetchFailed, FetchRefused, GiveUp, InvalidUrl, Retry, Usage
from shoal.extract.budget import Budget
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.manner import manners_of
from shoal.politeness.robots import Robots
from shoal.sources.address import completed
from shoal.worker.manners import Manners

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_NOWHERE = "http://localhost/"  # the address of a saved page that does not say its own


class Desk:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fetcher = http_fetcher(settings)
        self._budget = Budget(settings.parse_timeout)
        self._manners: Manners | None = None
        self._robots = Robots(
            self._fetcher.fetch, user_agent=settings.user_agent, ignore=settings.ignore_robots
        )

    async def open(self, address: str) -> Page:
        """The page at an address, redirects followed; an error status is a page too."""
        url = canonical(completed(address))
        if self._manners is None:  # the first address is the one that a login is meant for
            self._manners = manners_of(self._settings, Scraper("shell", url))
        try:
            response = await self._fetched(url, self._manners)
            await self._budget.check(response)
            return Page(response)
        except (Retry, GiveUp) as error:
            hint = "again later" if isinstance(error, Retry) else "shoal run would give it up likewise"
            if error.cause == "blocked.private":
                hint = "--allow-private if that is where it should go"
            raise Act(f"{url} cannot be fetched: {error.cause}: {error}", hint=hint) from error

    async def close(self) -> None:
        await self._budget.close()
        await self._fetcher.close()

    async def _fetched(self, url: str, manners: Manners) -> Response:
        trail: list[str] = []
        while True:
            await self._ask_robots(url)
            response = await self._fetcher.fetch(manners.request(url, None, url))
            manners.heard(response, None)
            location = response.header("location") if response.status in _REDIRECTS else ""
            if not location:
                return msgspec.structs.replace(response, redirects=tuple(trail))
            trail.append(url)
            target = resolve(url, location)
            if target is None or target in trail or len(trail) > self._settings.max_redirects:
                raise FetchRefused("redirects", f"it leads to {location[:200]!r}, and not to a page")
            url = target

    async def _ask_robots(self, url: str) -> None:
        verdict = await self._robots.verdict(url)
        if verdict.wait:
            raise FetchFailed("robots_unreachable", verdict.reason or "robots.txt cannot be read")
        if not verdict.allowed:
            raise Usage(
                f"robots.txt of {lane_of(url)} does not allow {url}, so no crawl would fetch it",
                hint="--ignore-robots to look at it all the same",
            )


def saved_page(path: Path, url: str = "") -> Page:
    """A page from a file; where it does not say its own address, links lead from `url`."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise Usage(f"{path} cannot be read: {error.strerror}", hint="look at its name and mode") from error
    kind = mimetypes.guess_type(path.name)[0] or "text/html"
    response = Response(_NOWHERE, 200, (("content-type", kind),), body)
    if not url and "html" in kind:
        url = Page(response).css("link[rel=canonical]::attr(href)").get("")
    try:
        return Page(msgspec.structs.replace(response, url=canonical(url or _NOWHERE)))
    except InvalidUrl:
        return Page(response)
