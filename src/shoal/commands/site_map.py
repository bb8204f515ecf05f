"""SiteMap: the URLs that a site's sitemaps list, one after the other, without fetching a page."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from shoal.core.page import Response
from shoal.core.sitemap import MAX_NESTING, SitemapEntry, is_robots, may_be_sitemap, parse_date, sitemap_of
from shoal.core.url import canonical, lane_of, resolve
from shoal.errors import ActionRequired, GiveUp, InvalidUrl
from shoal.extract.links import FingerprintTable
from shoal.extract.scope import CrawlScope
from shoal.sources.sitemap import SitemapReader

CHUNK = 65_536
MAX_FILES = 50_000  # sitemaps of one site
USUAL_PLACE = "/sitemap.xml"

FetchSitemap = Callable[[str], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class ListedUrl:
    url: str
    lastmod: str
    sitemap: str  # that lists it


@dataclass(slots=True)
class SiteMap:
    """Memory is bounded: a URL that half a million others were listed after may be told twice."""

    fetch: FetchSitemap
    pause: Callable[[str], Awaitable[None]]  # before each request but the first
    scope: str = "host"
    since: float = 0.0
    problems: list[str] = field(default_factory=list)  # sentences about sitemaps that could not be read
    read: int = 0
    _told: FingerprintTable = field(default_factory=FingerprintTable)

    async def urls(self, site: str) -> AsyncIterator[ListedUrl]:
        """site: its URL, or that of one of its sitemaps."""
        start = canonical(site)
        first = start if may_be_sitemap(start) else sitemap_of(start[: start.index("/", 8) + 1])
        allowed = CrawlScope((start,), reach=self.scope)
        waiting, known = [(first, 0)], {first}
        while waiting:
            url, nest = waiting.pop()
            nested: list[str] = []
            async for entry in self._entries(url, is_first=not self.read and not self.problems):
                target = resolve(url, entry.url)
                if target is None or not allowed.allows_lane(lane_of(target)) or self._is_old(entry):
                    continue
                if not entry.is_sitemap:
                    if not self._told.has("", target):
                        self._told.add("", target)
                        yield ListedUrl(target, entry.lastmod, url)
                elif target not in known and nest < MAX_NESTING and len(known) < MAX_FILES:
                    known.add(target)
                    nested.append(target)
            waiting += [(target, nest + 1) for target in reversed(nested)]

    async def _entries(self, url: str, *, is_first: bool) -> AsyncIterator[SitemapEntry]:
        if not is_first:
            await self.pause(url)
        try:
            response = await self.fetch(url)
            reader = SitemapReader(is_robots=is_robots(url))
            if response.status >= 300 and not is_robots(url):
                self.problems.append(f"{url}: the server answered {response.status}")
                return
            body = response.body if response.status < 300 else b""
            for start in range(0, len(body), CHUNK):
                for entry in reader.feed(body[start : start + CHUNK]):
                    yield entry
                await asyncio.sleep(0)
            for entry in reader.close():
                yield entry
        except (ActionRequired, GiveUp, InvalidUrl) as error:
            self.problems.append(str(error) if url in str(error) else f"{url}: {error}")
            return
        self.read += not is_robots(url)
        if is_robots(url) and not reader.counts.entries:
            yield SitemapEntry(USUAL_PLACE, is_sitemap=True)
        if reader.counts.lost:
            self.problems.append(f"{url}: {reader.counts.lost:,} of its entries could not be read")

    def _is_old(self, entry: SitemapEntry) -> bool:
        changed = parse_date(entry.lastmod) if self.since and entry.lastmod else None
        return changed is not None and changed < self.since
