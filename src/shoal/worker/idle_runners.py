"""IdleRunners: runners that wait for a task, woken no more often than there is something to start.

One is woken first: it starts task after task until one of them waits. Then come as many as are needed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

MAX_STRETCH = 0.005  # seconds of tasks that wait for nothing, after which the event loop has a turn


class IdleRunners:
    def __init__(self, startable: Callable[[], int]) -> None:
        self._startable = startable  # how many tasks could be started now
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_waking = False  # one is about to look for a task
        self._stretch_began: float | None = None  # in this turn of the event loop

    def is_turn_over(self, now: float) -> bool:
        """Whether runners have worked for so long that everything else should have its turn."""
        if self._stretch_began is None:
            self._stretch_began = now
            asyncio.get_running_loop().call_soon(self._end_stretch)
        return now - self._stretch_began > MAX_STRETCH

    def _end_stretch(self) -> None:
        self._stretch_began = None

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        await waiter

    def wake(self) -> None:
        """There may be something to start."""
        if not self._is_waking and self._startable() > 0 and self._wake(1):
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._wake_others)

    def _wake_others(self) -> None:
        self._is_waking = False
        self._wake(self._startable())

    def _wake(self, count: int) -> bool:
        while count > 0 and self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count -= 1
        return count == 0
