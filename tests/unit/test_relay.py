"""The relay: what waits in the queue is carried to the store, at a cost that does not grow with old runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.control.home import MOVING, Leaving
from shoal.control.relay import Relay
from shoal.core.lane import FREE
from shoal.core.run import NewRun, Run
from shoal.core.task import Leased, Outcome
from shoal.extract.links import start_tasks
from shoal.outlet import Outlet
from shoal.queue.sqlite import SqliteQueue
from shoal.store.results_sqlite import SqliteResults


class Counting(SqliteQueue):
    """Counts how often all runs are asked for."""

    lists = 0

    async def runs(self, **asked: Any) -> list[Run]:
        self.lists += not asked.get("states") and not asked.get("name")
        return await super().runs(**asked)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Counting]:
    opened = await Counting.open(str(tmp_path / "q.db"), synchronous="normal")
    assert isinstance(opened, Counting)
    yield opened
    await opened.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteResults]:
    opened = await SqliteResults.open(str(tmp_path / "results.db"))
    yield opened
    await opened.close()


async def leased(queue: SqliteQueue) -> tuple[Run, Leased]:
    run = await queue.start_run(NewRun("books", "k", name="r1"))
    tasks, _ = start_tasks(["http://h/"])
    await queue.add(run.id, tasks, {"h": FREE})
    return run, (await queue.claim("w", 1)).tasks[0]


async def done(queue: SqliteQueue, task: Leased) -> None:
    await queue.settle([Outcome(task.id, task.lease, "done", records=(b'{"n":1}',))])


async def test_runs_that_ended_are_not_listed_again_and_again(queue: Counting, store: SqliteResults) -> None:
    run, task = await leased(queue)
    relay = Relay(queue, store)
    assert await relay.drain_all() == 0
    await done(queue, task)
    assert [await relay.drain_all() for _ in range(5)] == [1, 0, 0, 0, 0]
    assert queue.lists == 1
    await queue.set_run(run.id, "finish")
    await relay.drain_all()
    await relay.drain_all()
    assert queue.lists == 2


async def test_page_that_was_under_way_when_its_run_was_cancelled_is_not_waited_for_a_minute(
    queue: Counting, store: SqliteResults
) -> None:
    run, task = await leased(queue)
    relay = Relay(queue, store)
    await relay.drain_all()
    await queue.set_run(run.id, "cancel")
    assert await relay.drain_all() == 0
    await done(queue, task)
    assert await relay.drain_all() == 1


async def test_records_of_a_run_that_has_moved_away_are_not_waited_for(
    queue: Counting, store: SqliteResults
) -> None:
    run, task = await leased(queue)
    await done(queue, task)
    gone = msgspec.json.encode(Leaving("elsewhere", "there", "running", gone=True)).decode()
    await queue.swap(MOVING, run.name, gone, 0)
    outlet = Outlet(queue, store)
    outlet.serve(run, None)
    async with asyncio.timeout(30):
        assert await outlet.drain() == 0
