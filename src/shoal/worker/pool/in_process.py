"""InProcessWorker: a worker inside somebody's own process, without children and without signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable

import msgspec

from shoal.queue.base import REAP_EVERY
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.worker.context import WorkerContext
from shoal.worker.loop import Worker
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.child_protocol import PushedBatch
from shoal.worker.pool.crash_note import CrashNoteSnapshot
from shoal.worker.pool.push_targets import PushTargets


class InProcessWorker:
    def __init__(
        self, context: WorkerContext, plan: WorkerPlan, reap_interval: Callable[[], float] = lambda: REAP_EVERY
    ) -> None:
        self._context = context
        self._worker = Worker(context, plan)
        self._reap_interval = reap_interval
        self._worker_task: asyncio.Task[object] | None = None
        self._reaper_task: asyncio.Task[None] | None = None

    @property
    def worker(self) -> str:
        return self._context.worker

    def read_note(self) -> CrashNoteSnapshot | None:
        """As of now: whoever asks does so in the worker's own loop, so it cannot stand still meanwhile."""
        return msgspec.structs.replace(self._context.crash_note.snapshot(), load_at=time.monotonic_ns())

    def send(self, batch: PushedBatch) -> None:
        self._worker.take_over(batch)

    def push_targets(self) -> PushTargets:
        """The worker itself, for tasks that are pushed to it."""
        return PushTargets(lambda: (self,))

    async def start(self) -> None:
        self._worker_task = asyncio.create_task(self._worker.run(), name="shoal-worker")
        self._reaper_task = asyncio.create_task(self._reap(), name="shoal-reaper")

    async def check(self) -> int:
        if self._worker_task is not None and self._worker_task.done():
            await self._worker_task  # raises what it failed with
            return 0
        return 1

    async def stop(self) -> None:
        self._worker.stop()
        if self._worker_task is not None:
            await self._worker_task
        if self._reaper_task is not None:
            self._reaper_task.cancel()
        await self._context.close()
        self._context.crash_note.close()

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self._reap_interval() * random.uniform(0.75, 1.25))
            with contextlib.suppress(*TRANSIENT_ERRORS):
                await self._context.queue.reap()
