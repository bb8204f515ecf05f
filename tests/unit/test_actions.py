from __future__ import annotations

import asyncio

import pytest

from shoal.control import actions
from shoal.control.actions import (
    LoggedAction,
    UserActions,
    count_tasks,
    find_workers,
    matching_tasks,
    recent_actions,
    revive_dead_letters,
)
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, Outcome
from shoal.errors import UsageError
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue, TaskFilter
from shoal.sources.start_task import start_task


async def run_of(queue: Queue, ready: int, dead: int = 0) -> Run:
    run = await queue.start_run(NewRun("books", "key", name="r1"))
    tasks = [start_task(f"https://h{n % 3}.example/{n}") for n in range(ready + dead)]
    await queue.add(run.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
    left = dead
    while left:
        claim = await queue.claim("w", left)
        await queue.settle([Outcome(it.id, claim.lease, "dead", Attempt(1, "w", "x"), cause="x") for it in claim.tasks])
        left -= len(claim.tasks)
    return run


async def test_the_latest_two_hundred_are_kept_newest_first(queue: Queue) -> None:
    for number in range(actions.MAX_ACTIONS + 5):
        await actions.append_action(queue, LoggedAction(number, "me", "pause", f"r{number}"))
    kept, _ = await recent_actions(queue)
    assert [action.at for action in kept] == list(range(actions.MAX_ACTIONS + 4, 4, -1))


async def test_many_who_act_at_once_are_all_kept(queue: Queue) -> None:
    await asyncio.gather(*(UserActions(queue, f"p{n}").log_action("look", "x") for n in range(20)))
    kept, _ = await recent_actions(queue)
    assert {action.who for action in kept} == {f"p{n}" for n in range(20)}


async def test_secrets_are_not_kept(queue: Queue) -> None:
    await UserActions(queue, "me").log_action("submit", "https://u:p-w-d@h.example/", token="abc", note="x")
    text = (await queue.document(kinds.ACTIONS, actions.RING)).text  # type: ignore[union-attr]
    assert "p-w-d" not in text


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_windows_of_any_size_find_the_same(queue: Queue, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(actions, "WINDOW", size)
    monkeypatch.setattr(actions, "MAX_WINDOW", size)
    run = await run_of(queue, 50, 10)
    for where, expected in ((TaskFilter(), 60), (TaskFilter(lane="h1.example"), 20), (TaskFilter(url="*/7"), 1)):
        found = [view.id async for page in matching_tasks(queue, run, None, where, limit=5) for view in page]
        assert len(found) == len(set(found)) == expected
        assert found == sorted(found)


async def test_what_is_counted_is_what_is_changed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "BATCH_SIZE", 3)
    run = await run_of(queue, 30, 12)
    where = TaskFilter(lane="h1.example")
    would = await count_tasks(queue, run, "dead", where)
    assert (await UserActions(queue, "me").revive(run, where)).count == would.count == 4
    would = await count_tasks(queue, run, "ready", where)
    assert (await UserActions(queue, "me").drop(run, where)).count == would.count == 14
    stats = await queue.stats(run.id)
    assert (stats.dead, stats.cancelled) == (8, 14)
    assert stats == await queue.recount(run.id)


@pytest.mark.parametrize("where", [TaskFilter(), TaskFilter(url="https://*")])
async def test_what_waits_for_its_time_is_given_up_with_what_is_ready(queue: Queue, where: TaskFilter) -> None:
    run = await run_of(queue, 6)
    claim = await queue.claim("w", 2)
    await queue.settle([Outcome(it.id, claim.lease, "retry", after=60.0) for it in claim.tasks])
    assert (await count_tasks(queue, run, "ready", where)).count == 6
    assert (await UserActions(queue, "me").drop(run, where)).count == 6
    assert (await queue.stats(run.id)).open == 0


async def test_all_that_is_dead_is_revived_some_at_a_time(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "REVIVE_BATCH", 4)
    run = await run_of(queue, 3, 10)
    assert await revive_dead_letters(queue, run.id, TaskFilter(cause="x")) == 10
    assert await revive_dead_letters(queue, run.id) == 0
    assert (await queue.stats(run.id)).ready == 13
    await queue.set_run(run.id, "cancel")
    with pytest.raises(UsageError):
        await revive_dead_letters(queue, run.id)


async def test_what_takes_too_long_says_that_there_is_more(queue: Queue) -> None:
    run = await run_of(queue, 3_000)
    first = await UserActions(queue, "me").drop(run, TaskFilter(lane="h1.example"), seconds=0)
    assert first.more
    while (await UserActions(queue, "me").drop(run, TaskFilter(lane="h1.example"))).more:
        pass
    assert (await queue.stats(run.id)).ready == 2_000


def worker_status(id: str, name: str) -> WorkerStatus:
    return WorkerStatus(id, name, "host", 1, "1", 0, 0)


def test_a_word_means_one_worker_or_all_of_one_machine_and_never_of_two() -> None:
    marks = [worker_status("node1-1", "node1"), worker_status("node1-2", "node1"), worker_status("node10-1", "node10")]
    assert [it.id for it in find_workers(marks, "node1-2")] == ["node1-2"]
    assert [it.id for it in find_workers(marks, "node1")] == ["node1-1", "node1-2"]
    assert [it.id for it in find_workers(marks, "node10")] == ["node10-1"]
    assert find_workers(marks, "other") == []
    with pytest.raises(UsageError):
        find_workers(marks, "node")
