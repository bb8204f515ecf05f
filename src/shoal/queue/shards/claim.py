"""Claim over shards: one after the other, another one first each time, until there is enough."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator

from shoal.core.task import Claim, LeasedTask, Outcome, band
from shoal.errors import QueueUnavailable
from shoal.queue.base import LEASE_SECONDS
from shoal.queue.shards.flow import leased_for_all
from shoal.queue.shards.numbers import untagged
from shoal.queue.shards.quota import share_pages
from shoal.queue.shards.run_numbers import part_name
from shoal.queue.shards.settle import settle
from shoal.queue.shards.shard import SHORT_TIMEOUT, Shard
from shoal.queue.shards.shard_set import ShardSet
from shoal.queue.shards.upkeep import look


async def claim(
    shards: ShardSet,
    worker: str,
    limit: int,
    *,
    lease: float = LEASE_SECONDS,
    serves: Collection[str] | None = None,
    capabilities: Collection[str] = (),
    request_id: str = "",
) -> Claim:
    await look(shards)
    claim = await _claim(shards, worker, limit, lease, serves, capabilities, request_id)
    # Where somebody gets less than asked for, a shard may have work but no page left of its run's limit.
    while shards.limited and len(claim.tasks) < limit and not any(task.lost for task in claim.tasks):
        # A request that is repeated gets all that it got the first time, also if there is no page to share any more.
        if not await share_pages(shards) and not request_id:
            break
        request_id += "+" if request_id else ""
        more = await _claim(shards, worker, limit - len(claim.tasks), lease, serves, capabilities, request_id)
        if not more.tasks:
            break
        if claim.tasks and any(task.lost for task in more.tasks):
            await settle(shards, [Outcome(task=it.id, lease=it.lease, result="released") for it in more.tasks])
            break
        claim = Claim(claim.lease or more.lease, (*claim.tasks, *more.tasks))
    return claim


async def _claim(
    shards: ShardSet,
    worker: str,
    limit: int,
    lease: float,
    serves: Collection[str] | None,
    capabilities: Collection[str],
    request_id: str,
) -> Claim:
    tasks: list[LeasedTask] = []
    waits: list[float] = []
    failure: QueueUnavailable | None = None
    answered = False
    for shard in _in_turn(shards, request_id):
        # A batch whose reply was lost is ours all the same: it is asked for again before anything else.
        request = shards.unanswered.pop((shard.index, worker), request_id)
        try:
            part = await shard.ask(
                lambda it, request=request, names=_names(shard, serves), left=limit - len(tasks): it.claim(  # type: ignore[misc]
                    worker, left, lease=lease, serves=names, capabilities=capabilities,
                    request_id=request,
                ),
                SHORT_TIMEOUT,
            )  # fmt: skip
        except QueueUnavailable as error:
            failure = error
            if request:
                shards.unanswered[shard.index, worker] = request
            continue
        answered = True
        if part.next_in is not None:
            waits.append(part.next_in)
        if tasks and any(task.lost for task in part.tasks):
            await _give_back(shard, part)  # such a task comes alone
            waits.append(0.0)
            continue
        tasks += await leased_for_all(shards, shard, part)
        if len(tasks) >= limit or any(task.lost for task in part.tasks):
            break
    if failure is not None and not answered:
        raise failure
    if not tasks:
        return Claim(0, (), min(waits, default=None))
    if len({task.lease for task in tasks}) > 1:
        tasks.sort(key=lambda task: (task.start_in, band(task.priority)))
    # A repeated request is known by the same lease, whichever of its tasks comes first.
    return Claim(min((task.lease for task in tasks), key=untagged), tuple(tasks))


def _in_turn(shards: ShardSet, request_id: str) -> Iterator[Shard]:
    """All shards that answer, each time beginning with another; a request that is repeated asks in the same order."""
    count = len(shards.shards)
    shards.turn += 1
    first = zlib.crc32(request_id.encode()) if request_id else shards.turn
    for place in range(count):
        shard = shards.shards[(first + place) % count]
        if not shard.is_away or place == count - 1:
            yield shard


def _names(shard: Shard, serves: Collection[str] | None) -> Collection[str] | None:
    if serves is None or shard.index:
        return serves
    return [*serves, *(part_name(name, shard) for name in serves)]


async def _give_back(shard: Shard, part: Claim) -> None:
    released = [Outcome(task=task.id, lease=task.lease, result="released") for task in part.tasks]
    await shard.hint(lambda it: it.settle(released), None)
