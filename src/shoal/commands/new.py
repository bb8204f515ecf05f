"""`shoal new --start URL`: looks at a few pages of a site, as politely as any crawl, to write a scraper for it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shoal.errors import ActionRequired, ShoalError, UsageError
from shoal.extract.outline import SiteOutline, SiteSample, item_group, outline_site
from shoal.extract.page import Page

MAX_PAGES = 12  # looked at to know the kinds of pages
MAX_ITEMS = 4  # of the kind that is worth a record, to know its fields
PER_GROUP = 3  # of each other kind
BUSY = frozenset((403, 429, 503))  # a site that answers so has been asked enough


@dataclass(frozen=True, slots=True)
class SiteLook:
    """Fetches the sample; `pause` waits between two requests, `say` tells people what is looked at."""

    fetch: Callable[[str], Awaitable[Page]]
    pause: Callable[[str], Awaitable[None]]
    say: Callable[[str], None]

    async def outline(self, name: str, start: str) -> SiteOutline:
        sample = SiteSample(await self._start_page(start))
        tried = {start, sample.start.url}
        while len(sample.pages) < MAX_PAGES and (url := _next_of_any(sample, tried)):
            if not await self._add(sample, url, tried):
                break
        while (url := _next_item(sample, tried)) and await self._add(sample, url, tried):
            pass
        # Not on the event loop's time: pages of a stranger may be large.
        return await asyncio.to_thread(outline_site, name, sample)

    async def _start_page(self, start: str) -> Page:
        self.say(start)
        page = await self.fetch(start)
        if page.status >= 400:
            raise ActionRequired(
                f"{page.url} answered with status {page.status}, so there is nothing to look at",
                hint="check the URL in a browser; shoal shell URL shows what it answers",
            )
        if not page.is_html:
            raise UsageError(
                f"{page.url} is {page.content_type or 'a file'}, not a web page",
                hint="--start with the URL of a web page that links to others",
            )
        return page

    async def _add(self, sample: SiteSample, url: str, tried: set[str]) -> bool:
        """Look at one more page; whether to go on looking."""
        tried.add(url)
        await self.pause(url)
        self.say(url)
        try:
            page = await self.fetch(url)
        except ShoalError:  # refused by robots.txt, or broken: one of many
            return True
        tried.add(page.url)
        if page.status in BUSY:
            return False
        if page.status < 400 and page.is_html and sample.has(page.url):
            sample.add(page)
        return True


def _next_of_any(sample: SiteSample, tried: set[str]) -> str:
    """A page of the group of which the fewest were tried, of those the largest."""
    groups = [(sum(url in tried for url in group.urls), group) for group in sample.groups()]
    for _, group in sorted((pair for pair in groups if pair[0] < PER_GROUP), key=lambda pair: pair[0]):
        for url in group.urls:
            if url not in tried:
                return url
    return ""


def _next_item(sample: SiteSample, tried: set[str]) -> str:
    group = item_group(sample, sample.groups())
    if group is None or len(sample.pages_of(group)) >= MAX_ITEMS:
        return ""
    return next((url for url in group.urls if url not in tried), "")
