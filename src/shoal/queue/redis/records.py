"""Records: what tasks brought, numbered in the order of settling, until they are trimmed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

from shoal.core.run import TASK_BITS
from shoal.queue.base import StoredRecord
from shoal.queue.redis.engine import Engine
from shoal.queue.redis.packing import split_record
from shoal.queue.redis.runs import unknown

SLICE = 500  # tasks, or spans of records, per call
Span = tuple[int, int]  # the first record and the last


async def page(
    engine: Engine, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
) -> list[StoredRecord]:
    if limit < 1:
        return []
    found = await _page(engine, run, after, limit, tasks)
    if found:
        await engine.flush()
    return found


async def _page(engine: Engine, run: int, after: int, limit: int, tasks: Collection[int]) -> list[StoredRecord]:
    if not tasks:
        return await _read(engine, run, [after + 1, f"+{limit}"])
    wanted = _after(sorted([span async for span in _spans(engine, run, tasks)]), after)
    found: list[StoredRecord] = []
    while wanted and len(found) < limit:
        chosen = _within(wanted[:SLICE], limit - len(found))
        found += await _read(engine, run, [word for span in chosen for word in span])
        wanted = _after(wanted, chosen[-1][1])
    return found


async def _spans(engine: Engine, run: int, tasks: Collection[int]) -> AsyncIterator[Span]:
    numbers = [id & ((1 << TASK_BITS) - 1) for id in set(tasks) if id >> TASK_BITS == run]
    for at in range(0, len(numbers), SLICE):
        for first, count in await engine.run("record_spans", run, *numbers[at : at + SLICE]):
            yield first, first + count - 1


def _after(spans: list[Span], after: int) -> list[Span]:
    return [(max(first, after + 1), last) for first, last in spans if last > after]


def _within(spans: list[Span], limit: int) -> list[Span]:
    """As many spans as hold the wanted number, the last one cut."""
    chosen: list[Span] = []
    for first, last in spans:
        if limit <= 0:
            break
        chosen.append((first, min(last, first + limit - 1)))
        limit -= last - first + 1
    return chosen


async def _read(engine: Engine, run: int, spans: list[Any]) -> list[StoredRecord]:
    return [
        StoredRecord(seq, *split_record(row, run))
        for first, rows in await engine.run("records", run, *spans)
        for seq, row in enumerate(rows, first)
    ]


async def trim(engine: Engine, run: int, upto: int) -> int:
    count: int | None = await engine.run_cached("trim", run, upto)
    if count is None:
        raise unknown(run)
    return count
