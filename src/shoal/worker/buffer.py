"""TaskBuffer: claimed tasks that are not started yet; those with a later slot wait without a runner."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable

from shoal.core.task import LeasedTask

_TIMER_SLACK = 0.002  # timers are rounded; the last stretch to a slot is slept by the task itself


class BufferedTask:
    __slots__ = ("start_at", "task")

    def __init__(self, task: LeasedTask, start_at: float) -> None:
        self.task = task
        self.start_at = start_at

    def __lt__(self, other: BufferedTask) -> bool:
        return self.start_at < other.start_at


class TaskBuffer:
    def __init__(self, clock: Callable[[], float], on_ready: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_ready = on_ready  # there are tasks that can be started
        self.ready: deque[BufferedTask] = deque()
        self.delayed: list[BufferedTask] = []  # a heap by start_at
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.ready) + len(self.delayed)

    def count_due_within(self, seconds: float) -> int:
        """How many can start within so many seconds."""
        if not self.delayed:
            return len(self.ready)
        limit = self._clock() + seconds
        return len(self.ready) + sum(buffered.start_at <= limit for buffered in self.delayed)

    def put(self, tasks: Iterable[BufferedTask]) -> None:
        now = self._clock() + _TIMER_SLACK
        for buffered in tasks:
            if buffered.start_at <= now:
                self.ready.append(buffered)
            else:
                heapq.heappush(self.delayed, buffered)
        if self.ready:
            self._on_ready()
        self._set_timer()

    def remove(self, leases: Collection[int] | None = None) -> list[BufferedTask]:
        """Remove what belongs to some leases, or everything."""
        removed: list[BufferedTask] = []
        kept: list[BufferedTask] = []
        for buffered in (*self.ready, *self.delayed):
            (removed if leases is None or buffered.task.lease in leases else kept).append(buffered)
        self.ready.clear()
        self.delayed.clear()
        self.put(kept)
        return removed

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.delayed:
            delay = max(0.001, self.delayed[0].start_at - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._move_due)

    def _move_due(self) -> None:
        limit = self._clock() + _TIMER_SLACK
        while self.delayed and self.delayed[0].start_at <= limit:
            self.ready.append(heapq.heappop(self.delayed))
        if self.ready:
            self._on_ready()
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
