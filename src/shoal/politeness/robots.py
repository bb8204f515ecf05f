"""Robots: what each site's robots.txt lets us do.

An answer with rules is obeyed; 4xx means there are none; 5xx, 429 or no answer means "not now": nothing
of that site is fetched until the file can be read, or the rules known before go on holding.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from urllib.parse import urljoin
from weakref import WeakValueDictionary

import msgspec
from protego import Protego

from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, FetchRefused
from shoal.politeness.answers import retry_after

MAX_FILE = 512 * 1024  # bytes of a robots.txt that count
MAX_REDIRECTS = 5
MAX_CRAWL_DELAY = 300.0
TIMEOUT = 20.0
FIRST_BACKOFF, LONGEST_BACKOFF = 60.0, 3600.0
FIRST_BACKOFF_UNREACHED = 2.0
_MAX_RULE_TEXT = 2 * 1024 * 1024  # of all files in memory; parsed it takes some twenty times as much
_MAX_ANSWERS = 50_000  # remembered verdicts on single addresses

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_OUR_OWN_FAULT = frozenset({"stalled", "closed"})  # say nothing about the site
_SAME_FOR_ALL = ("blocked.", "tls", "bad_url")  # refusals that every address of the site would meet
_MAY_FORBID = re.compile(r"^\s*di", re.IGNORECASE | re.MULTILINE)  # "disallow" as people spell it


class Verdict(msgspec.Struct, frozen=True, gc=False):
    allowed: bool
    wait: float = 0.0  # not 0: robots.txt cannot be read now, ask again after so many seconds
    crawl_delay: float | None = None
    fresh: bool = False  # the file was read for this very call: its crawl_delay is news
    reason: str = ""  # with wait: why it cannot be read
    cause: str = ""  # with wait: what any request to the site would have met, if the network was to blame


_ALLOWED = Verdict(True)


@dataclass(slots=True)
class _Site:
    until: float = 0.0  # when to ask again
    known: bool = False
    rules: Protego | None = None  # None: everything is allowed
    weight: int = 0
    crawl_delay: float | None = None
    failures: int = 0  # in a row
    reason: str = ""
    cause: str = ""
    refused: FetchRefused | None = None
    answers: dict[str, bool] = field(default_factory=dict)


class Robots:
    """robots.txt of many sites, each read once per `ttl`, and by one caller at a time."""

    def __init__(
        self,
        fetch: Callable[[Request], Awaitable[Response]],
        *,
        user_agent: str,
        ttl: float = 24 * 3600.0,
        max_hosts: int = 10_000,
        ignore: bool = False,
        clock: Callable[[], float] = time.monotonic,
        moving: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self._fetch = fetch
        self._moving = (
            moving  # awaited before robots.txt is followed to another address: that takes a slot too
        )
        self._agent = user_agent
        self._ttl = ttl
        self._max_hosts = max_hosts
        self._ignore = ignore
        self._clock = clock
        self._sites: dict[str, _Site] = {}  # least recently used first
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._rule_text = 0
        self._answered = 0

    async def verdict(self, url: str) -> Verdict:
        """May this address be fetched now? Raises FetchRefused where the whole site would be refused."""
        if self._ignore:
            return _ALLOWED
        origin = _origin(url)
        site, fresh = self._sites.get(origin), False
        if site is None or site.until <= self._clock():
            site, fresh = await self._load_once(origin)
        else:
            self._sites[origin] = self._sites.pop(origin)
        if site.refused is not None:
            raise FetchRefused(site.refused.cause, str(site.refused))
        if not site.known:
            return Verdict(False, max(site.until - self._clock(), 1.0), reason=site.reason, cause=site.cause)
        return Verdict(self._allows(site, url), crawl_delay=site.crawl_delay, fresh=fresh)

    def peek(self, lane: str, url: str) -> bool | None:
        """The verdict if it is known without asking the site. `lane` is the authority of `url`."""
        if self._ignore:
            return True
        site = self._sites.get(("https://" if url.startswith("https:") else "http://") + lane)
        if site is None or not site.known or site.until <= self._clock():
            return None
        return site.rules is None or self._allows(site, url)

    def _allows(self, site: _Site, url: str) -> bool:
        if site.rules is None:
            return True
        answer = site.answers.get(url)
        if answer is None:
            if self._answered >= _MAX_ANSWERS:
                self._forget_answers()
            answer = site.answers[url] = bool(site.rules.can_fetch(url, self._agent))
            self._answered += 1
        return answer

    async def _load_once(self, origin: str) -> tuple[_Site, bool]:
        lock = self._locks.get(origin)
        if lock is None:
            lock = self._locks[origin] = asyncio.Lock()
        async with lock:
            site = self._sites.get(origin)
            if site is not None and site.until > self._clock():
                return site, False  # somebody else has read it while we waited
            site = await self._load(origin, site or _Site())
            self._keep(origin, site)
            return site, True

    async def _load(self, origin: str, old: _Site) -> _Site:
        try:
            response = await self._read(origin)
        except FetchRefused as error:
            if error.cause.startswith(_SAME_FOR_ALL):
                return _Site(self._clock() + FIRST_BACKOFF, refused=error)
            return self._unreadable(old, f"{error.cause}: {error}")
        except FetchFailed as error:
            if error.cause in _OUR_OWN_FAULT:
                raise
            return self._unreadable(old, f"{error.cause}: {error}", cause=error.cause)
        if response is None:
            return self._parsed("")
        if response.status == 429 or response.status >= 500:
            asked = retry_after(response.header("retry-after"), time.time())
            return self._unreadable(old, f"http.{response.status}", asked or 0.0)
        good = 200 <= response.status < 300
        return self._parsed(response.body[:MAX_FILE].decode("utf-8-sig", "replace") if good else "")

    async def _read(self, origin: str) -> Response | None:
        """The answer to robots.txt, redirects followed; None if they lead nowhere."""
        url = f"{origin}/robots.txt"
        for hop in range(MAX_REDIRECTS + 1):
            try:
                response = await self._fetch(Request(url, timeout=TIMEOUT))
            except FetchRefused:
                if hop == 0:
                    raise
                return None
            location = response.header("location")
            if response.status not in _REDIRECTS or not location:
                return response
            try:
                url = urljoin(url, location)
            except ValueError:
                return None
            if self._moving is not None:
                await self._moving(url)
        return None

    def _parsed(self, text: str) -> _Site:
        site = _Site(self._clock() + self._ttl, known=True)
        rules = Protego.parse(text)
        site.crawl_delay = _crawl_delay(rules, self._agent)
        if _MAY_FORBID.search(text):
            site.rules, site.weight = rules, len(text)
        return site

    def _unreadable(self, old: _Site, reason: str, asked: float = 0.0, cause: str = "") -> _Site:
        # A site that cannot be reached at all is tried as often as its pages would be.
        first = FIRST_BACKOFF_UNREACHED if cause else FIRST_BACKOFF
        backoff = min(first * 2.0 ** min(old.failures, 10), LONGEST_BACKOFF)
        old.cause = cause
        old.failures += 1
        old.until = self._clock() + max(backoff, asked)
        old.reason = f"robots.txt cannot be read: {reason}"
        old.refused = None
        return old

    def _keep(self, origin: str, site: _Site) -> None:
        old = self._sites.pop(origin, None)
        self._rule_text += site.weight - (old.weight if old else 0)
        self._sites[origin] = site
        while len(self._sites) > 1 and (
            len(self._sites) > self._max_hosts or self._rule_text > _MAX_RULE_TEXT
        ):
            self._rule_text -= self._sites.pop(next(iter(self._sites))).weight

    def _forget_answers(self) -> None:
        for site in self._sites.values():
            site.answers.clear()
        self._answered = 0


def _crawl_delay(rules: Protego, agent: str) -> float | None:
    delay = rules.crawl_delay(agent)
    rate = rules.request_rate(agent)
    if rate is not None:
        delay = max(delay or 0.0, rate.seconds / rate.requests)
    return None if delay is None else min(float(delay), MAX_CRAWL_DELAY)


def _origin(url: str) -> str:
    end = url.find("/", 8)
    return url if end < 0 else url[:end]
