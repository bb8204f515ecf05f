"""Slots for requests: how many are at work at once, all together and of one caller."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Protocol


class Pool(Protocol):
    async def take(self, caller: str = "") -> bool:
        """False if there is no slot to be had."""
        ...

    def release(self, caller: str = "") -> None: ...


class Slots:
    """So many at work, so many waiting in line."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._free = at_once
        self._max_waiting = waiting
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def take(self, caller: str = "") -> bool:
        """False if the line is too long already."""
        if self._free > 0:
            self._free -= 1
            return True
        if len(self._waiters) >= self._max_waiting:
            return False
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(caller)  # it was our turn at the very moment
            raise
        return True

    def release(self, caller: str = "") -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class CallerSlots:
    """So many at once, and fewer of one caller; nobody waits."""

    def __init__(self, at_once: int, per_caller: int) -> None:
        self._free = at_once
        self._per_caller = per_caller
        self._held: Counter[str] = Counter()

    async def take(self, caller: str = "") -> bool:
        if self._free <= 0 or self._held[caller] >= self._per_caller:
            return False
        self._free -= 1
        self._held[caller] += 1
        return True

    def release(self, caller: str = "") -> None:
        self._free += 1
        self._held[caller] -= 1
        if not self._held[caller]:
            del self._held[caller]


class HeldSlot:
    """The slot that one request has, which may be exchanged for one of another pool."""

    def __init__(self, pool: Pool, caller: str) -> None:
        self._pool = pool
        self._caller = caller

    async def move(self, pool: Pool, *, only_from: Pool) -> None:
        """Into another pool, if that has one for this caller; else it stays where it is."""
        if self._pool is only_from and await pool.take(self._caller):
            self.release()
            self._pool = pool

    def release(self) -> None:
        self._pool.release(self._caller)
