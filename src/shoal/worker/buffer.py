"""Buffer: tasks at hand that are not started yet; those with a later slot wait without a place."""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable

from shoal.core.task import Leased

_EARLY = 0.002  # timers are rounded; the last stretch to a slot is slept by the task itself


class Held:
    __slots__ = ("start_at", "task")

    def __init__(self, task: Leased, start_at: float) -> None:
        self.task = task
        self.start_at = start_at

    def __lt__(self, other: Held) -> bool:
        return self.start_at < other.start_at


class Buffer:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.ready: deque[Held] = deque()
        self.later: list[Held] = []  # a heap by start_at
        self._idle: deque[asyncio.Future[None]] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.ready) + len(self.later)

    def soon(self, seconds: float) -> int:
        """How many can start within so many seconds."""
        if not self.later:
            return len(self.ready)
        limit = self._clock() + seconds
        return len(self.ready) + sum(held.start_at <= limit for held in self.later)

    def put(self, many: Iterable[Held]) -> None:
        now = self._clock() + _EARLY
        for held in many:
            if held.start_at <= now:
                self.ready.append(held)
            else:
                heapq.heappush(self.later, held)
        self._wake()
        self._set_timer()

    async def take(self) -> Held:
        while not self.ready:
            waiter = asyncio.get_running_loop().create_future()
            self._idle.append(waiter)
            await waiter
        return self.ready.popleft()

    def take_out(self, leases: Collection[int] | None = None) -> list[Held]:
        """Remove what belongs to some leases, or everything."""
        out: list[Held] = []
        kept: list[Held] = []
        for held in (*self.ready, *self.later):
            (out if leases is None or held.task.lease in leases else kept).append(held)
        self.ready.clear()
        self.later.clear()
        self.put(kept)
        return out

    def _wake(self) -> None:
        wanted = len(self.ready)
        while wanted > 0 and self._idle:
            waiter = self._idle.popleft()
            if not waiter.done():
                waiter.set_result(None)
                wanted -= 1

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.later:
            delay = max(0.001, self.later[0].start_at - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._due)

    def _due(self) -> None:
        limit = self._clock() + _EARLY
        while self.later and self.later[0].start_at <= limit:
            self.ready.append(heapq.heappop(self.later))
        self._wake()
        self._set_timer()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
