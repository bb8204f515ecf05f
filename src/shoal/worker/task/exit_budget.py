"""ExitBudget: how many bytes a run may send and receive by its exits; beyond that the run is paused."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping

from shoal.core.run import Run
from shoal.core.run_counters import exit_bytes
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.worker.postponed import TaskPostponed

log = logging.getLogger("shoal.worker")
READ_INTERVAL = 2.0  # seconds; what other workers have used meanwhile is not known yet


class ExitBudget:
    """Asked before each request by an exit; what all workers have used is counted with their outcomes."""

    def __init__(self, queue: Queue, run: Run, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._run = run
        self._limit = limit
        self._clock = clock
        self._read_at = -READ_INTERVAL
        self._used = 0  # by the fleet, when it was read
        self._own = 0  # by this process since

    def add(self, size: int) -> None:
        self._own += size

    async def check(self) -> None:
        """Raises TaskPostponed once it is used up: the task goes back to the queue at no cost."""
        now = self._clock()
        if now - self._read_at >= READ_INTERVAL:
            self._read_at = now
            # What is ours there or will be, as soon as it is settled.
            self._used, self._own = max(self._used, exit_bytes(await self._counters())), 0
        if self._used + self._own < self._limit:
            return
        with contextlib.suppress(UsageError):  # somebody has ended it meanwhile
            await self._queue.set_run(self._run.id, "pause")
            log.warning("exit_budget_spent", extra={"run": self._run.name, "bytes": self._used + self._own})
        raise TaskPostponed(f"the run has used its budget of {self._limit:,} bytes by exits")

    async def _counters(self) -> Mapping[str, int]:
        return await self._queue.run_counters(self._run.id)
