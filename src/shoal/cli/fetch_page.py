"""Fetches one page for a person to look at, by the same rules as every crawl."""

from __future__ import annotations

import mimetypes
from pathlib import Path

import msgspec

from shoal.config.load import Settings
from shoal.core.lane import DIRECT
from shoal.core.page import Response
from shoal.core.sitemap import is_robots
from shoal.core.url import canonical, lane_of, resolve
from shoal.errors import ActionRequired, FetchFailed, FetchRefused, GiveUp, InvalidUrl, Retry, UsageError
from shoal.extract.page import Page
from shoal.extract.parse_budget import ParseBudget
from shoal.extract.scraper import Scraper
from shoal.launch.fetchers import http_fetcher
from shoal.launch.request_options import check_exits, request_builder_for
from shoal.politeness.robots import Robots
from shoal.sources.url_text import with_scheme
from shoal.worker.task.request_builder import RequestBuilder

_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_UNKNOWN_URL = "http://localhost/"  # the URL of a saved page that does not say its own


class PageFetcher:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._fetcher = http_fetcher(settings)
        self._exit = "" if settings.exit == DIRECT else settings.exit
        self._budget = ParseBudget(settings.parse_timeout)
        self._manners: RequestBuilder | None = None
        self._robots = Robots(self._fetcher.fetch, user_agent=settings.user_agent, ignore=settings.ignore_robots)

    async def fetch(self, given: str) -> Page:
        """The page at a URL, redirects followed; an error status is a page too."""
        return Page(await self.response(given, is_parsed=True))

    async def response(self, given: str, *, is_parsed: bool = False) -> Response:
        """The same before it is a page; is_parsed: refused where parsing it would take too long."""
        url = canonical(with_scheme(given))
        if self._manners is None:  # the first URL is the one that a login is meant for
            scraper = Scraper("shell", url)
            check_exits(self._settings, scraper)
            self._manners = request_builder_for(self._settings, scraper)
        try:
            response = await self._follow_redirects(url, self._manners)
            if is_parsed:
                await self._budget.check(response)
            return response
        except (Retry, GiveUp) as error:
            hint = "check the URL, or retry later" if isinstance(error, Retry) else "shoal run would fail on it, too"
            if error.cause == "blocked.private":
                hint = "--allow-private, if this is intended"
            raise ActionRequired(f"{url} cannot be fetched: {error.cause}: {error}", hint=hint) from error

    async def crawl_delay(self, url: str) -> float:
        """What robots.txt asks to be left between two requests, in seconds."""
        return (await self._robots.verdict(url, self._exit)).crawl_delay or 0.0

    async def close(self) -> None:
        await self._budget.close()
        await self._fetcher.close()

    async def _follow_redirects(self, url: str, request_builder: RequestBuilder) -> Response:
        trail: list[str] = []
        while True:
            if not is_robots(url):  # which may always be read
                await self._check_robots(url)
            response = await self._fetcher.fetch(request_builder.build(url, None, url, exit=self._exit))
            request_builder.store_cookies(response, None)
            location = response.header("location") if response.status in _REDIRECTS else ""
            if not location:
                return msgspec.structs.replace(response, redirects=tuple(trail))
            trail.append(url)
            target = resolve(url, location)
            if target is None or target in trail or len(trail) > self._settings.max_redirects:
                raise FetchRefused("redirects", f"it redirects to {location[:200]!r}, which is not a page")
            url = target

    async def _check_robots(self, url: str) -> None:
        verdict = await self._robots.verdict(url, self._exit)
        if verdict.wait:
            raise FetchFailed("robots_unreachable", verdict.reason or "robots.txt cannot be read")
        if not verdict.allowed:
            raise UsageError(
                f"robots.txt of {lane_of(url)} does not allow {url}, so no crawl would fetch it",
                hint="--ignore-robots to fetch it anyway",
            )


def load_saved_page(path: Path, url: str = "") -> Page:
    """A page from a file; where it does not say its own URL, links lead from `url`."""
    try:
        body = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint="check its name and permissions") from error
    kind = mimetypes.guess_type(path.name)[0] or "text/html"
    response = Response(_UNKNOWN_URL, 200, (("content-type", kind),), body)
    if not url and "html" in kind:
        url = Page(response).css("link[rel=canonical]::attr(href)").get("")
    try:
        return Page(msgspec.structs.replace(response, url=canonical(url or _UNKNOWN_URL)))
    except InvalidUrl:
        return Page(response)
