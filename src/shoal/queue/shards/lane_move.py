"""LaneMove: a shard is added while the others go on, and gets the lanes that belong to it from then on.

Each step can be repeated, and is, after a crash: a lane is held where it was before anything of it is anywhere else,
so it is never handed out by two shards; what is imported twice is there once; only what the new shard has is dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from shoal.core.lane import INDEFINITELY, LaneState, Pace
from shoal.core.queue_url import MAX_SHARDS
from shoal.core.task import DROPPED, ExportedTask, LaneChange, Task
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.shards.filler import LANE
from shoal.queue.shards.inspect import MOVED
from shoal.queue.shards.moved_tasks import note_moved
from shoal.queue.shards.new_shard import check_empty, check_is_no_shard, check_new_url
from shoal.queue.shards.numbers import first_number, in_run
from shoal.queue.shards.run_numbers import KEY, is_part
from shoal.queue.shards.shard import LONG_TIMEOUT, Shard, gather_all
from shoal.queue.shards.shard_map import shard_of
from shoal.queue.shards.shard_set import MAP_INTERVAL, ShardSet
from shoal.queue.shards.shard_url import shard_name
from shoal.queue.shards.transit import carry_all

if TYPE_CHECKING:
    from shoal.core.run import Run

T = TypeVar("T")

PAGE = 500
AT_ONCE = 16
REST_TIMEOUT = 120.0  # seconds for what is in progress, or on its way from a shard
POLL = 0.2
TRIES = 10
# Of anything else the new shard only has to know that it was there.
MOVED_WHOLE: tuple[Literal["ready", "dead"], ...] = ("ready", "dead")


class MoveReport(msgspec.Struct, frozen=True):
    shard: str
    lanes: int = 0  # that there were
    moved: int = 0  # of these
    tasks: int = 0

    @property
    def share(self) -> float:
        return self.moved / self.lanes if self.lanes else 0.0


async def add_shard(shards: ShardSet, url: str, *, settle_seconds: float = 2 * MAP_INTERVAL) -> MoveReport:
    """Add a shard, and move its lanes there; repeated, go on with it."""
    check_new_url(url)
    await shards.refresh_map()
    name = shard_name(url)
    joining = bool(shards.map.joining)
    if joining and shards.map.shards[-1] != name:
        raise UsageError(
            f"{shards.map.shards[-1]} is being added", hint="finish that first: shoal shards add with its URL"
        )
    if not joining and name != shards.map.shards[-1]:
        await _announce(shards, url, name)
    elif not joining and len(shards.shards) == 1:
        raise UsageError(f"{name} is the home shard", hint="give the URL of another server, database or namespace")
    target = shards.shards[-1]
    report = MoveReport(name)
    # Who has not heard of it yet would not ask it for work, or know what is brought there.
    await asyncio.sleep(settle_seconds)
    for source in shards.shards[:-1]:
        report = await _move_from(shards, source, target, report)
    if shards.map.joining:
        await shards.change_map(replace(shards.map, version=shards.map.version + 1, joining=0, moving=True))
    elif not shards.map.moving:
        await shards.change_map(replace(shards.map, version=shards.map.version + 1, moving=True))
    # What was found meanwhile went where those lanes were before.
    await asyncio.sleep(settle_seconds)
    for source in shards.shards[:-1]:
        report = replace(await _move_from(shards, source, target, report), lanes=report.lanes, moved=report.moved)
    await shards.change_map(replace(shards.map, version=shards.map.version + 1, moving=False))
    return report


async def _announce(shards: ShardSet, url: str, name: str) -> None:
    if name in shards.map.shards:
        raise UsageError(f"{name} is one of the shards already", hint="shoal shards status")
    if len(shards.map.shards) >= MAX_SHARDS:
        raise UsageError(f"there are {MAX_SHARDS} shards, and no more are possible", hint="use larger servers")
    candidate = Shard(len(shards.shards), url, shards.opener)
    try:
        await check_is_no_shard(candidate)
        await check_empty([candidate])
    finally:
        await candidate.close()
    shards.know_url(url)
    changed = replace(shards.map, version=shards.map.version + 1, shards=(*shards.map.shards, name), joining=1)
    await shards.change_map(changed)


async def _lanes(source: Shard) -> AsyncIterator[LaneState]:
    after = ""
    while page := await source.ask(lambda it, after=after: it.lanes(order="name", after=after, limit=PAGE)):  # type: ignore[misc]
        for lane in page:
            if lane.name != LANE:
                yield lane
        after = page[-1].name


async def _move_from(shards: ShardSet, source: Shard, target: Shard, report: MoveReport) -> MoveReport:
    count, leaving = 0, {}
    async for lane in _lanes(source):
        count += 1
        if shard_of(lane.name, target.index + 1) == target.index:
            leaving[lane.name] = lane

    async def leave(lane: LaneState) -> None:
        if lane.reason != MOVED:
            await _copy_lane(target, lane)
        await _hold(source, lane.name)

    await _for_each(leaving.values(), leave)
    await _hold_at_rest(source, leaving)
    tasks = 0
    for part in await source.ask(lambda it: it.runs(limit=10_000)):
        if is_part(part) and part.state in ("running", "paused"):
            tasks += await _move_run(shards, source, target, part, leaving)
    return replace(report, lanes=report.lanes + count, moved=report.moved + len(leaving), tasks=report.tasks + tasks)


async def _hold(source: Shard, lane: str) -> None:
    change = LaneChange(lane, park_for=INDEFINITELY, reason=MOVED)
    await source.ask(lambda it: it.set_lane(change))


async def _copy_lane(target: Shard, lane: LaneState) -> None:
    """What was learnt about a host, and what people have set."""
    change = LaneChange(
        lane.name, spacing=lane.learned or None,
        spacing_override=lane.spacing_override if lane.spacing_override >= 0 else None,
        limit=lane.limit if lane.limit >= 0 else None,
    )  # fmt: skip
    await target.ask(lambda it: it.set_lane(change))
    now = await target.ask(lambda it: it.now())
    if lane.held_until > now:
        seconds = (lane.held_until - now) / 1e6
        held = LaneChange(lane.name, park_for=seconds, reason=lane.reason) if lane.parked else LaneChange(
            lane.name, hold_for=seconds, reason=lane.reason
        )  # fmt: skip
        await target.ask(lambda it: it.set_lane(held))


async def _hold_at_rest(source: Shard, lanes: Collection[str]) -> None:
    """Nothing of these lanes is in progress any more: it is settled, or its lease has ended; and they are held."""
    names = sorted(lanes)
    while True:
        await _until_at_rest(source, names)
        # Again: an answer that came late may have released it.
        await _for_each(names, lambda name: _hold(source, name))
        if not await _in_progress(source, names):  # and what was claimed before it was held again is not at rest
            return


async def _until_at_rest(source: Shard, names: list[str]) -> None:
    waiting = await _in_progress(source, names)
    try:
        # Only this is limited: how long all of it takes is a matter of how many hosts there are.
        async with asyncio.timeout(REST_TIMEOUT):
            while waiting:
                await asyncio.sleep(POLL)
                await source.ask(lambda it: it.reap())
                waiting = await _in_progress(source, waiting)
    except TimeoutError as error:
        raise QueueUnavailable(
            f"{len(waiting):,} hosts of shard {source.name} still have pages in progress, such as {waiting[0]}",
            hint="once they are done, repeat it: shoal shards add",
        ) from error


async def _in_progress(source: Shard, names: list[str]) -> list[str]:
    found = []
    for at in range(0, len(names), PAGE):
        some = names[at : at + PAGE]
        page = await source.ask(lambda it, some=some: it.lanes(names=some, limit=PAGE))  # type: ignore[misc]
        found += [lane.name for lane in page if lane.in_flight]
    return found


async def _for_each(many: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """A few at a time: there may be a million hosts, and each waits for an answer."""
    rest = iter(many)
    while some := list(islice(rest, AT_ONCE)):
        await gather_all(map(work, some))


async def _move_run(shards: ShardSet, source: Shard, target: Shard, part: Run, lanes: Mapping[str, LaneState]) -> int:
    run = int(part.key.removeprefix(KEY))
    about = await shards.require(run)
    there = await shards.runs.ensure(target, run)
    try:
        for tries in range(TRIES):
            await source.ask(lambda it: it.set_run(part.id, "pause"))
            await target.ask(lambda it: it.set_run(there, "pause"))
            await _until_drained(shards, source, part.id)
            try:
                return await _move_tasks(shards, run, source, target, part.id, there, lanes)
            except UsageError:  # somebody who does not know the new map yet has let it go on
                if tries == TRIES - 1:
                    raise
        return 0
    finally:
        if about.state == "running":
            for shard, local in ((source, part.id), (target, there)):
                await shard.hint(lambda it, local=local: it.set_run(local, "resume"), None)  # type: ignore[misc]


async def _until_drained(shards: ShardSet, source: Shard, part: int) -> None:
    """What is on its way from here arrives first; other entries are drained by whoever works."""
    try:
        async with asyncio.timeout(REST_TIMEOUT):
            while (await source.ask(lambda it: it.stats(part))).outbox:
                await carry_all(shards)
                await asyncio.sleep(POLL / 4)
    except TimeoutError as error:
        raise QueueUnavailable(
            f"the outbox of shard {source.name} is not drained", hint="start a worker, and repeat: shoal shards add"
        ) from error


async def _move_tasks(
    shards: ShardSet, run: int, source: Shard, target: Shard, here: int, there: int, lanes: Mapping[str, LaneState]
) -> int:
    paces = {lane.name: Pace(lane.requested, lane.max_in_flight) for lane in lanes.values()}
    after = moved = gone = copies = 0
    while page := await source.ask(lambda it, after=after: it.export_run(here, after=after, limit=PAGE), LONG_TIMEOUT):  # type: ignore[misc]
        after = page[-1].number
        # What keeps the source's own numbers apart is its own.
        page = [task for task in page if task.number != first_number(source.index)]
        leaving = [task for task in page if task.task.lane in lanes or not task.task.lane]
        for task in leaving:
            if task.state in MOVED_WHOLE:
                moved += 1
            elif task.state == "cancelled" and task.cause == DROPPED and task.task.lane:
                gone += 1
            else:
                copies += 1
        bare = [task if task.state in MOVED_WHOLE else _identity(task) for task in leaving]
        if bare:
            await target.ask(lambda it, bare=bare: it.import_run(there, bare, paces=paces), LONG_TIMEOUT)  # type: ignore[misc]
        whole = tuple(in_run(task.number, here) for task in leaving if task.state in MOVED_WHOLE)
        if whole:
            await source.ask(lambda it, whole=whole: _drop_all(it, here, whole), LONG_TIMEOUT)  # type: ignore[misc]
    if moved or gone or copies:
        await note_moved(shards, run, source.index, target.index, moved + gone, copies)
    return moved


def _identity(task: ExportedTask) -> ExportedTask:
    return ExportedTask(task.number, Task("", "", task.task.digest), "seen", aliases=task.aliases)


async def _drop_all(queue: Queue, part: int, tasks: tuple[int, ...]) -> None:
    """By their numbers: what has come into their lanes since they were read is on no other shard yet."""
    for state in MOVED_WHOLE:  # what was ready may be dead by now: its time to live has ended
        while await queue.drop(part, TaskFilter(ids=tasks), state=state):
            continue
