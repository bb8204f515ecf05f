"""The whole suite on shards: queues of one kind, as one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from fake_clock import FakeClock

from shoal.queue.base import Queue
from shoal.queue.shards import ShardedQueue

SHARDS = ("first", "second", "third")  # so that most lanes of the suite are not on the home shard


async def open_shards(
    folder: Path,
    clock: FakeClock,
    opener: Callable[[Path, FakeClock], Awaitable[Queue]],
    names: tuple[str, ...] = SHARDS,
) -> Queue:
    async def open_shard(url: str) -> Queue:
        own = folder / url.rpartition("/")[2]
        own.mkdir(exist_ok=True)
        return await opener(own, clock)

    return await ShardedQueue.open([f"test://shards/{name}" for name in names], open_shard)
