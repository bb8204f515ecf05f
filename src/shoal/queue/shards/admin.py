"""What people and maintenance do to what shards keep."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import Literal

from msgspec.structs import replace

from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Finding, Queue, SeenSet, StoredEntry, TaskFilter, UrlFailures
from shoal.queue.document_kinds import MOVED_TASKS, PAGE_QUOTA, RECORD_ORDER
from shoal.queue.shards.filler import END, LANE
from shoal.queue.shards.inspect import local_filter
from shoal.queue.shards.numbers import tagged, untagged
from shoal.queue.shards.quota import reopen_at_limit
from shoal.queue.shards.reopen import reopen
from shoal.queue.shards.run_numbers import KEY, is_part
from shoal.queue.shards.shard import LONG_TIMEOUT, Shard
from shoal.queue.shards.shard_set import ShardSet

MAX_GROUPS = 10_000


def _asked(shards: ShardSet, where: TaskFilter) -> list[Shard]:
    return [shards.owner(where.lane)] if where.lane else shards.shards


async def drop(
    shards: ShardSet,
    run: int,
    where: TaskFilter = TaskFilter(),
    *,
    state: Literal["ready", "dead"] = "ready",
    limit: int = 10_000,
) -> int:
    await shards.require(run)
    dropped = 0
    for shard in _asked(shards, where):
        local = await shards.runs.find(shard, run)
        if local and dropped < limit:
            own, left = local_filter(where, run, local), limit - dropped
            dropped += await shard.ask(
                lambda it, local=local, own=own, left=left: _drop(it, local, own, state, left),  # type: ignore[misc]
                LONG_TIMEOUT,
            )
    return dropped


async def _drop(queue: Queue, part: int, where: TaskFilter, state: Literal["ready", "dead"], limit: int) -> int:
    dropped = 0
    for lane in await _dead_lanes(queue, part, where) if state == "dead" else [where.lane]:
        dropped += await queue.drop(part, replace(where, lane=lane), state=state, limit=limit - dropped)
    return dropped


async def _dead_lanes(queue: Queue, part: int, where: TaskFilter) -> list[str]:
    """The lanes to look at one by one, where a dead letter of the queue itself is to be left alone."""
    if where.lane or where.ids or not (await queue.stats(part)).skipped.get(END):
        return [where.lane]
    groups = await queue.dead_groups(part, MAX_GROUPS)
    return sorted({group.lane for group in groups if group.lane != LANE})


async def revive(shards: ShardSet, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
    await shards.require(run)
    revived: dict[int, int] = {}
    for shard in _asked(shards, where):
        local = await shards.runs.find(shard, run)
        left = limit - sum(revived.values())
        if local and left > 0:
            own = local_filter(where, run, local)
            revived[shard.index] = await shard.ask(
                lambda it, local=local, own=own, left=left: _revive(it, local, own, left)  # type: ignore[misc]
            )
    if any(revived.values()):
        if run in shards.limited:
            await reopen_at_limit(shards, run, revived)
        await reopen(shards, run)
    return sum(revived.values())


async def _revive(queue: Queue, part: int, where: TaskFilter, limit: int) -> int:
    revived = 0
    for lane in await _dead_lanes(queue, part, where):
        if revived < limit:
            revived += await queue.revive(part, replace(where, lane=lane), limit=limit - revived)
    return revived


async def purge(shards: ShardSet, *, run: int | None = None, older_than: float | None = None) -> int:
    if run is None:
        before = await shards.home.ask(lambda it: it.runs(limit=10_000))
        await shards.gather(lambda it: it.purge(older_than=older_than), timeout=LONG_TIMEOUT)
        after = {it.id for it in await shards.home.ask(lambda it: it.runs(limit=10_000))}
        gone = sum(not is_part(it) and it.id not in after for it in before)
        await _purge_parts(shards)
        await _remove_documents(shards)
        return gone
    gone = await shards.home.ask(lambda it: it.purge(run=run, older_than=older_than), LONG_TIMEOUT)
    if gone:
        for shard in shards.shards:
            with contextlib.suppress(QueueUnavailable):
                local = await shards.runs.find(shard, run)
                if local:
                    await shard.ask(lambda it, local=local: _purge_part(it, local), LONG_TIMEOUT)  # type: ignore[misc]
        shards.forget_run(run)
        await _remove_documents(shards)
    return gone


async def _purge_part(queue: Queue, part: int) -> None:
    """A part never ends by itself."""
    with contextlib.suppress(UsageError):
        await queue.set_run(part, "cancel")
    await queue.purge(run=part)


async def _purge_parts(shards: ShardSet) -> None:
    """Those of runs that are gone."""
    for shard in shards.shards:
        for part in await shard.hint(lambda it: it.runs(limit=10_000), ()):
            number = part.key.removeprefix(KEY)
            if is_part(part) and number.isdecimal() and await shards.run(int(number), fresh=True) is None:
                shards.runs.forget(int(number))
                await shard.ask(lambda it, part=part: _purge_part(it, part.id), LONG_TIMEOUT)  # type: ignore[misc]


async def _remove_documents(shards: ShardSet) -> None:
    """What was kept about runs that are gone."""
    for kind in (RECORD_ORDER, PAGE_QUOTA, MOVED_TASKS):
        for document in await shards.home.ask(lambda it, kind=kind: it.documents(kind)):  # type: ignore[misc]
            if document.name.isdecimal() and await shards.run(int(document.name), fresh=True) is None:
                shards.record_orders.pop(int(document.name), None)
                await shards.home.ask(
                    lambda it, document=document: it.compare_and_swap(  # type: ignore[misc]
                        document.kind, document.name, None, document.version
                    )
                )


async def diagnose(shards: ShardSet) -> list[Finding]:
    """What each shard says, under its name, and which are away."""
    found = [_about_map(shards)]
    for shard in shards.shards:
        try:
            theirs = await shard.ask(lambda it: it.diagnose(), LONG_TIMEOUT)
        except QueueUnavailable as error:
            found.append(Finding(f"shard {shard.index}", "wrong", str(error), error.hint))
            continue
        found += [
            replace(finding, what=f"{finding.what} of shard {shard.index}", words=f"{shard.name}: {finding.words}")
            for finding in theirs
        ]
    return found


def _about_map(shards: ShardSet) -> Finding:
    count = len(shards.map.shards)
    if shards.map.joining or shards.map.moving:
        return Finding(
            "shards", "warning", f"lanes are being moved to {shards.map.shards[-1]}",
            "if that was cut short, repeat it: shoal shards add",
        )  # fmt: skip
    return Finding("shards", "ok", f"{count} shard{'' if count == 1 else 's'}; home is {shards.home.name}")


# seen-sets, failures and the outbox


async def seen_sets(shards: ShardSet) -> list[SeenSet]:
    sets: dict[str, SeenSet] = {}
    for part in await shards.gather(lambda it: it.seen_sets()):
        for one in part or ():
            known = sets.get(one.name)
            sets[one.name] = one if known is None else _joined(known, one)
    return [sets[name] for name in sorted(sets)]


def _joined(one: SeenSet, other: SeenSet) -> SeenSet:
    return SeenSet(
        one.name,
        one.entries + other.entries,
        one.bytes + other.bytes,
        max(one.seen_for, other.seen_for),
        min(one.created_at, other.created_at),
        max(one.changed_at, other.changed_at),
    )


async def forget_seen(shards: ShardSet, name: str, digests: Sequence[bytes]) -> int:
    return sum([await shard.ask(lambda it: it.forget_seen(name, digests)) for shard in shards.shards])


async def clear_seen(shards: ShardSet, name: str) -> int:
    return sum([await shard.ask(lambda it: it.clear_seen(name), LONG_TIMEOUT) for shard in shards.shards])


async def failures(shards: ShardSet, urls: Sequence[str]) -> list[UrlFailures]:
    parts = [part for part in await shards.gather(lambda it: it.failures(urls)) if part is not None]
    return [max((part[place] for part in parts), key=lambda it: it.last_at) for place in range(len(urls))]


async def forget_failures(shards: ShardSet, urls: Sequence[str] | None = None) -> int:
    forgotten = [await shard.ask(lambda it: it.forget_failures(urls)) for shard in shards.shards]
    return max(forgotten) if urls is not None and len(urls) == 1 else sum(forgotten)


async def outbox(shards: ShardSet, kind: str, *, after: int = 0, limit: int = 1000) -> list[StoredEntry]:
    """Those of all shards, shard by shard: one that is settled later may well show up before the others."""
    first, own = untagged(after)
    found: list[StoredEntry] = []
    for shard in shards.shards:
        since = (own if shard.index <= first else own - 1) if after else 0
        page = await shard.hint(lambda it, since=since: it.outbox(kind, after=max(0, since), limit=limit), ())  # type: ignore[misc]
        for entry in page:
            run = await shards.runs.global_of(shard, entry.run)
            found.append(replace(entry, seq=tagged(entry.seq, shard.index), run=run))
    return sorted(found, key=lambda entry: entry.seq)[:limit]


async def acknowledge(shards: ShardSet, seqs: Collection[int]) -> int:
    by_shard: dict[int, list[int]] = {}
    for seq in seqs:
        index, own = untagged(seq)
        by_shard.setdefault(index, []).append(own)
    return sum(
        [
            await shards.shards[index].ask(lambda it, own=own: it.acknowledge(own))  # type: ignore[misc]
            for index, own in by_shard.items()
            if index < len(shards.shards)
        ]
    )
