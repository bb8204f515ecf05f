"""Reaper: gives back expired leases for everybody, and what dead workers of this machine held."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from pathlib import Path

from shoal.queue.base import REAP_EVERY, Queue, ReapResult
from shoal.worker.pool.crash_note import find_dead_workers
from shoal.worker.pool.recovery import recover_dead_workers

# Seconds in which a dead worker's own supervisor gives back what it held: that one knows why it died.
SUPERVISOR_GRACE = 5.0


class Reaper:
    """To be called often: it decides when there is something to do."""

    def __init__(self, queue: Queue, folder: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._folder = folder
        self._clock = clock
        self._looked_at = clock()
        self._due_at = clock() + REAP_EVERY
        self._dead_since: dict[str, float] = {}
        self.interval: Callable[[], float] = lambda: REAP_EVERY  # rarer where many machines do it

    async def run_if_due(self, own: Collection[str]) -> ReapResult | None:
        """What was given back, None if it was not time. Workers of our own are left alone."""
        now = self._clock()
        if now - self._looked_at >= REAP_EVERY:
            self._looked_at = now
            await self._recover(now, own)
        if now >= self._due_at:
            self._due_at = now + self.interval() * random.uniform(0.75, 1.25)  # so that machines are not in step
            return await self._queue.reap()
        return None

    async def _recover(self, now: float, own: Collection[str]) -> None:
        """A worker may outlive its supervisor and end when the next one has long begun."""
        found = {worker: tasks for worker, tasks in find_dead_workers(self._folder).items() if worker not in own}
        self._dead_since = {worker: self._dead_since.get(worker, now) for worker in found}
        over = {worker for worker, since in self._dead_since.items() if now - since >= SUPERVISOR_GRACE}
        if over:
            await recover_dead_workers(self._queue, self._folder, {worker: found[worker] for worker in over})
