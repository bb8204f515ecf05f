"""Look: tasks, dead letters and records as people see them, read in slices."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from shoal.core.run import TASK_BITS
from shoal.core.task import State
from shoal.queue.base import DeadGroup, TaskView, Where
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import DIGEST, Item, unpack_held, unpack_item, unpack_row

SLICE = 200  # tasks per call
COUNTED = 1000  # tasks per call where only their number matters
_MASK = (1 << TASK_BITS) - 1
_unpack_sample = msgspec.msgpack.Decoder(tuple[str, str]).decode


def view(run: int, now: int, told: list[Any]) -> TaskView:
    number, where, text, lane_name, *held = told
    id, lane = (run << TASK_BITS) | number, lane_name.decode()
    if where == b"gone":  # it went when the run was cancelled
        return TaskView(id=id, run=run, url="", lane=lane, state="cancelled", cause="run cancelled")
    if where == b"row":
        return _row_view(id, run, lane, text)
    item = unpack_held(text).item if where in (b"held", b"late") else unpack_item(text)
    if where in (b"late", b"left"):
        lease = int(held[0]) if held else 0
        return msgspec.structs.replace(_view(id, run, lane, "cancelled", item), lease=lease, meta=None)
    if where == b"held":
        lease, worker, until = int(held[0]), held[1].decode(), held[2]
        return msgspec.structs.replace(
            _view(id, run, lane, "leased", item), lease=lease, worker=worker, leased_until=until
        )
    return _view(id, run, lane, "delayed" if item.delayed and item.due_at > now else "ready", item)


def _view(id: int, run: int, lane: str, state: State, item: Item) -> TaskView:
    url, kind, priority, depth, parent = item.view
    return TaskView(
        id=id, run=run, url=url, lane=lane, state=state, kind=kind, priority=priority, depth=depth,
        parent=parent, attempts=item.attempts, lost=item.lost, added_at=item.added_at, due_at=item.due_at,
        history=item.history, meta=item.meta,
    )  # fmt: skip


def _row_view(id: int, run: int, lane: str, text: bytes) -> TaskView:
    row = unpack_row(text)
    return msgspec.structs.replace(
        _view(id, run, lane, row.state, row.item),
        attempts=row.attempts,
        lost=row.lost,
        due_at=0,
        finished_at=row.ended_at,
        lease=row.lease,
        cause=row.cause,
        records=row.records,
        evidence=row.evidence,
        history=row.history,
        meta=row.item.meta if row.state == "dead" else None,
    )


def _glob(pattern: str) -> re.Pattern[str]:
    """Only * is special to people."""
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


class Filter:
    def __init__(self, state: State | None, where: Where) -> None:
        self._state, self._where = state, where
        self._cause, self._url = _glob(where.cause), _glob(where.url)

    def fits(self, view: TaskView) -> bool:
        where = self._where
        return (
            self._state in (None, view.state)
            and where.lane in ("", view.lane)
            and (not where.cause or bool(view.cause and self._cause.fullmatch(view.cause)))
            and (not where.url or bool(self._url.fullmatch(view.url)))
            and (not where.ids or view.id in where.ids)
        )


async def look(
    engine: Engine, run: int, state: State | None, where: Where, after: int, limit: int
) -> list[TaskView]:
    chosen, found, now = Filter(state, where), list[TaskView](), await engine.now()
    async for told in _slices(engine, run, state, where, after):
        found += [view for view in (view_of(run, now, one) for one in told) if view and chosen.fits(view)]
        if len(found) >= limit:
            break
    return found[:limit]


def view_of(run: int, now: int, told: list[Any]) -> TaskView | None:
    """A listing leaves out what nothing is known of any more."""
    return None if told[1] == b"gone" else view(run, now, told)


async def _slices(
    engine: Engine, run: int, state: State | None, where: Where, after: int
) -> AsyncIterator[list[Any]]:
    first = after - (run << TASK_BITS) + 1 if after >= run << TASK_BITS else 1
    if where.ids:
        numbers = sorted({id & _MASK for id in where.ids if id >> TASK_BITS == run and id & _MASK >= first})
        for at in range(0, len(numbers), SLICE):
            yield (await engine.run("look", run, "numbers", *numbers[at : at + SLICE]))[1]
    elif state == "dead":
        async for slice_ in _dead_numbers(engine, run, first):
            yield (await engine.run("look", run, "numbers", *slice_))[1]
    else:
        while first:
            first, told = await engine.run("look", run, "range", first, SLICE)
            yield told


async def _dead_numbers(engine: Engine, run: int, first: int = 1) -> AsyncIterator[list[int]]:
    while True:
        found = await engine.read("ZRANGEBYSCORE", f"deadids:{run}", first, "+inf", "LIMIT", 0, SLICE)
        if not found:
            return
        numbers = [int(number) for number in found]
        yield numbers
        first = numbers[-1] + 1


async def dead(engine: Engine, run: int, where: Where = Where()) -> AsyncIterator[TaskView]:
    chosen, now = Filter("dead", where), await engine.now()
    async for told in _slices(engine, run, "dead", where, 0):
        for one in told:
            found = view_of(run, now, one)
            if found and chosen.fits(found):
                yield found


async def find(engine: Engine, run: int, digest: bytes) -> TaskView | None:
    _, told = await engine.run("look", run, "digest", digest[:DIGEST])
    return view(run, await engine.now(), told[0]) if told else None


async def ids(engine: Engine, run: int, digests: Sequence[bytes]) -> list[int]:
    found: list[int] = []
    for at in range(0, len(digests), COUNTED):
        some = [digest[:DIGEST] for digest in digests[at : at + COUNTED]]
        found += await engine.run("ids", run, *some)
    return [(run << TASK_BITS) | number if number else 0 for number in found]


async def dead_groups(engine: Engine, run: int, limit: int) -> list[DeadGroup]:
    groups: dict[tuple[str, str], DeadGroup] = {}
    async for letter in dead(engine, run):
        message = letter.history[-1].message if letter.history else ""
        new = DeadGroup(
            letter.lane, letter.cause, 1, letter.url, message, letter.finished_at, letter.finished_at
        )
        known = groups.get((letter.lane, letter.cause), new)
        groups[letter.lane, letter.cause] = msgspec.structs.replace(
            known,
            count=known.count + (known is not new),
            first_at=min(known.first_at, new.first_at),
            last_at=max(known.last_at, new.last_at),
        )
    return sorted(groups.values(), key=lambda group: (-group.count, group.lane, group.cause))[:limit]


async def skipped(engine: Engine, run: int, limit: int) -> list[tuple[str, str]]:
    samples = await engine.read("SMEMBERS", f"samples:{run}")
    return sorted(_unpack_sample(sample) for sample in samples)[:limit]


async def census(engine: Engine, run: int) -> AsyncIterator[tuple[int, int, int, list[int]]]:
    """Tasks counted one by one: how many are ready, delayed and leased, and which are nowhere at all."""
    first = 1
    while first:
        first, ready, delayed, leased, gone = await engine.run("census", run, first, COUNTED)
        yield ready, delayed, leased, gone
