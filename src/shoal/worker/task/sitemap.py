"""Reads a fetched sitemap: its entries become tasks a batch at a time, while it is still being parsed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from shoal.core.lane import Pace
from shoal.core.page import Response
from shoal.core.run_counters import SITEMAP_PREFIX
from shoal.core.sitemap import LASTMOD, MAX_NESTING, NEST, SITEMAP, SitemapEntry, is_robots, parse_date, priority_by_age
from shoal.core.task import Outcome, Task
from shoal.extract.links import AdmittedLinks
from shoal.extract.page import Follow
from shoal.sources.sitemap import SitemapReader
from shoal.worker.context import RunContext
from shoal.worker.postponed import TaskPostponed
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.failure import ExcludedByRule
from shoal.worker.task.queue_look_up import ask_queue

CHUNK = 65_536  # bytes parsed before others get their turn
AT_ONCE = 4  # of a host that are fetched and read
BATCH = 1_000  # entries that become tasks in one step
USUAL_PLACE = "/sitemap.xml"  # where one is if robots.txt names none
_GUESSED = "guessed"  # in the meta of such a task: nobody said that it is there
_MISSING = frozenset({401, 403, 404, 405, 410})


def is_missing(attempt: TaskAttempt, response: Response) -> bool:
    """Whether robots.txt is not there, which is no failure; a sitemap at the usual place need not be there either."""
    task = attempt.task
    if task.kind != SITEMAP or response.status not in _MISSING:
        return False
    if (task.meta or {}).get(_GUESSED):
        raise ExcludedByRule("no_sitemap", f"the site has no sitemap at {USUAL_PLACE}, and robots.txt names none")
    return is_robots(task.url)


def reading_place(attempt: TaskAttempt) -> asyncio.Semaphore:
    """To be held while a sitemap is fetched and read: an index may list thousands, and each is in memory as a whole."""
    return attempt.context.sitemap_places.setdefault(attempt.lane, asyncio.Semaphore(AT_ONCE))


async def read_sitemap(
    attempt: TaskAttempt, run_context: RunContext, response: Response
) -> tuple[AdmittedLinks, dict[str, int]]:
    """The last of its links, for the outcome, and what is counted; all others are in the queue by then."""
    robots, is_there = is_robots(attempt.task.url), response.status < 300
    reader, found = SitemapReader(is_robots=robots), _Found(attempt, run_context)
    body = memoryview(response.body if is_there else b"")
    for start in range(0, len(body), CHUNK):
        with attempt.step:
            entries = reader.feed(bytes(body[start : start + CHUNK]))
            batch = list(islice(entries, BATCH))
        while batch:
            await found.add(batch)
            with attempt.step:
                batch = list(islice(entries, BATCH))
        await asyncio.sleep(0)
    with attempt.step:
        rest = list(reader.close())
    if robots and not reader.counts.entries:
        rest = [SitemapEntry(USUAL_PLACE, is_sitemap=True)]
    await found.add(rest, is_guess=robots and not reader.counts.entries)
    counts = reader.counts
    counters = {
        f"{SITEMAP_PREFIX}read": 1,
        f"{SITEMAP_PREFIX}entries": counts.entries,
        f"{SITEMAP_PREFIX}lost": counts.lost,
        f"{SITEMAP_PREFIX}cut": int(counts.is_cut),
    }
    return found.last, {name: number for name, number in counters.items() if number}


class _Found:
    """Entries on their way into the queue; the batch that came last waits for the outcome."""

    def __init__(self, attempt: TaskAttempt, run_context: RunContext) -> None:
        self.last = AdmittedLinks()
        self._attempt = attempt
        self._run_context = run_context
        self._nest = int((attempt.task.meta or {}).get(NEST) or 0)
        self._now = attempt.context.wall_clock() / 1e6

    async def add(self, entries: list[SitemapEntry], *, is_guess: bool = False) -> None:
        if not entries:
            return
        attempt, run_context = self._attempt, self._run_context
        await self._settle(self.last)
        with attempt.step:
            kept, skipped = self._selected(entries)
            follows = list(self._follows(kept, is_guess=is_guess))
            admitted = run_context.links.admit(
                follows, depth=-1, parent=attempt.task.id, origin_url=attempt.final_url, listed=True
            )
        nested = [task for task in admitted.tasks if task.kind == SITEMAP]
        if nested:  # by a verb that takes them again whatever a seen-set has
            await attempt.context.queue.add(attempt.task.run, nested, self._paces(nested))
        pages = tuple(task for task in admitted.tasks if task.kind != SITEMAP)
        links = AdmittedLinks(pages, (*admitted.skipped, *skipped))
        self.last = await ask_queue(attempt, run_context, links)

    async def _settle(self, links: AdmittedLinks) -> None:
        """Part of the outcome goes ahead: what is found again after a crash is known."""
        if not links.tasks and not links.skipped:
            return
        task, queue = self._attempt.task, self._attempt.context.queue
        part = Outcome(task=task.id, lease=task.lease, result="part", found=links.tasks, skipped=links.skipped)
        (verdict,) = await queue.settle([part], self._paces(links.tasks))
        if verdict != "ok":
            raise TaskPostponed("another worker has it")

    def _paces(self, tasks: Iterable[Task]) -> dict[str, Pace]:
        return {lane: self._run_context.pace(lane) for lane in {task.lane for task in tasks}}

    def _selected(self, entries: list[SitemapEntry]) -> tuple[list[SitemapEntry], list[tuple[str, str]]]:
        """Without what has not changed lately, if only that is wanted, and indexes nested too deep."""
        since = self._run_context.sitemap_since(self._now)
        kept, skipped = [], []
        for entry in entries:
            changed = parse_date(entry.lastmod) if since and entry.lastmod else None
            if changed is not None and changed < since:
                skipped.append(("lastmod", entry.url))
            elif entry.is_sitemap and self._nest >= MAX_NESTING:
                skipped.append(("depth", entry.url))
            else:
                kept.append(entry)
        return kept, skipped

    def _follows(self, entries: list[SitemapEntry], *, is_guess: bool) -> Iterator[Follow]:
        base = self._attempt.final_url
        for (is_sitemap, lastmod), group in groupby(entries, key=lambda entry: (entry.is_sitemap, entry.lastmod)):
            urls = tuple(entry.url for entry in group)
            if is_sitemap:
                meta: dict[str, object] = {NEST: self._nest + 1, **({_GUESSED: True} if is_guess else {})}
                yield Follow(urls, base, meta, kind=SITEMAP)
            else:
                priority = priority_by_age(parse_date(lastmod), self._now) if lastmod else 0
                yield Follow(urls, base, {LASTMOD: lastmod} if lastmod else None, priority)
