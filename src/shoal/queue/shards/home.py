"""What the whole fleet shares is on the home shard; what a crawl can do without, it does without while that is away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from shoal.core.lane import WorkerStatus
from shoal.errors import QueueUnavailable
from shoal.queue.base import CacheEntry, CacheStats, Document, NewCacheEntry
from shoal.queue.shards.shard import SHORT_TIMEOUT
from shoal.queue.shards.shard_set import ShardSet


async def save_document(shards: ShardSet, kind: str, name: str, text: str) -> Document:
    return await shards.home.ask(lambda it: it.save_document(kind, name, text))


async def document(shards: ShardSet, kind: str, name: str, version: int = 0) -> Document | None:
    return await shards.home.ask(lambda it: it.document(kind, name, version))


async def compare_and_swap(shards: ShardSet, kind: str, name: str, text: str | None, expected: int) -> Document | None:
    return await shards.home.ask(lambda it: it.compare_and_swap(kind, name, text, expected))


async def documents(shards: ShardSet, kind: str) -> list[Document]:
    return await shards.home.ask(lambda it: it.documents(kind))


async def now(shards: ShardSet) -> int:
    """The clock of the home shard, or of the first that answers."""
    for shard in shards.shards:
        try:
            return await shard.ask(lambda it: it.now(), SHORT_TIMEOUT)
        except QueueUnavailable:
            continue
    raise shards.home.away_error()


# The registry is on every shard, so that each knows which of its leases are whose.


async def register(shards: ShardSet, status: WorkerStatus) -> str:
    answers = await shards.gather(lambda it: it.register(status), timeout=SHORT_TIMEOUT)
    known = [answer for answer in answers if answer is not None]
    if not known:
        raise shards.home.away_error()
    return known[0]


async def command_worker(shards: ShardSet, worker: str, command: Literal["drain", "pause", ""]) -> bool:
    return any(await shards.gather(lambda it: it.command_worker(worker, command)))


async def workers(shards: ShardSet) -> list[WorkerStatus]:
    parts = [part for part in await shards.gather(lambda it: it.workers()) if part is not None]
    if not parts:
        raise shards.home.away_error()
    found: dict[str, WorkerStatus] = {}
    for status in (status for part in parts for status in part):
        known = found.get(status.id)
        found[status.id] = status if known is None else replace(known, leased=known.leased + status.leased)
    return list(found.values())


async def forget_worker(shards: ShardSet, worker: str) -> None:
    await shards.gather(lambda it: it.forget_worker(worker))


# A cache is never relied on.


async def cache_get(shards: ShardSet, keys: Sequence[bytes], *, bodies: bool = True) -> list[CacheEntry | None]:
    return await shards.home.hint(lambda it: it.cache_get(keys, bodies=bodies), [None] * len(keys))


async def cache_put(shards: ShardSet, entry: NewCacheEntry, max_bytes: int) -> bool:
    return await shards.home.hint(lambda it: it.cache_put(entry, max_bytes), False)


async def cache_list(shards: ShardSet, *, host: str = "", before: int = 0, limit: int = 100) -> list[CacheEntry]:
    return await shards.home.ask(lambda it: it.cache_list(host=host, before=before, limit=limit))


async def cache_clear(shards: ShardSet, *, host: str = "", keys: Sequence[bytes] = (), limit: int = 10_000) -> int:
    return await shards.home.ask(lambda it: it.cache_clear(host=host, keys=keys, limit=limit))


async def cache_stats(shards: ShardSet) -> CacheStats:
    return await shards.home.ask(lambda it: it.cache_stats())
