"""Sampling: history while something goes on that has no upkeep of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from shoal.control.history import History
from shoal.control.registry import STALE_AFTER
from shoal.control.upkeep import HISTORY_EVERY, Duty
from shoal.queue.base import Queue


@contextlib.asynccontextmanager
async def sampled(queue: Queue, *, stale_after: float = STALE_AFTER) -> AsyncIterator[None]:
    """Keep history meanwhile; what happened up to the end is in it, unless it ended with an error."""
    history = History(queue, stale_after=stale_after)
    task = asyncio.create_task(_again(Duty("history", HISTORY_EVERY, history.note)), name="history")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
    await Duty("history", HISTORY_EVERY, lambda: history.note(final=True)).once()


async def _again(duty: Duty) -> None:
    while True:
        await duty.once()
        await asyncio.sleep(duty.every)
