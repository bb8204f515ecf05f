"""A run on its way into or out of a sharded queue: its numbers stay, its tasks go to the shards of their lanes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shoal.core.lane import Pace
from shoal.core.stats import Stats
from shoal.core.task import DROPPED, ExportedTask
from shoal.queue.base import StoredRecord
from shoal.queue.shards import moved_tasks
from shoal.queue.shards import records as record_order
from shoal.queue.shards.filler import LANE
from shoal.queue.shards.numbers import first_number
from shoal.queue.shards.shard import LONG_TIMEOUT, Shard
from shoal.queue.shards.shard_set import ShardSet


async def export_run(shards: ShardSet, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
    order = await record_order.whole_order(shards, run)
    parts = await shards.gather_runs(
        run, lambda it, local: it.export_run(local, after=after, limit=limit + 1), timeout=LONG_TIMEOUT
    )
    pages = [
        [_placed(order, shard, task) for task in part if _is_here(shards, shard, task)] for shard, _, part in parts
    ]
    found: list[ExportedTask] = []
    for task in heapq.merge(*pages, key=lambda it: it.number):
        if found and found[-1].number == task.number:  # moved: one of the two is only a trace
            found[-1] = task if found[-1].state == "seen" else found[-1]
        else:
            found.append(task)
    return found[:limit]


def _is_here(shards: ShardSet, shard: Shard, task: ExportedTask) -> bool:
    if task.task.lane == LANE or task.number == first_number(shard.index):
        return False
    return not (task.cause == DROPPED and task.state == "cancelled" and shards.owner(task.task.lane) is not shard)


def _placed(order: record_order.RecordOrder, shard: Shard, task: ExportedTask) -> ExportedTask:
    if not task.first_record:
        return task
    return replace(task, first_record=record_order.place_of(order, shard.index, task.first_record))


async def import_run(
    shards: ShardSet,
    run: int,
    tasks: Sequence[ExportedTask],
    records: Sequence[StoredRecord] = (),
    *,
    paces: Mapping[str, Pace] | None = None,
    counts: Stats | None = None,
    counters: Mapping[str, int] | None = None,
) -> None:
    """Records, counts and counters stay together on the home shard, whatever tasks they are of."""
    by_shard: dict[int, list[ExportedTask]] = {0: []}
    for task in tasks:
        if task.task.lane:
            by_shard.setdefault(shards.owner(task.task.lane).index, []).append(task)
        else:  # only its identity is left: any shard may be asked for it
            for shard in shards.shards:
                by_shard.setdefault(shard.index, []).append(task)
    await moved_tasks.note_copies(shards, run, [task for task in tasks if not task.task.lane])
    for index, some in by_shard.items():
        shard = shards.shards[index]
        local = await shards.runs.ensure(shard, run)
        if index:
            await shard.ask(lambda it, local=local, some=some: it.import_run(local, some, paces=paces), LONG_TIMEOUT)  # type: ignore[misc]
    last = [it.seq for it in records] + [it.first_record + it.records - 1 for it in tasks if it.first_record]
    await record_order.note_imported(shards, run, max([0, *last, counts.trimmed if counts else 0]))
    home = await shards.runs.ensure(shards.home, run)
    await shards.home.ask(
        lambda it: it.import_run(home, by_shard[0], records, paces=paces, counts=counts, counters=counters),
        LONG_TIMEOUT,
    )
