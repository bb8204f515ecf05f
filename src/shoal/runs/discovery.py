"""Discovery: when a run last met a page that it had not known before."""

from __future__ import annotations

from shoal.core.run import TASK_BITS, Run
from shoal.core.stats import Stats
from shoal.core.typed_task import TYPE_PREFIX
from shoal.queue.base import Queue


class Discovery:
    """Remembers it by run: the queue is asked again only where there is a new page."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._known: dict[int, tuple[int, int]] = {}  # run to pages seen, and when the last was found

    async def last_at(self, run: Run, stats: Stats) -> int:
        """By the store's clock; 0 where nothing was found beyond what the run was given to begin with."""
        seen, at = self._known.get(run.id, (0, 0))
        if seen != stats.seen and stats.done:
            at = await last_found_at(self._queue, run, stats)
            self._known[run.id] = stats.seen, at
        return at

    def keep(self, runs: set[int]) -> None:
        """Forget all others."""
        self._known = {run: known for run, known in self._known.items() if run in runs}


async def last_found_at(queue: Queue, run: Run, stats: Stats) -> int:
    """When the newest task was added, if a page led to it; to a type of tasks anybody may add at any time."""
    if not stats.done:
        return 0  # no page can have led anywhere
    if queue.promises.apart:
        return await queue.now()  # which task is the newest cannot be told by its number: as far as is known, just now
    newest = await queue.list_tasks(run.id, after=(run.id << TASK_BITS) + stats.seen - 1, limit=1)
    if not newest or (newest[0].parent is None and not run.scraper.startswith(TYPE_PREFIX)):
        return 0
    return newest[0].added_at
