"""Alone: a worker inside somebody's own process, without children and without signal handlers."""

from __future__ import annotations

import asyncio
import contextlib

from shoal.queue.base import REAP_EVERY, Queue
from shoal.worker.loop import Worker
from shoal.worker.plan import Plan
from shoal.worker.settler import PASSING
from shoal.worker.tools import Tools


class Alone:
    def __init__(self, tools: Tools, plan: Plan) -> None:
        self._tools = tools
        self._worker = Worker(tools, plan)
        self._working: asyncio.Task[object] | None = None
        self._reaping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._working = asyncio.create_task(self._worker.run(), name="shoal-worker")
        self._reaping = asyncio.create_task(_reap(self._tools.queue), name="shoal-reaper")

    async def check(self) -> int:
        if self._working is not None and self._working.done():
            await self._working  # raises what it failed with
            return 0
        return 1

    async def stop(self) -> None:
        self._worker.stop()
        if self._working is not None:
            await self._working
        if self._reaping is not None:
            self._reaping.cancel()
        await self._tools.close()
        self._tools.note.close()


async def _reap(queue: Queue) -> None:
    while True:
        await asyncio.sleep(REAP_EVERY)
        with contextlib.suppress(*PASSING):
            await queue.reap()
