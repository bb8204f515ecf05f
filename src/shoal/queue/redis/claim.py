"""Claim: the plan is the script's; here its answer becomes tasks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from shoal.core.capability import MAX_CAPABILITIES, capability_names
from shoal.core.lane import Pace, Slot
from shoal.core.run import run_of
from shoal.core.task import Claim, LeasedTask, failures
from shoal.queue.base import LEASE_SECONDS, ExtendResult
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import SECOND, PackedTask, micros, unpack_held


async def claim(
    engine: Engine,
    worker: str,
    limit: int,
    *,
    lease: float = LEASE_SECONDS,
    serves: Collection[str] | None = None,
    capabilities: Collection[str] = (),
    request_id: str = "",
) -> Claim:
    has = capability_names(capabilities, most=MAX_CAPABILITIES)
    engine.serves = serves
    # A request of its own makes the repetition after a lost reply harmless.
    request_id = request_id or engine.request()
    return as_claim(
        await engine.run(
            "claim", worker, limit, micros(lease), request_id, int(serves is None), len(has), *has, *(serves or ())
        )
    )


def as_claim(told: Any) -> Claim:
    """What hand_out.lua tells."""
    number, soonest, about, tasks, now = told
    if not tasks and int(number) == 0:
        return Claim(0, (), None if soonest < 0 else soonest / SECOND)
    lanes = {about[at]: (about[at + 1].decode(), about[at + 2], about[at + 3]) for at in range(0, len(about), 4)}
    held = [(int(tasks[at]), unpack_held(tasks[at + 1])) for at in range(0, len(tasks), 2)]
    held.sort(key=lambda pair: pair[1].slot)  # what starts at once stays in the order of urgency
    return Claim(int(number), tuple(_leased(id, int(number), item, lanes, now) for id, item in held))


def _leased(id: int, lease: int, held: PackedTask, lanes: Mapping[int, Any], now: int) -> LeasedTask:
    item, (name, spacing, parked) = held.item, lanes[held.lane]
    past = failures(item.history) if item.history else None
    url, kind, priority, depth, parent = item.view
    work = item.unpack_work()
    return LeasedTask(
        id, lease, run_of(id), name, url, kind, priority, depth, parent, work.meta, item.attempts, item.lost,
        (held.slot - now) / SECOND, spacing / SECOND, past, work.request_options, parked, item.ack,
        work.needs, work.garbled, item.expires_at,
    )  # fmt: skip


async def reserve(engine: Engine, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
    wanted = pace or Pace()
    wait, spacing, taken, parked = await engine.run(
        "reserve",
        lane,
        micros(wanted.spacing),
        wanted.max_in_flight,
        int(pace is not None),
        "" if within is None else micros(within),
    )
    return Slot(wait / SECOND, parked.decode(), spacing / SECOND, bool(taken))


async def extend(
    engine: Engine, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE_SECONDS
) -> ExtendResult:
    words: list[Any] = []
    for number, started in leases.items():
        words += (number, len(started), *started)
    lost, cancelled = await engine.run("extend", worker, micros(lease), *words)
    return ExtendResult(frozenset(int(number) for number in lost), frozenset(int(id) for id in cancelled))
