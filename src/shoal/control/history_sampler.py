"""Records history while something runs that has no maintenance of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from shoal.control.history import History
from shoal.control.maintenance import HISTORY_INTERVAL, PeriodicJob
from shoal.control.worker_states import STALE_AFTER
from shoal.queue.base import Queue


@contextlib.asynccontextmanager
async def record_history(queue: Queue, *, stale_after: float = STALE_AFTER) -> AsyncIterator[None]:
    """Keep history meanwhile; what happened up to the end is in it, unless it ended with an error."""
    history = History(queue, stale_after=stale_after)
    task = asyncio.create_task(_repeat(PeriodicJob("history", HISTORY_INTERVAL, history.add_sample)), name="history")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    await PeriodicJob("history", HISTORY_INTERVAL, lambda: history.add_sample(final=True)).run_once()


async def _repeat(job: PeriodicJob) -> None:
    while True:
        await job.run_once()
        await asyncio.sleep(job.interval)
