"""Garbage collection: documents that nobody needs any more are removed, a few at a time.

Documents of which there may be very many are sharded: their kind ends in two hex digits of their name, so
that nobody ever lists all of them. One sweep looks at one shard of each kind.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable

from shoal.queue.base import Document, Queue

SHARDS = 256
INTERVAL = 60.0  # seconds between two sweeps

# Whether a document may go, given the store's clock.
IsExpired = Callable[[Document, int], Awaitable[bool]]


class ShardSweeper:
    """Removes expired documents of one kind, shard by shard; several may do so at once."""

    def __init__(self, queue: Queue, kind: str, is_expired: IsExpired) -> None:
        self._queue = queue
        self._kind = kind
        self._is_expired = is_expired
        self._next = secrets.randbelow(SHARDS)

    async def sweep(self) -> int:
        """Clean the next shard; returns how many documents were removed."""
        kind, self._next = f"{self._kind}{self._next:02x}", (self._next + 1) % SHARDS
        removed, now = 0, await self._queue.now()
        for document in await self._queue.documents(kind):
            if await self._is_expired(document, now):
                gone = await self._queue.compare_and_swap(kind, document.name, None, document.version)
                removed += gone is not None
                await asyncio.sleep(0)  # others get their turn
        return removed


class DocumentGc:
    def __init__(self, *sweepers: ShardSweeper) -> None:
        self._sweepers = sweepers

    async def sweep(self) -> int:
        return sum([await sweepers.sweep() for sweepers in self._sweepers])
