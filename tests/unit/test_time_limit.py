"""A run that takes longer than it may is ended by the fleet, and it is known why."""

from __future__ import annotations

from typing import Any

import pytest
from fake_clock import FakeClock

from shoal.config.load import Settings
from shoal.control.maintenance import Maintenance
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, Outcome
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.time_limit import remove_orphaned_marks, time_limit, was_ended_by_time_limit
from shoal.sources.start_task import start_tasks
from shoal.view.documents import status_document
from shoal.view.status import gather_status


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


async def started(queue: SqliteQueue, limit: float = 60.0) -> Run:
    run = await queue.start_run(NewRun("s", "k", "r", {"mode": "distributed", "time_limit": limit}))
    tasks, _ = start_tasks(f"http://h.test/{n}" for n in range(3))
    await queue.add(run.id, tasks, {"h.test": UNLIMITED_PACE})
    return run


async def work(queue: SqliteQueue, pages: int = 1) -> None:
    claim = await queue.claim("w", pages)
    tried = Attempt(at=await queue.now(), worker="w")
    await queue.settle([Outcome(task.id, task.lease, "done", attempt=tried) for task in claim.tasks])


async def state(queue: SqliteQueue) -> str:
    """After a look by somebody who has only just begun to look: nothing depends on who looked before."""
    await Maintenance(queue).finish_empty_runs()
    return (await queue.runs(name="r"))[0].state


async def test_a_run_is_ended_when_it_takes_longer_than_it_may_whoever_looks(
    queue: SqliteQueue, clock: FakeClock
) -> None:
    await started(queue)
    clock.step(3600.0)
    assert await state(queue) == "running"  # nobody has begun: waiting for a worker takes no time of it
    await work(queue)
    clock.step(59.0)
    assert await state(queue) == "running"
    clock.step(2.0)
    assert await state(queue) == "cancelled"
    (run,) = await queue.runs(name="r")
    assert await was_ended_by_time_limit(queue, run)
    found = await gather_status(queue, Settings(), run)
    assert (found.over_time, status_document(found)["cause"]) == (60.0, "timeout")
    assert (found.stats.done, found.stats.cancelled) == (1, 2)


async def test_a_run_that_was_done_in_time_is_finished(queue: SqliteQueue, clock: FakeClock) -> None:
    await started(queue)
    await work(queue, 3)
    clock.step(3600.0)
    assert await state(queue) == "finished"


async def test_a_run_without_a_limit_takes_as_long_as_it_takes(queue: SqliteQueue, clock: FakeClock) -> None:
    await started(queue, 0.0)
    await work(queue)
    clock.step(86_400.0)
    assert await state(queue) == "running"


async def test_a_run_that_somebody_cancelled_in_time_was_not_too_slow(queue: SqliteQueue, clock: FakeClock) -> None:
    run = await started(queue)
    await work(queue)
    clock.step(10.0)
    run = await queue.set_run(run.id, "cancel")
    assert not await was_ended_by_time_limit(queue, run)
    assert (await gather_status(queue, Settings(), run)).over_time == 0.0


async def test_whoever_dies_after_the_mark_leaves_the_rest_to_the_next(queue: SqliteQueue, clock: FakeClock) -> None:
    run = await started(queue)
    await work(queue)
    clock.step(61.0)
    assert await queue.compare_and_swap("over-time", run.name, str(run.created_at), 0)
    clock.step(1.0)
    assert await state(queue) == "cancelled"


async def test_a_run_that_was_set_going_again_is_left_alone(queue: SqliteQueue, clock: FakeClock) -> None:
    run = await started(queue)
    await work(queue)
    clock.step(61.0)
    assert await queue.compare_and_swap("over-time", run.name, str(run.created_at), 0)
    clock.step(1.0)
    await queue.set_run(run.id, "pause")
    await queue.set_run(run.id, "resume")
    assert await state(queue) == "running"


async def test_a_run_that_was_removed_leaves_no_mark(queue: SqliteQueue, clock: FakeClock) -> None:
    run = await started(queue)
    await work(queue)
    clock.step(61.0)
    assert await state(queue) == "cancelled"
    await remove_orphaned_marks(queue)
    assert len(await queue.documents("over-time")) == 1
    await queue.purge(run=run.id)
    await remove_orphaned_marks(queue)
    assert await queue.documents("over-time") == []


@pytest.mark.parametrize("given", ["soon", -1, None, True, float("inf"), float("nan"), [3]])
def test_a_limit_that_is_none_is_none(given: Any) -> None:
    assert time_limit(Run(1, "r", "s", "k", "running", 0, 0, spec={"time_limit": given})) == 0.0
