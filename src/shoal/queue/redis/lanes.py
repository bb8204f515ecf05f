"""Lanes: hosts as people see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from heapq import nsmallest
from typing import Any

import msgspec

from shoal.core.lane import LaneState
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import SECOND

SLICE = 500
_NAME, _NEXT, _ASKED, _LEARNED, _SPACING, _ROOM, _FLIGHT, _HELD, _PARKED, _REASON, _RUNS, _RULE, _LIMIT = (
    range(13)
)
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_ALONE = 3  # in a head; the ready tasks by band follow it


Found = tuple[int, int, list[Any]]  # ready tasks, id, lane


async def listing(engine: Engine, run: int | None, limit: int) -> list[LaneState]:
    now = await engine.now()
    found: list[Found] = []
    async for slice_ in _all(engine) if run is None else _of_run(engine, run):
        found = nsmallest(limit, [*found, *slice_], key=lambda one: (-one[0], one[1]))
    return [_state(lane, ready, now) for ready, _, lane in found]


async def _all(engine: Engine) -> AsyncIterator[list[Found]]:
    last = int(await engine.read("HGET", "meta", "lane") or 0)
    for first in range(1, last + 1, SLICE):
        ids = list(range(first, min(first + SLICE, last + 1)))
        packed = await engine.read("HMGET", "lanes", *ids)
        lanes = {id: _decode(lane) for id, lane in zip(ids, packed, strict=True) if lane is not None}
        ready = Counter[int]()
        for number in {number for lane in lanes.values() for number in lane[_RUNS]}:
            ready.update(await _ready(engine, number, [id for id in lanes if number in lanes[id][_RUNS]]))
        yield [(ready[id], id, lane) for id, lane in lanes.items()]


async def _of_run(engine: Engine, run: int) -> AsyncIterator[list[Found]]:
    first = 0
    while texts := await engine.read("LRANGE", f"order:{run}", first, first + SLICE - 1):
        first += SLICE
        ids = [int(text) for text in texts]
        lanes = await engine.read("HMGET", "lanes", *ids)
        ready = await _ready(engine, run, ids)
        yield [(ready[id], id, _decode(lane)) for id, lane in zip(ids, lanes, strict=True)]


async def _ready(engine: Engine, run: int, ids: list[int]) -> dict[int, int]:
    heads = await engine.read("HMGET", f"heads:{run}", *ids)
    return {id: sum(_decode(head)[_ALONE:]) if head else 0 for id, head in zip(ids, heads, strict=True)}


def _state(lane: list[Any], ready: int, now: int) -> LaneState:
    held = lane[_HELD] > now
    return LaneState(
        name=lane[_NAME],
        next_at=lane[_NEXT],
        spacing=lane[_SPACING] / SECOND,
        asked=lane[_ASKED] / SECOND,
        learned=lane[_LEARNED] / SECOND,
        max_in_flight=lane[_ROOM],
        in_flight=lane[_FLIGHT],
        ready=ready,
        held_until=lane[_HELD] if held else 0,
        parked=bool(lane[_PARKED]) and held,
        reason=lane[_REASON] if held or lane[_LEARNED] or lane[_RULE] >= 0 else "",
        rule=lane[_RULE] / SECOND if lane[_RULE] >= 0 else -1.0,
        limit=lane[_LIMIT],
    )
