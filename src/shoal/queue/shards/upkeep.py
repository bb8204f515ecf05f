"""Upkeep: what keeps shards together, done by whoever reaps: links in transit, states of runs, the map."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable

from shoal.errors import QueueUnavailable
from shoal.queue.shards.moved_tasks import load_moved
from shoal.queue.shards.quota import end_at_limit, load_limited
from shoal.queue.shards.runs import reconcile
from shoal.queue.shards.shard_set import MAP_INTERVAL, ShardSet
from shoal.queue.shards.transit import carry_all

TRUSTED_SHARE = 2 / 3  # of a lease: who could not renew it by then does not hold it any more


async def keep_together(shards: ShardSet) -> None:
    await look(shards)  # first of all: where anything belongs may have changed
    if shards.lacks_map:
        await shards.spread_map()
    with contextlib.suppress(QueueUnavailable):
        await carry_all(shards)
    if shards.limited:
        await end_at_limit(shards, shards.limited)
    if time.monotonic() - shards.reconciled_at >= MAP_INTERVAL:
        shards.reconciled_at = time.monotonic()
        with contextlib.suppress(QueueUnavailable):
            await reconcile(shards)


async def look(shards: ShardSet) -> bool:
    """See now and then what has changed for all shards; whoever works does, before anything else."""
    if time.monotonic() - shards.looked_at < MAP_INTERVAL:
        return False
    await shards.refresh_map()
    await load_limited(shards)
    await load_moved(shards)
    return True


def note_unconfirmed(shards: ShardSet, leases: Iterable[int], seconds: float, lost: set[int]) -> None:
    """Leases of a shard that is away: lost when they could not be renewed for too long."""
    now = time.monotonic()
    for lease in leases:
        if now - shards.unconfirmed.setdefault(lease, now) > seconds * TRUSTED_SHARE:
            lost.add(lease)
            del shards.unconfirmed[lease]


def note_confirmed(shards: ShardSet, leases: Iterable[int]) -> None:
    if shards.unconfirmed:
        for lease in leases:
            shards.unconfirmed.pop(lease, None)
