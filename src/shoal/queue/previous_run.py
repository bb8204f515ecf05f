"""Previous run: the one whose pages a run is compared with."""

from __future__ import annotations

from shoal.core.run import Run, RunState
from shoal.core.run_counters import is_recrawl_count
from shoal.queue.base import Queue

FINISHED: tuple[RunState, ...] = ("finished",)
MAX_CANDIDATES = 50  # runs among which it is looked for


async def previous_run(queue: Queue, run: Run) -> Run | None:
    """Of the same scraper, the last that had ended when this one began and that remembers its pages.

    Those that began with the same URLs come first. It is the same for all who ask, and for as long as it is kept.
    """
    found = await queue.runs(scraper=run.scraper, states=FINISHED, before=run.id, limit=MAX_CANDIDATES)
    ended = [it for it in found if 0 < it.finished_at <= run.created_at]
    ended.sort(key=lambda it: it.spec.get("start") != run.spec.get("start"))
    for candidate in ended:
        if any(map(is_recrawl_count, await queue.run_counters(candidate.id))):
            return candidate
    return None
