"""Lanes: hosts as people see them. Of thousands only those are read whole that are shown."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from heapq import nsmallest
from struct import Struct
from typing import Any, Literal

import msgspec

from shoal.core.lane import LaneState
from shoal.queue.lane_filter import LaneFilter
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import SECOND

SLICE = 500
NAMES = 1000  # names per call
RUN_LANES = 3000  # run_lanes per call
(
    _NAME,
    _NEXT,
    _REQUESTED,
    _LEARNED,
    _SPACING,
    _ROOM,
    _FLIGHT,
    _HELD,
    _PARKED,
    _REASON,
    _RUNS,
    _SPACING_OVERRIDE,
    _LIMIT_OVERRIDE,
) = range(13)
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_MANY = Struct(">BI")  # what a list of so many begins with
APART = 12  # in a run_lane: the same counts of tasks with needs, by their numbers; often it ends before
ISOLATED = 3  # in a run_lane; the ready tasks by band follow it

Lanes = dict[int, list[Any]]


async def listing(
    engine: Engine,
    *,
    run: int | None = None,
    limit: int = 100,
    order: Literal["ready", "name"] = "ready",
    after: str = "",
    like: str = "",
    only: Literal["", "parked", "held", "overridden"] = "",
    names: Collection[str] = (),
) -> list[LaneState]:
    lane_filter = LaneFilter(order, after, like, only, names)
    await _reindex_lanes(engine)
    now = await engine.now()
    if lane_filter.only or lane_filter.names:
        return await _of_few(engine, run, limit, lane_filter, now)
    if lane_filter.order == "name":
        return await _by_name(engine, run, limit, lane_filter, now)
    return await _by_ready(engine, run, limit, lane_filter, now)


async def names_of(engine: Engine, ids: Sequence[int]) -> list[str]:
    lanes = await _read(engine, ids)
    return [lanes[id][_NAME] if id in lanes else "" for id in ids]


def most(counts: Mapping[Any, int], limit: int) -> list[Any]:
    """The keys with the largest counts, then by themselves; quick also where most are alike."""
    if not counts or limit < 1:
        return []
    edge = sorted(counts.values(), reverse=True)[:limit][-1]
    above = sorted((-count, key) for key, count in counts.items() if count > edge)
    level = sorted(key for key, count in counts.items() if count == edge)
    return [*(key for _, key in above), *level][:limit]


async def _reindex_lanes(engine: Engine) -> None:
    """Lanes that were made by an older layout are listed by name and condition, once."""
    known, listed = await asyncio.gather(engine.read("HLEN", "lane_ids"), engine.read("ZCARD", "lane_names"))
    if known != listed:
        last = int(await engine.read("HGET", "meta", "lane") or 0)
        for first in range(1, last + 1, SLICE):
            await engine.run("reindex_lanes", first, min(first + SLICE - 1, last))


async def _of_few(engine: Engine, run: int | None, limit: int, lane_filter: LaneFilter, now: int) -> list[LaneState]:
    """Those of a condition, or with given names: all of them are read."""
    lanes = await _read(engine, await _few(engine, lane_filter, now))
    chosen = {id: lane for id, lane in lanes.items() if lane_filter.matches_name(lane[_NAME])}
    states = await _states(engine, run, chosen, now)
    fitting = [(id, state) for id, state in states.items() if _is_in_condition(state, lane_filter.only)]
    if lane_filter.order == "name":
        return [state for _, state in nsmallest(limit, fitting, key=lambda one: one[1].name)]
    return [state for _, state in nsmallest(limit, fitting, key=lambda one: (-one[1].ready, one[0]))]


async def _few(engine: Engine, lane_filter: LaneFilter, now: int) -> list[int]:
    if lane_filter.names:
        names = list(lane_filter.names)
        return [int(id) for id in await _in_slices(engine, "lane_ids", names) if id is not None]
    if lane_filter.only == "overridden":
        return sorted(map(int, await engine.read("SMEMBERS", "overridden")))
    return sorted(map(int, await engine.read("ZRANGEBYSCORE", "holds", f"({now}", "+inf")))


def _is_in_condition(state: LaneState, only: str) -> bool:
    return {
        "": True,
        "parked": state.parked,
        "held": state.held_until > 0,
        "overridden": state.spacing_override >= 0 or state.limit >= 0,
    }[only]


async def _by_name(engine: Engine, run: int | None, limit: int, lane_filter: LaneFilter, now: int) -> list[LaneState]:
    found: list[LaneState] = []
    async for names in _names(engine, lane_filter.start, min(NAMES, max(limit, 100))):
        fitting = [name for name in names if lane_filter.like in name]
        ids = [int(id) for id in await _in_slices(engine, "lane_ids", fitting) if id is not None]
        if run is not None:
            run_lanes = await _in_slices(engine, f"run_lanes:{run}", ids)
            ids = [id for id, run_lane in zip(ids, run_lanes, strict=True) if run_lane is not None]
        states = await _states(engine, run, await _read(engine, ids[: limit - len(found)]), now)
        found += states.values()
        if len(found) >= limit:
            break
    return found


async def _names(engine: Engine, after: str, most: int) -> AsyncIterator[list[str]]:
    first = b"-" if not after else b"(" + after.encode()
    while texts := await engine.read("ZRANGEBYLEX", "lane_names", first, "+", "LIMIT", 0, most):
        yield [text.decode() for text in texts]
        first, most = b"(" + texts[-1], NAMES


async def _by_ready(engine: Engine, run: int | None, limit: int, lane_filter: LaneFilter, now: int) -> list[LaneState]:
    if lane_filter.like:
        like = [name async for names in _names(engine, "", NAMES) for name in names if lane_filter.like in name]
        ids = [int(id) for id in await _in_slices(engine, "lane_ids", like) if id is not None]
        if len(ids) <= SLICE:
            states = await _states(engine, run, await _read(engine, ids), now)
            return [states[id] for id in nsmallest(limit, states, key=lambda id: (-states[id].ready, id))]
        every = await _ready(engine, run)
        ready = {id: every.get(id, 0) for id in ids if run is None or id in every}
    else:
        ready = await _ready(engine, run)
    chosen = most(ready, limit)
    lanes = await _read(engine, chosen)
    if run is None and not lane_filter.like and len(chosen) < limit:
        lanes |= await _idle(engine, limit - len(chosen), ready)
    return [_state(lane, ready.get(id, 0), now) for id, lane in lanes.items()]


async def _ready(engine: Engine, run: int | None) -> dict[int, int]:
    """How many tasks are ready in each lane of a run; without one, in each where any run has some."""
    if run is not None:
        return await _run_lanes(engine, run)
    live = await engine.read("ZRANGE", "live_runs", 0, -1)
    every = await asyncio.gather(*(_run_lanes(engine, int(number)) for number in live))
    if not every:
        return {}
    total, *others = sorted(every, key=len, reverse=True)
    known = total.get
    for run_lanes in others:
        for id, count in run_lanes.items():
            total[id] = known(id, 0) + count
    return {id: count for id, count in total.items() if count}


async def _run_lanes(engine: Engine, run: int) -> dict[int, int]:
    """How many tasks of a run are ready in each of its lanes."""
    ready: dict[int, int] = {}  # a scan may tell of one twice
    cursor: bytes = b"0"
    while True:
        cursor, some = await engine.read("HSCAN", f"run_lanes:{run}", cursor, "COUNT", RUN_LANES)
        run_lanes = some[1::2]
        alike = list(set(run_lanes))  # many are; and one message of many is read sooner than many messages
        read = _decode(_MANY.pack(0xDD, len(alike)) + b"".join(alike))
        counts = dict(zip(alike, [_waiting(run_lane) for run_lane in read], strict=True))
        ready.update(zip(map(int, some[::2]), map(counts.__getitem__, run_lanes), strict=True))
        if int(cursor) == 0:
            return ready


def _waiting(run_lane: list[Any]) -> int:
    """How many tasks are ready, whatever they need."""
    if len(run_lane) <= APART:
        return sum(run_lane[ISOLATED:])
    apart = run_lane[APART].values() if isinstance(run_lane[APART], dict) else run_lane[APART]
    return sum(map(sum, (run_lane[ISOLATED:APART], *(shelf[ISOLATED:] for shelf in apart))))


async def _idle(engine: Engine, count: int, busy: Collection[int]) -> Lanes:
    """The first lanes in which nothing is ready."""
    found: Lanes = {}
    last = int(await engine.read("HGET", "meta", "lane") or 0)
    for first in range(1, last + 1, SLICE):
        ids = [id for id in range(first, min(first + SLICE, last + 1)) if id not in busy]
        found |= await _read(engine, ids[: count - len(found)])
        if len(found) >= count:
            break
    return found


async def _states(engine: Engine, run: int | None, lanes: Lanes, now: int) -> dict[int, LaneState]:
    """Lanes with what is ready in them; with a run, only those that are its own."""
    ready = Counter[int]()
    mine = set[int]()
    numbers = {run} if run is not None else {number for lane in lanes.values() for number in lane[_RUNS]}
    asked = [
        (number, [id for id, lane in lanes.items() if run is not None or number in lane[_RUNS]]) for number in numbers
    ]
    told = await asyncio.gather(*(_in_slices(engine, f"run_lanes:{number}", ids) for number, ids in asked))
    for (_, ids), run_lanes in zip(asked, told, strict=True):
        for id, run_lane in zip(ids, run_lanes, strict=True):
            if run_lane is not None:
                ready[id] += _waiting(_decode(run_lane))
                mine.add(id)
    return {id: _state(lane, ready[id], now) for id, lane in lanes.items() if run is None or id in mine}


async def _read(engine: Engine, ids: Sequence[int]) -> Lanes:
    packed = await _in_slices(engine, "lanes", ids)
    return {id: _decode(lane) for id, lane in zip(ids, packed, strict=True) if lane is not None}


async def _in_slices(engine: Engine, key: str, fields: Sequence[Any]) -> list[Any]:
    calls: Iterable[Any] = (engine.read("HMGET", key, *fields[at : at + SLICE]) for at in range(0, len(fields), SLICE))
    return [value for values in await asyncio.gather(*calls) for value in values]


def _state(lane: list[Any], ready: int, now: int) -> LaneState:
    held = lane[_HELD] > now
    return LaneState(
        name=lane[_NAME],
        next_at=lane[_NEXT],
        spacing=lane[_SPACING] / SECOND,
        requested=lane[_REQUESTED] / SECOND,
        learned=lane[_LEARNED] / SECOND,
        max_in_flight=lane[_ROOM],
        in_flight=lane[_FLIGHT],
        ready=ready,
        held_until=lane[_HELD] if held else 0,
        parked=bool(lane[_PARKED]) and held,
        reason=lane[_REASON] if held or lane[_LEARNED] or lane[_SPACING_OVERRIDE] >= 0 else "",
        spacing_override=lane[_SPACING_OVERRIDE] / SECOND if lane[_SPACING_OVERRIDE] >= 0 else -1.0,
        limit=lane[_LIMIT_OVERRIDE],
    )
