"""Inspection: tasks, dead letters and records as people see them, read in slices."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from shoal.core.glob import Glob
from shoal.core.run import TASK_BITS
from shoal.core.task import GARBLED, State
from shoal.queue.base import TaskFilter, TaskView
from shoal.queue.cells import UNREADABLE
from shoal.queue.redis import groups, locations
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import DIGEST, Item, unpack_ended, unpack_held, unpack_item
from shoal.queue.remains import cancelled_view, discarded_view

SLICE = 200  # tasks per call
FEW = 5000  # tasks that are sought by number
SURE = 20  # tasks per call where leases are searched for them
PLACED, CALLS = 1000, 4  # tasks per call where most are not told of, and such calls at once
GROUP = 1000  # of these that are looked at first; then many together, so that few lists are read twice
COUNTED = 1000  # tasks per call where only their number matters
_MASK = (1 << TASK_BITS) - 1
_unpack_sample = msgspec.msgpack.Decoder(tuple[str, str]).decode


def view(run: int, now: int, told: list[Any]) -> TaskView:
    number, where, text, lane_name, *held = told
    id, lane = (run << TASK_BITS) | number, lane_name.decode()
    if where == b"gone":
        return cancelled_view(run, id, lane)
    if where == b"discarded":
        return discarded_view(run, id)
    if where == b"row":
        return _row_view(id, run, lane, text)
    item = unpack_held(text).item if where in (b"held", b"late") else unpack_item(text)
    if where in (b"late", b"left"):
        lease = int(held[0]) if held else 0
        return msgspec.structs.replace(_view(id, run, lane, "cancelled", item), lease=lease, meta=None, needs=())
    if where == b"held":
        lease, worker, until = int(held[0]), held[1].decode(), held[2]
        return msgspec.structs.replace(
            _view(id, run, lane, "leased", item),
            lease=lease,
            worker=worker,
            leased_until=until,
            ack=item.ack,
            expires_at=item.expires_at,
        )
    return _view(id, run, lane, "delayed" if item.delayed and item.due_at > now else "ready", item)


def _view(id: int, run: int, lane: str, state: State, item: Item) -> TaskView:
    url, kind, priority, depth, parent = item.view
    work = item.unpack_work()
    meta: dict[str, Any] | None = {GARBLED: work.garbled} if work.garbled else work.meta
    return TaskView(
        id=id, run=run, url=url, lane=lane, state=state, kind=kind, priority=priority, depth=depth,
        parent=parent, attempts=item.attempts, lost=item.lost, added_at=item.added_at, due_at=item.due_at,
        history=item.history, meta=meta, needs=work.needs,
    )  # fmt: skip


def _row_view(id: int, run: int, lane: str, text: bytes) -> TaskView:
    row = unpack_ended(text)
    view = _view(id, run, lane, row.state, row.item)
    return msgspec.structs.replace(
        view,
        attempts=row.attempts,
        lost=row.lost,
        due_at=0,
        finished_at=row.ended_at,
        lease=row.lease,
        cause=row.cause,
        records=row.records,
        evidence=row.evidence,
        history=row.history,
        meta=view.meta if row.state == "dead" else None,
        needs=view.needs if row.state == "dead" else (),
    )


class Filter:
    def __init__(self, state: State | None, where: TaskFilter) -> None:
        self._state, self._where = state, where
        self._cause, self._url = Glob(where.cause), Glob(where.url)

    def fits(self, view: TaskView) -> bool:
        where = self._where
        return (
            self._state in (None, view.state)
            and where.lane in ("", view.lane)
            and (not where.cause or bool(view.cause and self._cause.fullmatch(view.cause)))
            and (not where.url or bool(self._url.fullmatch(view.url)))
            and (not where.ids or view.id in where.ids)
        )


async def list_tasks(
    engine: Engine,
    run: int,
    *,
    state: State | None = None,
    where: TaskFilter = TaskFilter(),
    after: int = 0,
    upto: int = 0,
    limit: int = 100,
) -> list[TaskView]:
    chosen, found, now = Filter(state, where), list[TaskView](), await engine.now()
    if limit < 1:
        return []
    async for told in slices(engine, run, state, where, after, upto, min(limit, SLICE)):
        found += [view for view in (view_of(run, now, one) for one in told) if view and chosen.fits(view)]
        if len(found) >= limit:
            break
    return found[:limit]


def view_of(run: int, now: int, told: list[Any]) -> TaskView | None:
    """A listing leaves out what nothing is known of any more."""
    return None if told[1] in (b"gone", b"discarded") else view(run, now, told)


async def slices(
    engine: Engine, run: int, state: State | None, where: TaskFilter, after: int = 0, upto: int = 0, size: int = SLICE
) -> AsyncIterator[list[Any]]:
    """What may be looked for, in order; the state is not always the one that was asked for."""
    begin = run << TASK_BITS
    about = await _about(engine, run)
    first = max(1, after - begin + 1)
    last = min(about.last, upto - begin if upto else about.last)
    if where.ids:
        numbers = sorted({id & _MASK for id in where.ids if id >> TASK_BITS == run})
        numbers = [number for number in numbers if first <= number <= last]
        for at in range(0, len(numbers), SLICE):
            yield await _resolved(engine, run, "numbers", numbers[at : at + SLICE])
    elif state == "dead":
        async for some in groups.numbers(engine, run, where, first, last, size):
            yield await engine.run("list_tasks", run, "numbers", *some)
    elif state == "leased":
        leases = await _held(engine, run) if about.is_live else {}
        numbers = sorted(number for number in leases if first <= number <= last)
        for at in range(0, len(numbers), size):
            yield await _look_held(engine, run, leases, numbers[at : at + size])
    else:
        query = await _location_query(engine, run, state, where, about)
        needle = max(where.url.split("*"), key=len)
        async for placed in locations.find(engine, run, query, first, last, GROUP if needle else size, bool(needle)):
            told = await _look_placed(engine, run, needle, placed)
            yield told if state and about.is_live else await _found_held(engine, run, told)


async def _look_placed(engine: Engine, run: int, needle: str, placed: list[bytes]) -> list[Any]:
    """Those of a lane go together: its list is read once then."""
    placed = sorted(placed, key=locations.kind)
    told: list[Any] = []
    parts = [placed[at : at + PLACED] for at in range(0, len(placed), PLACED)]
    for at in range(0, len(parts), CALLS):
        calls = (engine.run("list_tasks", run, "placed", needle, b"".join(part)) for part in parts[at : at + CALLS])
        told += itertools.chain.from_iterable(await asyncio.gather(*calls))
    return sorted(told, key=itemgetter(0))


class About(NamedTuple):
    """What must be known of a run to find its tasks."""

    last: int  # the last number it has given
    is_live: bool
    is_left: bool  # it has ended, and what it had waiting is not yet removed
    is_tagged: bool  # cancelled tasks have a tag of their own


async def _about(engine: Engine, run: int) -> About:
    fields = ("next_task", "state", "left", "kept", "tagged")
    following, state, left, kept, tagged = await engine.read("HMGET", f"run:{run}", *fields)
    return About(int(following or 1) - 1, state in (b"running", b"paused"), b"1" in (left, kept), tagged == b"1")


async def _location_query(
    engine: Engine, run: int, state: State | None, where: TaskFilter, about: About
) -> locations.LocationQuery:
    waiting = (locations.WAITING, locations.STORED)
    # Of an ended run those that are still held, and what was not yet removed, count as cancelled.
    late = [] if about.is_live or state == "done" else list(await _held(engine, run))
    cancelled = () if about.is_tagged else (locations.ENDED,)
    tags: tuple[int, ...] = {
        "ready": waiting,
        "delayed": waiting[1:],
        "done": (locations.ENDED,),
        "cancelled": (locations.CANCELLED_ROW, *cancelled, *(waiting if about.is_left else ())),
    }.get(
        state or "",
        (
            locations.ENDED,
            locations.DEAD,
            locations.CANCELLED_ROW,
            *(waiting if about.is_live or about.is_left else ()),
        ),
    )
    if state in ("ready", "delayed") and not about.is_live:
        return locations.LocationQuery(())
    if state == "delayed" and await engine.read("ZCARD", f"delayed:{run}") <= FEW:
        return locations.LocationQuery(
            (), [int(number) for number in await engine.read("ZRANGE", f"delayed:{run}", 0, -1)]
        )
    lane = None
    if where.lane:
        lane = int(await engine.read("HGET", "lane_ids", where.lane) or 0)
    return locations.LocationQuery(tags, late, lane)


async def _held(engine: Engine, run: int) -> dict[int, bytes]:
    """The leases of tasks of a run that are held, by number."""
    leases = await engine.read("HKEYS", "leases")
    ids = await asyncio.gather(*(engine.read("HKEYS", f"lease:{lease.decode()}") for lease in leases))
    return {
        int(id) & _MASK: lease
        for lease, some in zip(leases, ids, strict=True)
        for id in some
        if int(id) >> TASK_BITS == run
    }


async def _look_held(engine: Engine, run: int, leases: dict[int, bytes], numbers: list[int]) -> list[Any]:
    told: list[Any] = await engine.run(
        "list_tasks", run, "held", *(word for number in numbers for word in (number, leases[number]))
    )
    return told


async def _resolved(engine: Engine, run: int, which: str, words: Sequence[Any]) -> list[Any]:
    return await _found_held(engine, run, await engine.run("list_tasks", run, which, *words))


async def _found_held(engine: Engine, run: int, told: list[Any]) -> list[Any]:
    """What was not found where it would wait may be leased, or have moved on while this was asked."""
    found = {one[0]: one for one in told}
    if missing := [number for number, one in found.items() if one[1] == b"gone"]:
        leases = await _held(engine, run)
        known = [number for number in missing if number in leases]
        if known:
            found |= {one[0]: one for one in await _look_held(engine, run, leases, known)}
        missing = [number for number in missing if found[number][1] == b"gone"]
    for at in range(0, len(missing), SURE):
        again = await engine.run("list_tasks", run, "sure", *missing[at : at + SURE])
        found |= {one[0]: one for one in again}
    return [found[one[0]] for one in told]


async def dead(engine: Engine, run: int, where: TaskFilter = TaskFilter()) -> AsyncIterator[TaskView]:
    chosen, now = Filter("dead", where), await engine.now()
    async for told in slices(engine, run, "dead", where):
        for one in told:
            found = view_of(run, now, one)
            if found and chosen.fits(found):
                yield found


async def find(engine: Engine, run: int, digest: bytes) -> TaskView | None:
    told = await _resolved(engine, run, "digest", [digest[:DIGEST]])
    return view(run, await engine.now(), told[0]) if told else None


async def ids(engine: Engine, run: int, digests: Sequence[bytes]) -> list[int]:
    found: list[int] = []
    for at in range(0, len(digests), COUNTED):
        some = [digest[:DIGEST] for digest in digests[at : at + COUNTED]]
        found += await engine.run("ids", run, *some)
    return [(run << TASK_BITS) | number if number else 0 for number in found]


async def skipped(engine: Engine, run: int, limit: int = 100) -> list[tuple[str, str]]:
    samples = await engine.read("SMEMBERS", f"samples:{run}")
    return sorted(found for sample in samples if (found := _read_sample(sample)))[:limit]


def _read_sample(packed: bytes) -> tuple[str, str] | None:
    try:
        return _unpack_sample(packed)
    except UNREADABLE:
        return None


async def count_tasks(engine: Engine, run: int) -> AsyncIterator[tuple[int, int, int, list[int], dict[int, int]]]:
    """Tasks counted one by one: ready, delayed, leased; which are nowhere at all; ready ones by number of needs."""
    first = 1
    while first:
        first, ready, delayed, leased, gone, needs = await engine.run("count_tasks", run, first, COUNTED)
        yield ready, delayed, leased, gone, dict(zip(needs[::2], needs[1::2], strict=True))


async def count_discarded(engine: Engine, run: int) -> int:
    """Dead letters that were removed, counted one by one."""
    about, query = await _about(engine, run), locations.LocationQuery((locations.DISCARDED,))
    return sum([len(some) async for some in locations.find(engine, run, query, 1, about.last, COUNTED)])
