"""MovedTasks: what more than one shard counts, because it was moved from one to another or is known to all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shoal.core.stats import Stats
from shoal.core.task import ExportedTask
from shoal.errors import QueueRefused
from shoal.queue.document_kinds import MOVED_TASKS
from shoal.queue.shards.shard import Shard
from shoal.queue.shards.shard_set import ShardSet


class MovedTasks(msgspec.Struct, frozen=True):
    """By shard, and by where it comes from: tasks that it counts as cancelled or discarded, and others have."""

    cancelled: dict[str, int] = {}
    discarded: dict[str, int] = {}
    version: int = 0


async def read_moved(shards: ShardSet, run: int) -> MovedTasks:
    found = await shards.home.ask(lambda it: it.document(MOVED_TASKS, str(run)))
    if found is None:
        return MovedTasks()
    try:
        return replace(msgspec.json.decode(found.text, type=MovedTasks), version=found.version)
    except msgspec.MsgspecError as error:
        raise QueueRefused(f"what was moved of run {run} cannot be read: {error}", hint="shoal doctor") from error


async def save_moved(shards: ShardSet, run: int, moved: MovedTasks) -> bool:
    text = msgspec.json.encode(replace(moved, version=0)).decode()
    saved = await shards.home.ask(lambda it: it.compare_and_swap(MOVED_TASKS, str(run), text, moved.version))
    return saved is not None


async def load_moved(shards: ShardSet) -> None:
    """Of which runs something was moved."""
    for document in await shards.home.hint(lambda it: it.documents(MOVED_TASKS), ()):
        if document.name.isdecimal():
            shards.moved.add(int(document.name))


async def without_moved(shards: ShardSet, shard: Shard, run: int, part: Stats) -> Stats:
    if run not in shards.moved:
        return part
    moved = await read_moved(shards, run)
    cancelled, discarded = _sum(moved.cancelled, shard), _sum(moved.discarded, shard)
    return replace(
        part,
        seen=part.seen - cancelled - discarded,
        cancelled=part.cancelled - cancelled,
        discarded=part.discarded - discarded,
    )


def _sum(counts: Mapping[str, int], shard: Shard) -> int:
    return sum(count for name, count in counts.items() if name.partition("/")[0] == str(shard.index))


async def note_moved(shards: ShardSet, run: int, source: int, target: int, gone: int, copies: int) -> None:
    """`gone` of the source's tasks are on the target now, which knows `copies` of the others; both in all, not more."""
    while True:
        moved = await read_moved(shards, run)
        counts = moved.cancelled | {f"{source}/{target}": gone, f"{target}/{source}": copies}
        if await save_moved(shards, run, replace(moved, cancelled=counts)):
            shards.moved.add(run)
            return


async def note_copies(shards: ShardSet, run: int, tasks: Sequence[ExportedTask]) -> None:
    """Identities that are about to be imported on every shard count on the home shard."""
    while True:
        moved = await read_moved(shards, run)
        cancelled, discarded = dict(moved.cancelled), dict(moved.discarded)
        for shard in shards.shards[1:]:
            local = await shards.runs.ensure(shard, run)
            known = await shard.ask(lambda it, local=local: it.ids(local, [task.task.digest for task in tasks]))  # type: ignore[misc]
            for task, number in zip(tasks, known, strict=True):
                if not number:
                    counts = discarded if task.state == "discarded" else cancelled
                    name = f"{shard.index}/import"
                    counts[name] = counts.get(name, 0) + 1
        if moved.version and (cancelled, discarded) == (moved.cancelled, moved.discarded):
            return
        if await save_moved(shards, run, MovedTasks(cancelled, discarded, moved.version)):
            shards.moved.add(run)
            return
