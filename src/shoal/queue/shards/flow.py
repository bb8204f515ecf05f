"""The way of tasks over shards: in, by their lanes, and under a lease, which says of which shard it is."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from shoal.core.lane import Pace, Slot
from shoal.core.run import run_of
from shoal.core.task import Admission, Claim, LaneChange, LeasedTask, Task
from shoal.errors import QueueUnavailable
from shoal.queue.base import LEASE_SECONDS, ExtendResult, PushResult, ReapResult
from shoal.queue.pushed import check_push
from shoal.queue.shards import quota, upkeep
from shoal.queue.shards.numbers import in_run, tagged, untagged
from shoal.queue.shards.shard import SHORT_TIMEOUT, Shard, gather_all
from shoal.queue.shards.shard_set import ShardSet
from shoal.queue.shards.transit import localized

REJECTED: Literal["rejected"] = "rejected"


def by_owner(shards: ShardSet, tasks: Sequence[Task]) -> dict[int, list[int]]:
    """The places of tasks in a list, by the shard of their lane."""
    places: dict[int, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        places[shards.owner(task.lane).index].append(place)
    return places


def own_paces(tasks: Sequence[Task], paces: Mapping[str, Pace] | None) -> dict[str, Pace] | None:
    return {lane: paces[lane] for lane in {task.lane for task in tasks} if lane in paces} if paces else None


async def add(
    shards: ShardSet, run: int, tasks: Sequence[Task], paces: Mapping[str, Pace] | None = None
) -> list[Admission]:
    await upkeep.look(shards)
    if not await takes_work(shards, run):
        return ["rejected"] * len(tasks)
    places = by_owner(shards, tasks)

    async def add_on(index: int) -> list[Admission]:
        shard, some = shards.shards[index], [tasks[place] for place in places[index]]
        local = await shards.runs.ensure(shard, run)
        return await shard.ask(lambda it: it.add(local, localized(some, run, local), own_paces(some, paces)))

    answers: list[Admission] = ["rejected"] * len(tasks)
    for index, answer in zip(places, await gather_all(add_on(index) for index in places), strict=True):
        for place, said in zip(places[index], answer, strict=True):
            answers[place] = said
    return answers


async def takes_work(shards: ShardSet, run: int) -> bool:
    return (await shards.require(run)).state in ("running", "paused")


async def leased_for_all(shards: ShardSet, shard: Shard, claim: Claim) -> list[LeasedTask]:
    """The tasks of a shard's claim with the numbers that all know."""
    tasks: list[LeasedTask] = []
    for task in claim.tasks:
        run = await shards.runs.global_of(shard, task.run)
        parent = task.parent
        if parent is not None and run_of(parent) == task.run:
            parent = in_run(parent, run)
        lease = tagged(task.lease, shard.index)
        tasks.append(replace(task, id=in_run(task.id, run), run=run, lease=lease, parent=parent))
    return tasks


async def push(
    shards: ShardSet,
    run: int,
    tasks: Sequence[Task],
    worker: str,
    paces: Mapping[str, Pace] | None = None,
    *,
    lease: float = LEASE_SECONDS,
    capabilities: Collection[str] = (),
    request_id: str = "",
) -> PushResult:
    check_push(tasks, capabilities)
    await upkeep.look(shards)
    if not await takes_work(shards, run):
        return PushResult((REJECTED,) * len(tasks))
    places = by_owner(shards, tasks)
    if run in shards.limited:
        await _make_room(shards, run, tasks, places)

    async def push_on(index: int) -> PushResult:
        shard, some = shards.shards[index], [tasks[place] for place in places[index]]
        local = await shards.runs.ensure(shard, run)
        return await shard.ask(
            lambda it: it.push(
                local,
                localized(some, run, local),
                worker,
                own_paces(some, paces),
                lease=lease,
                capabilities=capabilities,
                request_id=request_id,
            )
        )

    answers: list[Admission | str] = ["rejected"] * len(tasks)
    leased: list[LeasedTask] = []
    results = await gather_all(push_on(index) for index in places)
    for index, result in zip(places, results, strict=True):
        for place, said in zip(places[index], result.answers, strict=True):
            answers[place] = said
        leased += await leased_for_all(shards, shards.shards[index], result.claim)
    leased.sort(key=lambda task: task.start_in)
    return PushResult(tuple(answers), Claim(leased[0].lease if leased else 0, tuple(leased)))  # type: ignore[arg-type]


async def _make_room(shards: ShardSet, run: int, tasks: Sequence[Task], places: Mapping[int, Sequence[int]]) -> None:
    """What is pushed is leased as far as its shard has pages: the first of each may have to ask for them."""
    for index in places:
        await shards.runs.ensure(shards.shards[index], run)
    await quota.share_pages(shards, [run], {index: len(some) for index, some in places.items()})


async def reserve(shards: ShardSet, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
    return await shards.owner(lane).ask(lambda it: it.reserve(lane, pace, within=within), SHORT_TIMEOUT)


async def set_lane(shards: ShardSet, change: LaneChange) -> None:
    await shards.owner(change.lane).ask(lambda it: it.set_lane(change))


async def extend(
    shards: ShardSet, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE_SECONDS
) -> ExtendResult:
    """A shard that is away confirms nothing: its leases are lost for whoever holds them, as far as that is known."""
    await upkeep.look(shards)
    by_shard: dict[int, dict[int, Collection[int]]] = defaultdict(dict)
    lost: set[int] = set()
    cancelled: set[int] = set()
    for number, started in leases.items():
        index, own = untagged(number)
        if index < len(shards.shards):
            by_shard[index][own] = started
        else:
            lost.add(number)

    async def extend_on(index: int) -> None:
        shard = shards.shards[index]
        runs = {run_of(task) for started in by_shard[index].values() for task in started}
        locals_ = {run: await shards.runs.find(shard, run) for run in runs}
        own = {
            number: [in_run(task, locals_[run_of(task)]) for task in started]
            for number, started in by_shard[index].items()
        }
        answer = await shard.ask(lambda it: it.extend(worker, own, lease=lease), SHORT_TIMEOUT)
        lost.update(tagged(number, index) for number in answer.lost)
        for task in answer.cancelled:
            cancelled.add(in_run(task, await shards.runs.global_of(shard, run_of(task))))

    answers = await asyncio.gather(*map(extend_on, by_shard), return_exceptions=True)
    failures = [answer for answer in answers if isinstance(answer, BaseException)]
    for failure in failures:
        if not isinstance(failure, QueueUnavailable):
            raise failure
    if failures and len(failures) == len(by_shard):
        raise failures[0]
    for index, answer in zip(by_shard, answers, strict=True):
        if isinstance(answer, QueueUnavailable):
            upkeep.note_unconfirmed(shards, [tagged(own, index) for own in by_shard[index]], lease, lost)
        else:
            upkeep.note_confirmed(shards, [tagged(own, index) for own in by_shard[index]])
    return ExtendResult(frozenset(lost), frozenset(cancelled))


async def reap(shards: ShardSet, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
    """On every shard, and what keeps the shards together besides."""

    async def reap_on(shard: Shard) -> ReapResult | None:
        dead: dict[str, list[int]] = {}
        try:
            for worker, executing in (dead_workers or {}).items():
                locals_ = {run: await shards.runs.find(shard, run) for run in {run_of(task) for task in executing}}
                dead[worker] = [in_run(task, locals_[run_of(task)]) for task in executing]
            return await shard.ask(lambda it: it.reap(dead))
        except QueueUnavailable:
            return None

    answers = [answer for answer in await gather_all(map(reap_on, shards.shards)) if answer is not None]
    await upkeep.keep_together(shards)
    return ReapResult(*(sum(getattr(it, name) for it in answers) for name in ("returned", "dead", "expired")))


async def wait(shards: ShardSet, seconds: float) -> None:
    """Whoever has something first ends it."""

    async def wait_on(shard: Shard) -> None:
        try:
            await shard.ask(lambda it: it.wait(seconds), seconds + SHORT_TIMEOUT)
        except QueueUnavailable:
            await asyncio.sleep(seconds)

    waiting = [asyncio.create_task(wait_on(shard)) for shard in shards.shards]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()
        for task in waiting:
            with contextlib.suppress(asyncio.CancelledError):
                await task
