"""Daily runs: where typed tasks live, started when needed, one per type and UTC day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import run_of
from shoal.core.typed_task import Task
from shoal.errors import QueueRefused
from shoal.queue.daily_runs import DailyRuns, list_daily_runs
from shoal.queue.sqlite import SqliteQueue

DAY = 86_400_000_000


class Shifted(SqliteQueue):
    """A queue whose clock people see is moved by some days."""

    days = 0

    async def now(self) -> int:
        return await super().now() + self.days * DAY


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Shifted]:
    queue = await Shifted.open(str(tmp_path / "q.db"))
    yield queue
    await queue.close()


async def add(daily_runs: DailyRuns, *keys: str, type: str = "t") -> list[int]:
    tasks = [Task(type=type, key=key or None) for key in keys]
    return await daily_runs.add(
        type, [task.to_queue_task() for task in tasks], {}, keyed=[bool(task.key) for task in tasks]
    )


async def test_everybody_uses_the_same_run_of_the_day(queue: Shifted) -> None:
    one, two = await add(DailyRuns(queue), "a"), await add(DailyRuns(queue), "b")
    assert run_of(one[0]) == run_of(two[0])
    (run,) = await list_daily_runs(queue, "t")
    assert run.scraper == "task:t"
    assert run.key.startswith("task:t/20")
    assert run.name.startswith(run.key[7:].replace("-", "") + "_t_")


async def test_types_have_runs_of_their_own(queue: Shifted) -> None:
    daily_runs = DailyRuns(queue)
    await add(daily_runs, "a")
    await add(daily_runs, "a", type="other")
    assert [run.scraper for run in await list_daily_runs(queue)] == ["task:t", "task:other"]
    assert [run.scraper for run in await list_daily_runs(queue, "other")] == ["task:other"]


async def test_known_keys_give_the_same_id(queue: Shifted) -> None:
    daily_runs = DailyRuns(queue)
    first = await add(daily_runs, "a", "b")
    assert await add(daily_runs, "b", "c", "a", "b") == [first[1], first[1] + 1, first[0], first[1]]


async def test_tasks_without_keys_are_all_added(queue: Shifted) -> None:
    assert len(set(await add(DailyRuns(queue), "", "", ""))) == 3


async def test_new_day_has_a_new_run(queue: Shifted) -> None:
    first = await add(DailyRuns(queue), "")
    queue.days = 1
    assert run_of((await add(DailyRuns(queue), ""))[0]) != run_of(first[0])


async def test_key_is_known_on_the_next_day_while_the_day_before_has_open_work(queue: Shifted) -> None:
    first = await add(DailyRuns(queue), "a", "")
    queue.days = 1
    second = await add(DailyRuns(queue), "b", "a", "")
    assert second[1] == first[0]
    assert run_of(second[0]) == run_of(second[2]) != run_of(first[0])


async def test_key_is_new_on_the_next_day_once_the_day_before_is_finished(queue: Shifted) -> None:
    first = await add(DailyRuns(queue), "a")
    await queue.set_run(run_of(first[0]), "cancel")
    queue.days = 1
    assert run_of((await add(DailyRuns(queue), "a"))[0]) != run_of(first[0])


async def test_run_that_was_ended_under_our_hands_is_begun_again(queue: Shifted) -> None:
    daily_runs = DailyRuns(queue)
    first = await add(daily_runs, "a")
    await queue.set_run(run_of(first[0]), "cancel")
    second = await add(daily_runs, "a")
    assert run_of(second[0]) != run_of(first[0])
    assert (await queue.stats(run_of(second[0]))).ready == 1


async def test_machine_that_slept_through_midnight_asks_for_the_day_again(queue: Shifted) -> None:
    daily_runs = DailyRuns(queue)
    first = await add(daily_runs, "a")
    await queue.set_run(run_of(first[0]), "cancel")
    queue.days = 1
    (second,) = await add(daily_runs, "b")
    (run,) = await queue.runs(states=("running",))
    assert run.id == run_of(second)
    tomorrow = datetime.fromtimestamp(await queue.now() / 1e6, UTC).date()
    assert run.key == f"task:t/{tomorrow}"


async def test_queue_that_takes_nothing_is_named(queue: Shifted, monkeypatch: pytest.MonkeyPatch) -> None:
    async def reject(run: int, tasks: list[object], paces: object = None) -> list[str]:
        return ["rejected"] * len(tasks)

    monkeypatch.setattr(queue, "add", reject)
    with pytest.raises(QueueRefused, match="tasks of t"):
        await add(DailyRuns(queue), "a")


async def test_synthetic_lanes_have_no_pace(queue: Shifted) -> None:
    task = Task(type="t", key="a")
    await DailyRuns(queue).add("t", [task.to_queue_task()], {task.to_queue_task().lane: UNLIMITED_PACE})
    (lane,) = await queue.lanes()
    assert (lane.spacing, lane.max_in_flight) == (0.0, 0)
