"""Settle over shards: each outcome where its lease is from, and its links where they belong."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from shoal.core.lane import Pace
from shoal.core.run import run_of
from shoal.core.task import LaneChange, Outcome, Task, Verdict
from shoal.errors import QueueUnavailable
from shoal.queue.counter_totals import counter_totals
from shoal.queue.outbox_limits import check_outbox
from shoal.queue.shards.numbers import in_run, untagged
from shoal.queue.shards.quota import end_at_limit
from shoal.queue.shards.shard import Shard, gather_all
from shoal.queue.shards.shard_set import ShardSet
from shoal.queue.shards.transit import add_links, carry_over, entries_for, localized, split_links
from shoal.queue.shards.upkeep import look

SETTLE_TIMEOUT = 5.0


async def settle(
    shards: ShardSet, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
) -> list[Verdict]:
    check_outbox(outcomes)
    counter_totals(outcomes)
    await look(shards)
    places: dict[int, list[int]] = defaultdict(list)
    for place, outcome in enumerate(outcomes):
        places[untagged(outcome.lease)[0]].append(place)
    verdicts: list[Verdict] = ["stale"] * len(outcomes)

    async def settle_on(index: int) -> None:
        some = [outcomes[place] for place in places[index]]
        said = await _settle_on(shards, shards.shards[index], some, paces or {})
        for place, verdict in zip(places[index], said, strict=True):
            verdicts[place] = verdict

    await gather_all(settle_on(index) for index in places if index < len(shards.shards))
    settled = zip(outcomes, verdicts, strict=True)
    await end_at_limit(shards, {run_of(it.task) for it, said in settled if said == "ok" and it.result != "part"})
    return verdicts


async def _settle_on(
    shards: ShardSet, shard: Shard, outcomes: Sequence[Outcome], paces: Mapping[str, Pace]
) -> list[Verdict]:
    """What the shard says; an outcome that it cannot be told is to be kept by whoever has it."""
    targets: set[int] = set()
    lanes: list[list[LaneChange]] = []
    try:
        runs = {run: await shards.runs.find(shard, run) for run in {run_of(it.task) for it in outcomes}}
        own: list[Outcome] = []
        for outcome in outcomes:
            others = await _prepare(shards, shard, outcome, runs[run_of(outcome.task)], paces, own)
            targets |= others
            lanes.append([change for change in outcome.lanes if shards.owner(change.lane) is not shard])
        verdicts = await shard.ask(lambda it: it.settle(own, paces), SETTLE_TIMEOUT)
    except QueueUnavailable:
        if len(shards.shards) == len(shards.away):
            raise
        return ["away"] * len(outcomes)
    for outcome in outcomes if shards.held_links else ():
        if outcome.result != "part":
            shards.held_links.pop((outcome.task, outcome.lease), None)
    for changes, verdict in zip(lanes, verdicts, strict=True):
        for change in changes if verdict == "ok" else ():
            await shards.owner(change.lane).hint(lambda it, change=change: it.set_lane(change), None)  # type: ignore[misc]
    if "ok" in verdicts:
        for target in targets:
            try:
                await carry_over(shards, shard, target, own=True)
            except QueueUnavailable:
                continue  # upkeep goes on with it
    return verdicts


async def _prepare(
    shards: ShardSet, shard: Shard, outcome: Outcome, local: int, paces: Mapping[str, Pace], own: list[Outcome]
) -> set[int]:
    """Append the outcome as its shard is told it; says which shards its links are for."""
    mine, others = split_links(shards, shard, outcome, paces)
    entries = outcome.outbox
    held = shards.held_links.get((outcome.task, outcome.lease), {}) if shards.held_links else {}
    if outcome.result == "part":
        await _send_part(shards, outcome, others, held, paces)
        others = {}
    elif outcome.result == "done":
        for target, tasks in held.items():
            others[target] = [*tasks, *others.get(target, ())]
        entries += tuple(entries_for(shards, outcome, others, paces))
    own.append(
        replace(
            outcome,
            task=in_run(outcome.task, local),
            lease=untagged(outcome.lease)[1],
            found=tuple(localized(mine, run_of(outcome.task), local)),
            outbox=entries,
            lanes=tuple(change for change in outcome.lanes if shards.owner(change.lane) is shard),
        )
    )
    return set(others)


async def _send_part(
    shards: ShardSet,
    outcome: Outcome,
    others: Mapping[int, Sequence[Task]],
    held: Mapping[int, Sequence[Task]],
    paces: Mapping[str, Pace],
) -> None:
    """Links that go ahead of their page's outcome: at once, or with that outcome where a shard is away."""
    waiting: dict[int, list[Task]] = {target: list(tasks) for target, tasks in held.items()}
    for target, tasks in others.items():
        try:
            await add_links(shards, run_of(outcome.task), tasks, paces)
        except QueueUnavailable:
            known = {task.digest for task in waiting.get(target, ())}  # it may be told again
            waiting.setdefault(target, []).extend(task for task in tasks if task.digest not in known)
    if waiting:
        shards.held_links[outcome.task, outcome.lease] = waiting
