"""TaskBuffer: claimed tasks that are not started yet; those with a later slot wait without a runner.

Whose slot has come goes first: a slot that is missed is lost to its host, and what has none can wait.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable

from shoal.core.task import LeasedTask
from shoal.queue.base import SLOT_HORIZON_SECONDS

_TIMER_SLACK = 0.002  # timers are rounded; the last stretch to a slot is slept by the task itself


class BufferedTask:
    __slots__ = ("missed", "start_at", "task")

    def __init__(self, task: LeasedTask, start_at: float, missed: int = 0) -> None:
        self.task = task
        self.start_at = start_at
        self.missed = missed  # slots, so far

    def __lt__(self, other: BufferedTask) -> bool:
        return self.start_at < other.start_at


class TaskBuffer:
    def __init__(self, clock: Callable[[], float], on_ready: Callable[[], None] = lambda: None) -> None:
        self._clock = clock
        self._on_ready = on_ready  # there are tasks that can be started
        self._ready: deque[BufferedTask] = deque()
        self._due: deque[BufferedTask] = deque()  # likewise, and their slot is now
        self.delayed: list[BufferedTask] = []  # a heap by start_at
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return self.waiting + len(self.delayed)

    @property
    def waiting(self) -> int:
        """Tasks that could be started at once."""
        return len(self._ready) + len(self._due)

    def pop(self) -> BufferedTask:
        """The next to be started."""
        return self._due.popleft() if self._due else self._ready.popleft()

    def most_at_once(self, busy: int, seconds: float) -> int:
        """How many places will be taken up at the worst moment within the horizon, if a task takes so many seconds."""
        now, going = self._clock(), busy + self.waiting
        starts = sorted(at for buffered in self.delayed if (at := buffered.start_at - now) <= SLOT_HORIZON_SECONDS)
        worst, first = float(going), 0
        for number, at in enumerate(starts, 1):
            while starts[first] <= at - seconds:  # by then it has ended
                first += 1
            worst = max(worst, number - first + going * max(0.0, 1 - at / seconds))
        return int(worst)

    def put(self, tasks: Iterable[BufferedTask]) -> None:
        now = self._clock() + _TIMER_SLACK
        for buffered in tasks:
            if buffered.start_at > now:
                heapq.heappush(self.delayed, buffered)
            elif buffered.task.spacing:
                self._due.append(buffered)
            else:
                self._ready.append(buffered)
        if self.waiting:
            self._on_ready()
        self._set_timer()

    def remove(self, leases: Collection[int] | None = None) -> list[BufferedTask]:
        """Remove what belongs to some leases, or everything."""
        removed: list[BufferedTask] = []
        kept: list[BufferedTask] = []
        for buffered in (*self._due, *self._ready, *self.delayed):
            (removed if leases is None or buffered.task.lease in leases else kept).append(buffered)
        self._due.clear()
        self._ready.clear()
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
            self._due.append(heapq.heappop(self.delayed))
        if self.waiting:
            self._on_ready()
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
