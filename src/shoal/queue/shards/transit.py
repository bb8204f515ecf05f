"""Links in transit: found on one shard, of a host that another one has.

They are written into the outbox of the shard that found them, in the same step as the outcome of their page, and stay
there until the other shard has them. Adding a task again is harmless, so any number may carry them over.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import OutboxEntry, Outcome, Task
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import StoredEntry
from shoal.queue.shards.numbers import in_run
from shoal.queue.shards.shard import SHORT_TIMEOUT, Shard
from shoal.queue.shards.shard_set import ShardSet

log = logging.getLogger("shoal.queue")

LINKS_PER_ENTRY = 64
MAX_ENTRY_BYTES = 500_000
PAGE = 200  # entries that are carried over at once


class Links(msgspec.Struct, frozen=True, omit_defaults=True):
    """Tasks with what their run asks of their lanes; their parents have the numbers that all know."""

    tasks: tuple[Task, ...]
    paces: dict[str, Pace] = {}


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Links).decode


def kind_for(target: int) -> str:
    """The kind of entries on the way to a shard: each has its own, so that none waits for another."""
    return f"shard.{target}"


def is_transit(kind: str) -> bool:
    return kind.startswith("shard.")


def split_links(
    shards: ShardSet, source: Shard, outcome: Outcome, paces: Mapping[str, Pace]
) -> tuple[list[Task], dict[int, list[Task]]]:
    """The found tasks that stay on this shard, and those for others."""
    mine: list[Task] = []
    others: dict[int, list[Task]] = defaultdict(list)
    for task in outcome.found:
        owner = shards.owner(task.lane)
        (mine if owner is source else others[owner.index]).append(task)
    return mine, others


def entries_for(
    shards: ShardSet, outcome: Outcome, others: Mapping[int, Sequence[Task]], paces: Mapping[str, Pace]
) -> Iterator[OutboxEntry]:
    """What an outcome leaves in the outbox of its shard; the key says who sent it, what it is of, and how many."""
    name = f"{shards.token}.{outcome.task:x}.{outcome.lease:x}"
    for target, tasks in others.items():
        for number, (count, data) in enumerate(_packed(tasks, paces)):
            yield OutboxEntry(kind_for(target), f"{name}.{number}.{count}", data)


def _packed(
    tasks: Sequence[Task], paces: Mapping[str, Pace], most: int = LINKS_PER_ENTRY
) -> Iterator[tuple[int, bytes]]:
    for start in range(0, len(tasks), most):
        some = tuple(tasks[start : start + most])
        data = _encode(Links(some, {lane: paces[lane] for lane in {task.lane for task in some} if lane in paces}))
        if len(data) > MAX_ENTRY_BYTES and len(some) > 1:
            yield from _packed(some, paces, max(1, len(some) // 2))
        else:
            yield len(some), data


def links_in(entry: StoredEntry) -> int:
    """How many links an entry has, as its key says."""
    count = entry.key.rpartition(".")[2]
    return int(count) if count.isdecimal() else 1


async def carry_over(shards: ShardSet, source: Shard, target: int, *, own: bool = False) -> int:
    """Bring what waits on a shard for another one there; says how many entries are done with.

    own: only what this process has sent; what others have sent they carry over themselves, unless they died.
    """
    if shards.shards[target].is_away:
        return 0
    page = await source.ask(lambda it: it.outbox(kind_for(target), limit=PAGE), SHORT_TIMEOUT)
    page = [entry for entry in page if not own or entry.key.startswith(shards.token)]
    done: list[int] = []
    by_run: dict[int, list[StoredEntry]] = defaultdict(list)
    for entry in page:
        by_run[entry.run].append(entry)
    for local, entries in by_run.items():
        done += await _deliver(shards, await shards.runs.global_of(source, local), entries)
    return await source.ask(lambda it: it.acknowledge(done), SHORT_TIMEOUT) if done else 0


async def _deliver(shards: ShardSet, run: int, entries: Sequence[StoredEntry]) -> list[int]:
    """The entries whose links have arrived, or never could."""
    tasks: list[Task] = []
    paces: dict[str, Pace] = {}
    done: list[int] = []
    for entry in entries:
        try:
            links = _decode(entry.data)
        except msgspec.MsgspecError as error:
            log.warning("links_not_understood", extra={"run": run, "key": entry.key[:200], "error": str(error)[:300]})
        else:
            tasks += links.tasks
            paces |= links.paces
        done.append(entry.seq)
    try:
        await add_links(shards, run, tasks, paces)
    except QueueUnavailable:
        return []
    return done


async def add_links(shards: ShardSet, run: int, tasks: Iterable[Task], paces: Mapping[str, Pace]) -> None:
    """Add found tasks where they belong now, whatever the map was when they were sent."""
    by_shard: dict[int, list[Task]] = defaultdict(list)
    for task in tasks:
        by_shard[shards.owner(task.lane).index].append(task)
    for index, some in by_shard.items():
        await _add_on(shards, shards.shards[index], run, some, paces)


async def _add_on(shards: ShardSet, shard: Shard, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace]) -> None:
    local = await shards.runs.ensure(shard, run)
    mine = localized(tasks, run, local)
    asked = {lane: paces[lane] for lane in {task.lane for task in mine} if lane in paces}
    try:
        await shard.ask(lambda it: it.add(local, mine, asked), SHORT_TIMEOUT)
    except UsageError as error:
        # It needs what the run cannot ask for any more, as a link on the same shard may, which is skipped then.
        if len(tasks) > 1:
            for task in tasks:
                await _add_on(shards, shard, run, [task], paces)
            return
        log.warning("link_refused", extra={"run": run, "url": tasks[0].url[:200], "error": str(error)[:300]})


def localized(tasks: Iterable[Task], run: int, local: int) -> list[Task]:
    """Tasks whose parents have the numbers of a shard's part of the run."""
    return [
        task if task.parent is None or run_of(task.parent) != run else replace(task, parent=in_run(task.parent, local))
        for task in tasks
    ]


async def carry_all(shards: ShardSet) -> int:
    """Carry over what is on the way between any two shards, whoever sent it."""
    done = 0
    for source in shards.shards:
        for target in shards.shards:
            if source is not target and not source.is_away and not target.is_away:
                done += await carry_over(shards, source, target.index)
    return done


async def count_links(shards: ShardSet, source: Shard, local: int, entries: int) -> int:
    """Links of a run that are on their way from a shard, of which so many entries wait; exact where these are few."""
    links = listed = 0
    for target in shards.shards:
        if target is not source:
            page = await source.ask(lambda it, target=target: it.outbox(kind_for(target.index), limit=PAGE))  # type: ignore[misc]
            links += sum(links_in(entry) for entry in page if entry.run == local)
            listed += len(page)
    return links if listed < PAGE else max(links, entries)
