"""Standing runs: where typed tasks live, begun when needed, one per type and UTC day."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.core.lane import FREE
from shoal.core.run import run_of
from shoal.core.task import Leased
from shoal.core.typed import Task
from shoal.errors import QueueRefused
from shoal.queue.sqlite import SqliteQueue
from shoal.queue.standing import Standing, standing_runs
from shoal.worker import typed
from shoal.worker.clients import Clients
from shoal.worker.errand import Errand

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


async def add(standing: Standing, *keys: str, type: str = "t") -> list[int]:
    tasks = [Task(type=type, key=key or None) for key in keys]
    return await standing.add(
        type, [task.core() for task in tasks], {}, keyed=[bool(task.key) for task in tasks]
    )


async def test_everybody_uses_the_same_run_of_the_day(queue: Shifted) -> None:
    one, two = await add(Standing(queue), "a"), await add(Standing(queue), "b")
    assert run_of(one[0]) == run_of(two[0])
    (run,) = await standing_runs(queue, "t")
    assert run.scraper == "task:t"
    assert run.key.startswith("task:t/20")
    assert run.name.startswith(run.key[7:].replace("-", "") + "_t_")


async def test_types_have_runs_of_their_own(queue: Shifted) -> None:
    standing = Standing(queue)
    await add(standing, "a")
    await add(standing, "a", type="other")
    assert [run.scraper for run in await standing_runs(queue)] == ["task:t", "task:other"]
    assert [run.scraper for run in await standing_runs(queue, "other")] == ["task:other"]


async def test_known_keys_give_the_same_id(queue: Shifted) -> None:
    standing = Standing(queue)
    first = await add(standing, "a", "b")
    assert await add(standing, "b", "c", "a", "b") == [first[1], first[1] + 1, first[0], first[1]]


async def test_tasks_without_keys_are_all_added(queue: Shifted) -> None:
    assert len(set(await add(Standing(queue), "", "", ""))) == 3


async def test_new_day_has_a_new_run(queue: Shifted) -> None:
    first = await add(Standing(queue), "")
    queue.days = 1
    assert run_of((await add(Standing(queue), ""))[0]) != run_of(first[0])


async def test_key_is_known_on_the_next_day_while_the_day_before_has_open_work(queue: Shifted) -> None:
    first = await add(Standing(queue), "a", "")
    queue.days = 1
    second = await add(Standing(queue), "b", "a", "")
    assert second[1] == first[0]
    assert run_of(second[0]) == run_of(second[2]) != run_of(first[0])


async def test_key_is_new_on_the_next_day_once_the_day_before_is_finished(queue: Shifted) -> None:
    first = await add(Standing(queue), "a")
    await queue.set_run(run_of(first[0]), "cancel")
    queue.days = 1
    assert run_of((await add(Standing(queue), "a"))[0]) != run_of(first[0])


async def test_run_that_was_ended_under_our_hands_is_begun_again(queue: Shifted) -> None:
    standing = Standing(queue)
    first = await add(standing, "a")
    await queue.set_run(run_of(first[0]), "cancel")
    second = await add(standing, "a")
    assert run_of(second[0]) != run_of(first[0])
    assert (await queue.stats(run_of(second[0]))).ready == 1


async def test_machine_that_slept_through_midnight_asks_for_the_day_again(queue: Shifted) -> None:
    standing = Standing(queue)
    first = await add(standing, "a")
    await queue.set_run(run_of(first[0]), "cancel")
    queue.days = 1
    (second,) = await add(standing, "b")
    (run,) = await queue.runs(states=("running",))
    assert run.id == run_of(second)
    tomorrow = datetime.fromtimestamp(await queue.now() / 1e6, UTC).date()
    assert run.key == f"task:t/{tomorrow}"


async def test_queue_that_takes_nothing_is_named(queue: Shifted, monkeypatch: pytest.MonkeyPatch) -> None:
    async def reject(run: int, tasks: list[object], paces: object = None) -> list[str]:
        return ["rejected"] * len(tasks)

    monkeypatch.setattr(queue, "add", reject)
    with pytest.raises(QueueRefused, match="type t"):
        await add(Standing(queue), "a")


async def test_synthetic_lanes_have_no_pace(queue: Shifted) -> None:
    task = Task(type="t", key="a")
    await Standing(queue).add("t", [task.core()], {task.core().lane: FREE})
    (lane,) = await queue.lanes()
    assert (lane.spacing, lane.max_in_flight) == (0.0, 0)


async def test_what_a_handler_queued_before_midnight_is_not_queued_again_after_it(queue: Shifted) -> None:
    for queue.days in (0, 1):  # it was tried before midnight, and its worker died before it was settled
        leased = Leased(id=7, lease=9, run=1, lane="task:p:0", url="task:p/k", kind="p")
        errand = Errand(leased, "r", None, {})
        errand.enqueue(Task(type="t", payload={"n": 1}))
        visit: Any = SimpleNamespace(tools=SimpleNamespace(clients=Clients(), queue=queue))
        assert await typed._more(visit, errand) == []
    assert sum([(await queue.stats(run.id)).seen for run in await queue.runs()]) == 1
