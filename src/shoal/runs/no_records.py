"""No records: why a crawl that fetched pages found nothing on them, as far as its queue can tell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from shoal.core.run import Run
from shoal.core.run_counters import empty_pages
from shoal.core.stats import Stats
from shoal.core.task import SEEN
from shoal.queue.base import Queue
from shoal.queue.glance import glance

NO_RECORDS = "no_records"  # the cause, as programs read it
MAX_EXAMPLES, MAX_SELECTORS = 3, 5
MAX_SAMPLES = 200  # of links not followed that are looked at for examples


class NoRecords(msgspec.Struct, frozen=True):
    pages: int  # fetched and handled
    links: int  # found on them
    unhandled: int  # of these, links to pages that no handler is for
    examples: tuple[str, ...] = ()  # some of those
    selectors: tuple[tuple[str, int], ...] = ()  # that found nothing, and on how many pages
    page: str = ""  # one of the pages, to try selectors on
    patterns: tuple[str, ...] = ()  # of the scraper's handlers, where they are known


def is_without_records(run: Run, stats: Stats) -> bool:
    """Whether pages were handled and gave nothing; where a seen-set left pages out, nothing may be new."""
    return bool(stats.done) and not stats.records and run.state == "finished" and not stats.skipped.get(SEEN)


def wants_records(run: Run) -> bool:
    """Whether somebody waits for its records: they are to be written, or a template says what they are."""
    return bool(run.spec.get("output") or run.spec.get("template"))


async def explain_no_records(queue: Queue, run: Run, stats: Stats, patterns: Sequence[str] = ()) -> NoRecords:
    """Gather what workers counted while there was no record."""
    found = empty_pages(await queue.run_counters(run.id))
    samples = await queue.skipped(run.id, limit=MAX_SAMPLES) if stats.skipped.get("no_handler") else []
    done = await glance(queue.list_tasks(run.id, state="done", limit=1))
    return NoRecords(
        stats.done,
        found.links,
        stats.skipped.get("no_handler", 0),
        tuple([url for reason, url in samples if reason == "no_handler"][:MAX_EXAMPLES]),
        found.selectors[:MAX_SELECTORS],
        done[0].url if done else "",
        tuple(dict.fromkeys(patterns)),
    )
