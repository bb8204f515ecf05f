"""What `shoal shards` does: which shards a queue has, how each is, and one more."""

from __future__ import annotations

import msgspec

from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue
from shoal.queue.shards import ShardedQueue
from shoal.queue.shards.lane_move import MoveReport, add_shard
from shoal.queue.shards.run_numbers import is_part
from shoal.queue.shards.shard import Shard

LANE_PAGE = 1_000  # of more at a time a server would do nothing else meanwhile
MAX_PARTS = 1_000


class ShardStatus(msgspec.Struct, frozen=True):
    """A shard as people look at it."""

    number: int
    name: str
    role: str  # home, joining or empty
    away: str = ""  # why, if it is
    hosts: int = 0
    ready: int = 0
    leased: int = 0
    outbox: int = 0  # entries that wait to leave it, links to other shards among them


def require_sharded(queue: Queue) -> ShardedQueue:
    if not isinstance(queue, ShardedQueue):
        raise UsageError("this queue has no shards", hint="--queue shards:redis://a:6379/0,redis://b:6379/0")
    return queue


async def shard_statuses(queue: Queue) -> list[ShardStatus]:
    """All shards, in their order; what one that is away has is not known."""
    shards = require_sharded(queue).shards
    await shards.refresh_map()
    return [await _status(shard, _role(shard, shards.map.settled)) for shard in shards.shards]


def _role(shard: Shard, settled: int) -> str:
    return "home" if shard.index == 0 else "" if shard.index < settled else "joining"


async def _status(shard: Shard, role: str) -> ShardStatus:
    async def ask(queue: Queue) -> tuple[int, int, int]:
        parts = [run for run in await queue.runs(states=("running", "paused"), limit=MAX_PARTS) if is_part(run)]
        stats = await queue.stats_of([part.id for part in parts])
        return sum(it.ready for it in stats), sum(it.leased for it in stats), sum(it.outbox for it in stats)

    try:
        ready, leased, outbox = await shard.ask(ask)
        hosts = await _count_hosts(shard)
    except QueueUnavailable:
        return ShardStatus(shard.index, shard.name, role, shard.away_reason)
    return ShardStatus(shard.index, shard.name, role, "", hosts, ready, leased, outbox)


async def _count_hosts(shard: Shard) -> int:
    """Those with work, however many there are."""
    hosts, after = 0, ""
    while page := await shard.ask(lambda it, after=after: it.lanes(order="name", after=after, limit=LANE_PAGE)):  # type: ignore[misc]
        hosts += sum(lane.ready > 0 or lane.in_flight > 0 for lane in page)
        after = page[-1].name
    return hosts


async def add(queue: Queue, url: str) -> MoveReport:
    """Add a shard and move its hosts there; repeated, go on with it."""
    return await add_shard(require_sharded(queue).shards, url)
