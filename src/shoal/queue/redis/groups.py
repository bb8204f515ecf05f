"""Groups: dead letters by lane and cause, counted when they are buried and when they leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from shoal.core.glob import Glob
from shoal.queue.base import DeadLetterGroup, TaskFilter
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.lanes import most, names_of
from shoal.queue.redis.packing import unpack_ended

SLICE = 200  # dead letters per call
FEW, FEW_GROUPS = 5000, 500  # dead letters that are sought by number, and their groups
_Counts = dict[tuple[int, str], int]


async def listing(engine: Engine, run: int, limit: int = 100) -> list[DeadLetterGroup]:
    counts = await _counts(engine, run)
    if sum(counts.values()) < await engine.read("HLEN", f"dead:{run}"):  # some are of an older layout
        async for some in _all(engine, run, 1, "+inf", SLICE):
            await engine.run("regroup_dead", run, *some)
        counts = await _counts(engine, run)
    chosen = most(counts, limit)
    lanes = await names_of(engine, [lane for lane, _ in chosen])
    found = await asyncio.gather(
        *(_group(engine, run, key, name, counts[key]) for key, name in zip(chosen, lanes, strict=True))
    )
    groups = [group for group in found if group is not None]
    return sorted(groups, key=lambda group: (-group.count, group.lane, group.cause))


async def numbers(
    engine: Engine,
    run: int,
    where: TaskFilter = TaskFilter(),
    first: int = 1,
    last: int | str = "+inf",
    size: int = SLICE,
) -> AsyncIterator[list[int]]:
    """Dead letters in order of their numbers; of a filter that matches few, only those of its groups."""
    if (where.lane or where.cause) and (few := await _few(engine, run, where)) is not None:
        top = int(last) if last != "+inf" else few[-1] if few else 0
        chosen = [number for number in few if first <= number <= top]
        for at in range(0, len(chosen), size):
            yield chosen[at : at + size]
    else:
        async for some in _all(engine, run, first, last, size):
            yield some


async def _few(engine: Engine, run: int, where: TaskFilter) -> list[int] | None:
    counts = await _counts(engine, run)
    if sum(counts.values()) < await engine.read("HLEN", f"dead:{run}"):
        return None
    lane = int(await engine.read("HGET", "lane_ids", where.lane) or 0) if where.lane else None
    cause = Glob(where.cause or "*")
    chosen = [key for key in counts if lane in (None, key[0]) and cause.fullmatch(key[1])]
    if sum(counts[key] for key in chosen) > FEW or len(chosen) > FEW_GROUPS:
        return None
    found = await asyncio.gather(*(engine.read("ZRANGE", _members(run, key), 0, -1) for key in chosen))
    return sorted(int(number) for some in found for number in some)


async def _all(engine: Engine, run: int, first: int, last: int | str, size: int) -> AsyncIterator[list[int]]:
    while found := await engine.read("ZRANGEBYSCORE", f"dead_ids:{run}", first, last, "LIMIT", 0, size):
        some = [int(number) for number in found]
        yield some
        first = some[-1] + 1


def _members(run: int, key: tuple[int, str]) -> str:
    return f"group:{run}:{key[0]}:{key[1]}"


async def _counts(engine: Engine, run: int) -> _Counts:
    told = await engine.read("HGETALL", f"groups:{run}")
    counts: _Counts = {}
    for key, count in zip(told[::2], told[1::2], strict=True):
        lane, _, cause = key.decode().partition(":")
        counts[int(lane), cause] = int(count)
    return counts


async def _group(engine: Engine, run: int, key: tuple[int, str], lane: str, count: int) -> DeadLetterGroup | None:
    members = _members(run, key)
    first, last = await asyncio.gather(
        engine.read("ZRANGE", members, 0, 0, "WITHSCORES"), engine.read("ZRANGE", members, -1, -1, "WITHSCORES")
    )
    text = await engine.read("HGET", f"dead:{run}", first[0]) if first and last else None
    if text is None:  # it was revived or dropped just now
        return None
    row = unpack_ended(text)
    message = row.history[-1].message if row.history else ""
    return DeadLetterGroup(lane, key[1], count, row.item.view[0], message, int(first[1]), int(last[1]))
