"""Tidying: documents that nobody needs any more are removed, a little at a time.

Documents of which there may be very many stand on shelves: their kind ends in two letters that their name
decides, so that nobody ever lists all of them. One turn looks at one shelf of each.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from shoal.queue.base import Paper, Queue

SHELVES = 256
EVERY = 60.0  # seconds between two turns

# Whether a document may go, given the store's clock.
Over = Callable[[Paper, int], Awaitable[bool]]


class Shelves:
    """All documents whose kind begins with this, shelf by shelf; several may do it at once."""

    def __init__(self, queue: Queue, kind: str, over: Over) -> None:
        self._queue = queue
        self._kind = kind
        self._over = over
        self._next = secrets.randbelow(SHELVES)

    async def turn(self) -> int:
        """How many were removed of the next shelf."""
        kind, self._next = f"{self._kind}{self._next:02x}", (self._next + 1) % SHELVES
        removed, now = 0, await self._queue.now()
        for paper in await self._queue.papers(kind):
            if await self._over(paper, now):
                removed += await self._queue.swap(kind, paper.name, None, paper.version) is not None
                await asyncio.sleep(0)  # others get their turn
        return removed


class Tidying:
    def __init__(self, *shelves: Shelves) -> None:
        self._shelves = shelves

    async def turn(self) -> int:
        return sum([await shelves.turn() for shelves in self._shelves])
