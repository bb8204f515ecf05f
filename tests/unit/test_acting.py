from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from shoal.control import acting
from shoal.control.acting import Acting, Action, actions, choose, count, matching, revive_all
from shoal.core.lane import FREE, Mark
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, Outcome
from shoal.errors import Usage
from shoal.extract.links import start_task
from shoal.queue.base import Queue, Where
from shoal.queue.sqlite import SqliteQueue


@pytest.fixture
async def queue() -> AsyncIterator[Queue]:
    opened = await SqliteQueue.open(":memory:")
    yield opened
    await opened.close()


async def run_of(queue: Queue, ready: int, dead: int = 0) -> Run:
    run = await queue.start_run(NewRun("books", "key", name="r1"))
    tasks = [start_task(f"https://h{n % 3}.example/{n}") for n in range(ready + dead)]
    await queue.add(run.id, tasks, {task.lane: FREE for task in tasks})
    left = dead
    while left:
        claim = await queue.claim("w", left)
        await queue.settle(
            [Outcome(it.id, claim.lease, "dead", Attempt(1, "w", "x"), cause="x") for it in claim.tasks]
        )
        left -= len(claim.tasks)
    return run


async def test_the_latest_two_hundred_are_kept_newest_first(queue: Queue) -> None:
    for number in range(acting.KEPT + 5):
        await acting.keep(queue, Action(number, "me", "pause", f"r{number}"))
    kept, _ = await actions(queue)
    assert [action.at for action in kept] == list(range(acting.KEPT + 4, 4, -1))


async def test_many_who_act_at_once_are_all_kept(queue: Queue) -> None:
    await asyncio.gather(*(Acting(queue, f"p{n}").did("look", "x") for n in range(20)))
    kept, _ = await actions(queue)
    assert {action.who for action in kept} == {f"p{n}" for n in range(20)}


async def test_secrets_are_not_kept(queue: Queue) -> None:
    await Acting(queue, "me").did("submit", "https://u:pw@h.example/", token="abc", note="x")
    text = (await queue.paper(acting.KIND, acting.RING)).text  # type: ignore[union-attr]
    assert "pw" not in text


@pytest.mark.parametrize("size", [1, 7, 100_000])
async def test_windows_of_any_size_find_the_same(
    queue: Queue, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(acting, "WINDOW", size)
    monkeypatch.setattr(acting, "WIDEST", size)
    run = await run_of(queue, 50, 10)
    for where, expected in ((Where(), 60), (Where(lane="h1.example"), 20), (Where(url="*/7"), 1)):
        found = [view.id async for page in matching(queue, run, None, where, limit=5) for view in page]
        assert len(found) == len(set(found)) == expected
        assert found == sorted(found)


async def test_what_is_counted_is_what_is_changed(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acting, "AT_ONCE", 3)
    run = await run_of(queue, 30, 12)
    where = Where(lane="h1.example")
    would = await count(queue, run, "dead", where)
    assert (await Acting(queue, "me").revive(run, where)).count == would.count == 4
    would = await count(queue, run, "ready", where)
    assert (await Acting(queue, "me").drop(run, where)).count == would.count == 14
    stats = await queue.stats(run.id)
    assert (stats.dead, stats.cancelled) == (8, 14)
    assert stats == await queue.recount(run.id)


@pytest.mark.parametrize("where", [Where(), Where(url="https://*")])
async def test_what_waits_for_its_time_is_given_up_with_what_is_ready(queue: Queue, where: Where) -> None:
    run = await run_of(queue, 6)
    claim = await queue.claim("w", 2)
    await queue.settle([Outcome(it.id, claim.lease, "retry", after=60.0) for it in claim.tasks])
    assert (await count(queue, run, "ready", where)).count == 6
    assert (await Acting(queue, "me").drop(run, where)).count == 6
    assert (await queue.stats(run.id)).open == 0


async def test_all_that_is_dead_is_revived_some_at_a_time(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acting, "REVIVED", 4)
    run = await run_of(queue, 3, 10)
    assert await revive_all(queue, run.id, Where(cause="x")) == 10
    assert await revive_all(queue, run.id) == 0
    assert (await queue.stats(run.id)).ready == 13
    await queue.set_run(run.id, "cancel")
    with pytest.raises(Usage):
        await revive_all(queue, run.id)


async def test_what_takes_too_long_says_that_there_is_more(queue: Queue) -> None:
    run = await run_of(queue, 3_000)
    first = await Acting(queue, "me").drop(run, Where(lane="h1.example"), seconds=0)
    assert first.more
    while (await Acting(queue, "me").drop(run, Where(lane="h1.example"))).more:
        pass
    assert (await queue.stats(run.id)).ready == 2_000


def mark(id: str, name: str) -> Mark:
    return Mark(id, name, "host", 1, "1", 0, 0)


def test_a_word_means_one_worker_or_all_of_one_machine_and_never_of_two() -> None:
    marks = [mark("node1-1", "node1"), mark("node1-2", "node1"), mark("node10-1", "node10")]
    assert [it.id for it in choose(marks, "node1-2")] == ["node1-2"]
    assert [it.id for it in choose(marks, "node1")] == ["node1-1", "node1-2"]
    assert [it.id for it in choose(marks, "node10")] == ["node10-1"]
    assert choose(marks, "other") == []
    with pytest.raises(Usage):
        choose(marks, "node")
