"""Robots: what each site's robots.txt lets us do (RFC 9309).

An answer with rules is obeyed; 4xx means there are none; 5xx, 429 or no answer means "not now": nothing
of that site is fetched until the file can be read, or the rules known before go on holding.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import urljoin
from weakref import WeakValueDictionary

import msgspec

from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, FetchRefused
from shoal.politeness.response_hints import retry_after
from shoal.politeness.robots_cache import CachedRobots, RobotsCache
from shoal.politeness.robots_group import MAX_FILE_SIZE, RobotsGroup, parse_group, product_token
from shoal.politeness.robots_rules import RobotsRules

MAX_REDIRECTS = 5
FETCH_TIMEOUT = 20.0
DAY = 24 * 3600.0
MIN_TTL = 3600.0  # however little Cache-Control allows
FIRST_BACKOFF, MAX_BACKOFF = 60.0, 3600.0
FIRST_BACKOFF_UNREACHABLE, MAX_BACKOFF_UNREACHABLE = 2.0, 30.0
_MAX_MEMORY = 32 * 1024 * 1024  # bytes of all rules in memory
_CLOCK_SLACK = 60.0  # an answer from further in the future was dated by a clock that has been put right

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_LOCAL_CAUSES = frozenset({"stalled", "closed", "exit"})  # say nothing about the site
_SITE_WIDE_CAUSES = ("blocked.", "tls", "bad_url")  # refusals that every URL of the site would meet
_MAX_AGE = re.compile(r"(?:^|[\s,])max-age\s*=\s*\"?(\d{1,10})", re.IGNORECASE)
_NO_CACHE = re.compile(r"(?:^|[\s,])no-(?:cache|store)\b", re.IGNORECASE)


class RobotsVerdict(msgspec.Struct, frozen=True, gc=False):
    allowed: bool
    wait: float = 0.0  # not 0: robots.txt cannot be read now, ask again after so many seconds
    crawl_delay: float | None = None
    fresh: bool = False  # the site was asked for this very call
    crawl_delay_changed: bool = False  # and its crawl_delay is not the one known before
    reason: str = ""  # with wait: why it cannot be read
    cause: str = ""  # with wait: what any request to the site would have met, if the network was to blame


_ALLOWED = RobotsVerdict(True)


class _RedirectUnreachable(Exception):
    """robots.txt redirects to a place that cannot be reached now."""


@dataclass(slots=True)
class _Site:
    until: float = 0.0  # when to ask again
    known: bool = False
    rules: RobotsRules | None = None  # None: everything is allowed
    crawl_delay: float | None = None
    failures: int = 0  # in a row
    reason: str = ""
    cause: str = ""
    refused: FetchRefused | None = None

    @property
    def memory_size(self) -> int:
        return 0 if self.rules is None else self.rules.memory_size


class Robots:
    """robots.txt of many sites, each read once per `ttl`, and by one caller at a time.

    With a cache that holds for all processes that share it.
    """

    def __init__(
        self,
        fetch: Callable[[Request], Awaitable[Response]],
        *,
        user_agent: str,
        ttl: float = DAY,
        max_hosts: int = 10_000,
        ignore: bool = False,
        clock: Callable[[], float] = time.monotonic,
        before_redirect: Callable[[str], Awaitable[None]] | None = None,
        cache: RobotsCache | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        # Awaited before robots.txt is followed to another URL: that takes a slot too.
        self._before_redirect = before_redirect
        self._token = product_token(user_agent)
        self._ttl = ttl
        self._max_hosts = max_hosts
        self._ignore = ignore
        self._clock = clock
        self._wall = wall
        self._cache = cache
        self._sites: dict[str, _Site] = {}  # least recently used first
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._memory_size = 0

    async def verdict(self, url: str, exit: str = "") -> RobotsVerdict:
        """May this URL be fetched now, by an exit? Raises FetchRefused where the whole site would be refused."""
        if self._ignore:
            return _ALLOWED
        origin = _origin(url)
        site, fresh, news = self._sites.get(origin), False, False
        if site is None or site.until <= self._clock():
            site, fresh, news = await self._load_once(origin, exit)
        else:
            self._sites[origin] = self._sites.pop(origin)
        if site.refused is not None:
            raise FetchRefused(site.refused.cause, str(site.refused))
        if not site.known:
            wait = max(site.until - self._clock(), 1.0)
            return RobotsVerdict(False, wait, fresh=fresh, reason=site.reason, cause=site.cause)
        allowed = site.rules is None or site.rules.allows(url[len(origin) :] or "/")
        return RobotsVerdict(allowed, crawl_delay=site.crawl_delay, fresh=fresh, crawl_delay_changed=news)

    def peek(self, lane: str, url: str) -> bool | None:
        """The verdict if it is known without asking the site. `lane` is the authority of `url`."""
        if self._ignore:
            return True
        origin = ("https://" if url.startswith("https:") else "http://") + lane
        site = self._sites.get(origin)
        if site is None or not site.known or site.until <= self._clock():
            return None
        return site.rules is None or site.rules.allows(url[len(origin) :] or "/")

    async def _load_once(self, origin: str, exit: str) -> tuple[_Site, bool, bool]:
        lock = self._locks.get(origin)
        if lock is None:
            lock = self._locks[origin] = asyncio.Lock()
        async with lock:
            site = self._sites.get(origin)
            if site is not None and site.until > self._clock():
                return site, False, False  # somebody else has read it while we waited
            if self._cache is None:
                return await self._fetch_and_cache(origin, exit, site, None)
            if (found := self._from_cache(origin)) and found.until > self._clock():
                return self._remember(origin, found), False, False
            async with self._cache.fetch_lock(origin, self._token):
                found = self._from_cache(origin)
                if found and found.until > self._clock():  # another process has read it while we waited
                    return self._remember(origin, found), False, False
                return await self._fetch_and_cache(origin, exit, site or found, self._cache)

    async def _fetch_and_cache(
        self, origin: str, exit: str, old: _Site | None, cache: RobotsCache | None
    ) -> tuple[_Site, bool, bool]:
        before = old.crawl_delay if old else None
        site, group = await self._load(origin, exit, old or _Site())
        if cache is not None and site.refused is None:
            self._write_cache(cache, origin, site, group)
            await cache.prune_if_due()
        self._remember(origin, site)
        return site, True, site.known and before != site.crawl_delay

    async def _load(self, origin: str, exit: str, old: _Site) -> tuple[_Site, RobotsGroup | None]:
        try:
            response = await self._fetch_file(origin, exit)
        except FetchRefused as error:
            if error.cause.startswith(_SITE_WIDE_CAUSES):
                return _Site(self._clock() + FIRST_BACKOFF, refused=error), None
            return self._unreadable(old, f"{error.cause}: {error}"), None
        except FetchFailed as error:
            if error.cause in _LOCAL_CAUSES:
                raise
            return self._unreadable(old, f"{error.cause}: {error}", cause=error.cause), None
        except _RedirectUnreachable as error:
            return self._unreadable(old, str(error)), None
        if response is not None and (response.status == 429 or response.status >= 500):
            asked = retry_after(response.header("retry-after"), self._wall())
            return self._unreadable(old, f"http.{response.status}", asked or 0.0), None
        good = response is not None and 200 <= response.status < 300
        group = parse_group(response.body, self._token) if response is not None and good else RobotsGroup()
        return _site_from_group(group, self._clock() + self._lifetime(response)), group

    async def _fetch_file(self, origin: str, exit: str) -> Response | None:
        """The answer to robots.txt, redirects followed; None if they lead nowhere."""
        url = f"{origin}/robots.txt"
        for hop in range(MAX_REDIRECTS + 1):
            try:
                response = await self._fetch(Request(url, timeout=FETCH_TIMEOUT, first=MAX_FILE_SIZE + 1, exit=exit))
            except FetchRefused:
                if hop == 0:
                    raise
                return None
            except FetchFailed as error:
                if hop == 0 or error.cause in _LOCAL_CAUSES:
                    raise
                raise _RedirectUnreachable(f"it redirects to {url}, {error.cause}: {error}") from error
            location = response.header("location")
            if response.status not in _REDIRECTS or not location:
                return response
            try:
                url = urljoin(url, location)
            except ValueError:
                return None
            if self._before_redirect is not None:
                await self._before_redirect(url)
        return None

    def _lifetime(self, response: Response | None) -> float:
        """How long an answer is good for: a day, or less where the site says so."""
        cache_control = response.header("cache-control") if response is not None else ""
        if not cache_control:
            return self._ttl
        age = _MAX_AGE.search(cache_control)
        lifetime = 0.0 if _NO_CACHE.search(cache_control) else float(age[1]) if age else self._ttl
        return min(max(lifetime, MIN_TTL), self._ttl)

    def _unreadable(self, old: _Site, reason: str, asked: float = 0.0, cause: str = "") -> _Site:
        # A site that cannot be reached at all is tried as often as its pages would be.
        first = FIRST_BACKOFF_UNREACHABLE if cause else FIRST_BACKOFF
        longest = MAX_BACKOFF_UNREACHABLE if cause else MAX_BACKOFF
        backoff = min(first * 2.0 ** min(old.failures, 10), longest)
        old.cause = cause
        old.failures += 1
        old.until = self._clock() + max(backoff, asked)
        old.reason = f"robots.txt cannot be read: {reason}"
        old.refused = None
        return old

    def _remember(self, origin: str, site: _Site) -> _Site:
        old = self._sites.pop(origin, None)
        self._memory_size += site.memory_size - (old.memory_size if old else 0)
        self._sites[origin] = site
        while len(self._sites) > 1 and (len(self._sites) > self._max_hosts or self._memory_size > _MAX_MEMORY):
            self._memory_size -= self._sites.pop(next(iter(self._sites))).memory_size
        return site

    def _from_cache(self, origin: str) -> _Site | None:
        """What another process, or we in an earlier life, have read; its time may be over."""
        found = self._cache.get(origin, self._token) if self._cache is not None else None
        if found is None:
            return None
        now = self._wall()
        left = found.until - now if found.read_at <= now + _CLOCK_SLACK else 0.0
        until = self._clock() + min(left, max(self._ttl, MAX_BACKOFF))
        site = _site_from_group(found.group, until) if found.group is not None else _Site(until)
        site.failures, site.reason, site.cause = found.failures, found.reason, found.cause
        return site

    def _write_cache(self, cache: RobotsCache, origin: str, site: _Site, group: RobotsGroup | None) -> None:
        now = self._wall()
        until = now + site.until - self._clock()
        if group is None and site.known:  # the rules known before go on holding, also for the others
            before = cache.get(origin, self._token)
            if before is None:
                return
            group = before.group
        cache.put(CachedRobots(origin, self._token, now, until, group, site.failures, site.reason, site.cause))


def _site_from_group(group: RobotsGroup, until: float) -> _Site:
    site = _Site(until, known=True, crawl_delay=group.crawl_delay)
    if any(not allowed for allowed, _ in group.rules):
        site.rules = RobotsRules(group.rules)
    return site


def _origin(url: str) -> str:
    end = url.find("/", 8)
    return url if end < 0 else url[:end]
