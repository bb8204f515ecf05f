"""Looking over shards: each is asked, and the answers are put together; one that is away is not passed over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from msgspec.structs import replace

from shoal.core.lane import LaneState
from shoal.core.run import TASK_BITS, run_of
from shoal.core.task import DROPPED, State
from shoal.queue.base import DeadLetterGroup, PageState, Queue, TaskFilter, TaskView
from shoal.queue.page_state_limits import check_page_states
from shoal.queue.shards.filler import END, LANE
from shoal.queue.shards.numbers import born_on, first_number, in_run, of_run, tagged
from shoal.queue.shards.shard import Shard
from shoal.queue.shards.shard_set import ShardSet

MOVED = "moved to another shard"  # the reason for which a lane is held where it was before
OWN_TASKS = 3  # that a page may have of the queue itself, which nobody is shown
_NUMBER = (1 << TASK_BITS) - 1


def local_filter(where: TaskFilter, run: int, local: int) -> TaskFilter:
    return replace(where, ids=tuple(of_run(where.ids, run, local))) if where.ids else where


async def list_tasks(
    shards: ShardSet,
    run: int,
    *,
    state: State | None = None,
    where: TaskFilter = TaskFilter(),
    after: int = 0,
    upto: int = 0,
    limit: int = 100,
) -> list[TaskView]:
    async def ask(queue: Queue, local: int) -> list[TaskView]:
        index = next(shard.index for shard in shards.shards if shard.queue is queue)
        # Unless something was moved there a shard has its own numbers; below these some queues would look for long.
        least = 0 if run in shards.moved else first_number(index) - 1
        return await queue.list_tasks(
            local,
            state=state,
            where=local_filter(where, run, local),
            after=max(in_run(after, local) if after else 0, in_run(least, local)),
            upto=in_run(upto, local) if upto else 0,
            limit=limit + OWN_TASKS,
        )

    parts = await shards.gather_runs(run, ask)
    views = [
        view_for_all(run, shard, view) for shard, _, part in parts for view in part if _is_here(shards, shard, view)
    ]
    return sorted(views, key=lambda view: view.id)[:limit]


def view_for_all(run: int, shard: Shard, view: TaskView) -> TaskView:
    parent = view.parent
    if parent is not None and run_of(parent) == view.run:
        parent = in_run(parent, run)
    return replace(view, id=in_run(view.id, run), run=run, parent=parent, lease=tagged(view.lease, shard.index))


def _is_here(shards: ShardSet, shard: Shard, view: TaskView) -> bool:
    """Not where a task is only known by its number, or was before it was moved."""
    if view.lane == LANE or view.id & _NUMBER == first_number(shard.index):
        return False
    return not (view.cause == DROPPED and view.state == "cancelled" and shards.owner(view.lane) is not shard)


async def find(shards: ShardSet, run: int, digest: bytes) -> TaskView | None:
    parts = await shards.gather_runs(run, lambda it, local: it.find(local, digest))
    views = [(shard, part) for shard, _, part in parts if part is not None]
    if not views:
        return None
    # Of one that was moved, the shard that it came from has no more than a trace.
    shard, view = max(views, key=lambda it: (bool(it[1].url), _is_here(shards, it[0], it[1])))
    return view_for_all(run, shard, view)


async def ids(shards: ShardSet, run: int, digests: Sequence[bytes]) -> list[int]:
    parts = await shards.gather_runs(run, lambda it, local: it.ids(local, digests))
    found = [0] * len(digests)
    for _, _, part in parts:
        found = [known or (in_run(task, run) if task else 0) for known, task in zip(found, part, strict=True)]
    return found


async def dead_groups(shards: ShardSet, run: int, limit: int = 100) -> list[DeadLetterGroup]:
    parts = await shards.gather_runs(run, lambda it, local: it.dead_groups(local, limit + 1))
    groups: dict[tuple[str, str], DeadLetterGroup] = {}
    for group in (group for _, _, part in parts for group in part if group.lane != LANE):
        known = groups.get((group.lane, group.cause))
        groups[group.lane, group.cause] = (
            group
            if known is None
            else replace(
                known,
                count=known.count + group.count,
                first_at=min(known.first_at, group.first_at),
                last_at=max(known.last_at, group.last_at),
            )
        )
    return sorted(groups.values(), key=lambda group: -group.count)[:limit]


async def skipped(shards: ShardSet, run: int, limit: int = 100) -> list[tuple[str, str]]:
    parts = await shards.gather_runs(run, lambda it, local: it.skipped(local, limit + OWN_TASKS), whole=False)
    return [sample for _, _, part in parts for sample in part if sample[0] != END][:limit]


async def lanes(
    shards: ShardSet,
    *,
    run: int | None = None,
    limit: int = 100,
    order: Literal["ready", "name"] = "ready",
    after: str = "",
    like: str = "",
    only: Literal["", "parked", "held", "overridden"] = "",
    names: Collection[str] = (),
) -> list[LaneState]:
    """Those of the shards that answer: `Stats.away` says which do not."""

    async def ask(queue: Queue, local: int | None) -> list[LaneState]:
        return await queue.lanes(
            run=local, limit=limit + 1, order=order, after=after, like=like, only=only, names=names
        )

    if run is None:
        parts = await shards.gather(lambda it: ask(it, None))
    else:
        parts = [part for _, _, part in await shards.gather_runs(run, ask, whole=False)]
    found = [lane for part in parts for lane in part or () if lane.reason != MOVED and lane.name != LANE]
    if order == "name":
        return sorted(found, key=lambda lane: lane.name.encode())[:limit]
    return sorted(found, key=lambda lane: -lane.ready)[:limit]


async def save_page_states(shards: ShardSet, run: int, states: Sequence[PageState]) -> None:
    """Where the task got its number: there they stay, also if it is moved."""
    check_page_states(run, states)
    by_shard: dict[int, list[PageState]] = {}
    for state in states:
        by_shard.setdefault(min(born_on(state.task), len(shards.shards) - 1), []).append(state)
    for index, some in by_shard.items():
        shard = shards.shards[index]
        local = await shards.runs.find(shard, run)
        if local:
            own = [replace(state, task=in_run(state.task, local)) for state in some]
            await shard.ask(lambda it, local=local, own=own: it.save_page_states(local, own))  # type: ignore[misc]


async def page_states(
    shards: ShardSet, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = (), whole: bool = False
) -> list[PageState]:
    async def ask(queue: Queue, local: int) -> list[PageState]:
        own = of_run(tasks, run, local)
        index = next(shard.index for shard in shards.shards if shard.queue is queue)
        # A shard has those of tasks that got their numbers there; below that some queues would look for long.
        start = max(in_run(after, local) if after else 0, in_run(first_number(index) - 1, local))
        return await queue.page_states(local, after=0 if own else start, limit=limit, tasks=own, whole=whole)

    parts = await shards.gather_runs(run, ask)
    found = [replace(state, task=in_run(state.task, run)) for _, _, part in parts for state in part]
    return sorted((it for it in found if it.task > after), key=lambda state: state.task)[:limit]
