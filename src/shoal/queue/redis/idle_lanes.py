"""Idle lanes: those that nothing refers to any more go, a few at a time."""

from __future__ import annotations

import asyncio

from shoal.queue.base import LANE_KEPT_SECONDS
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import SECOND

LOOKED_AT = 200  # lanes per call
RUNS_AT_ONCE = 100
KEPT = round(LANE_KEPT_SECONDS * SECOND)


async def remove(engine: Engine) -> None:
    found: list[bytes] = await engine.run("find_idle_lanes", KEPT, LOOKED_AT)
    if found:
        named = await _named_by_runs(engine, found)
        await engine.run("remove_idle_lanes", KEPT, len(named), *named, *(id for id in found if id not in named))


async def _named_by_runs(engine: Engine, lanes: list[bytes]) -> set[bytes]:
    """Those that a run refers to, be it one that has ended: its history names them by number."""
    runs, leaving = await asyncio.gather(engine.read("ZRANGE", "runs", 0, -1), engine.read("SMEMBERS", "purging"))
    keys = [f"run_lanes:{run.decode()}" for run in (*runs, *leaving)]
    named = set[bytes]()
    for first in range(0, len(keys), RUNS_AT_ONCE):
        part = keys[first : first + RUNS_AT_ONCE]
        for answer in await asyncio.gather(*(engine.read("HMGET", key, *lanes) for key in part)):
            named.update(lane for lane, known in zip(lanes, answer, strict=True) if known is not None)
    return named
