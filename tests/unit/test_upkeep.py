"""Upkeep: runs end when they should and not a moment earlier, whoever looks and however often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shoal.control.history import History
from shoal.control.lock import Lock
from shoal.control.runs import seeding_began, sown
from shoal.control.upkeep import Upkeep, _may_end
from shoal.core.lane import FREE, Mark
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome
from shoal.errors import QueueUnavailable, StoreUnavailable
from shoal.extract.links import start_tasks
from shoal.queue.sqlite import SqliteQueue

DAY = 86_400_000_000


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[SqliteQueue]:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"), synchronous="normal")
    yield opened
    await opened.close()


async def started(queue: SqliteQueue, pages: int = 1, **new: Any) -> Run:
    run = await queue.start_run(NewRun(**{"scraper": "s", "key": "k", "name": "n"} | new))
    await added(queue, run, pages)
    return run


async def added(queue: SqliteQueue, run: Run, pages: int) -> None:
    tasks, _ = start_tasks(f"http://h/{n}" for n in range(pages))
    await queue.add(run.id, tasks, {task.lane: FREE for task in tasks})


async def done(queue: SqliteQueue, records: int = 0) -> None:
    claim = await queue.claim("w", 100)
    data = tuple(b'{"n":1}' for _ in range(records))
    await queue.settle([Outcome(task.id, task.lease, "done", records=data) for task in claim.tasks])


async def state(queue: SqliteQueue, run: Run) -> str:
    return (await queue.runs(name=run.name))[0].state


async def test_run_is_finished_when_nothing_is_open(queue: SqliteQueue) -> None:
    run, upkeep = await started(queue), Upkeep(queue)
    assert await upkeep.finish_empty() == 0
    await done(queue)
    assert await asyncio.gather(*(Upkeep(queue).finish_empty() for _ in range(4)))
    assert await state(queue, run) == "finished"


async def test_run_to_which_addresses_are_still_added_is_not_finished(queue: SqliteQueue) -> None:
    run, upkeep = await started(queue), Upkeep(queue)
    await seeding_began(queue, run.name)
    await done(queue)
    assert await upkeep.finish_empty() == 0
    await sown(queue, run.name)
    assert await upkeep.finish_empty() == 1


async def test_run_that_has_just_begun_is_given_time_for_its_first_address(queue: SqliteQueue) -> None:
    run = await started(queue, pages=0)
    assert await Upkeep(queue).finish_empty() == 0
    await added(queue, run, 1)
    assert (await queue.stats(run.id)).open == 1


async def test_run_of_one_process_alone_is_left_to_it(queue: SqliteQueue) -> None:
    run = await started(queue, spec={"mode": "single"})
    await done(queue)
    assert await Upkeep(queue).finish_empty() == 0
    assert await state(queue, run) == "running"


async def test_paused_run_is_not_finished(queue: SqliteQueue) -> None:
    run = await started(queue)
    await done(queue)
    await queue.set_run(run.id, "pause")
    assert await Upkeep(queue).finish_empty() == 0


class Carrier:
    """Takes records away from the queue."""

    def __init__(self, queue: SqliteQueue) -> None:
        self.queue = queue
        self.away = True

    async def drain_all(self, *, seconds: float = 5.0) -> int:
        if self.away:
            raise StoreUnavailable("the store does not answer")
        for run in await self.queue.runs():
            await self.queue.trim(run.id, 1_000)
        return 1


async def test_run_is_finished_only_when_its_records_are_in_the_store(queue: SqliteQueue) -> None:
    run, carrier = await started(queue), Carrier(queue)
    await done(queue, records=3)
    upkeep = Upkeep(queue, relay=carrier)
    await upkeep.once()
    assert await state(queue, run) == "running"
    carrier.away = False
    await upkeep.once()
    await upkeep.once()
    assert await state(queue, run) == "finished"


@pytest.mark.parametrize(
    ("scraper", "key", "now", "ends"),
    [
        ("books", "whatever", 0, True),
        ("task:profile", "task:profile/1970-01-01", DAY // 2, False),
        ("task:profile", "task:profile/1970-01-01", DAY + 60_000_000, False),  # clocks differ
        ("task:profile", "task:profile/1970-01-01", DAY + 3_600_000_000, True),
        ("task:profile", "task:profile/odd", 0, True),
    ],
)
def test_standing_run_ends_with_its_day(scraper: str, key: str, now: int, ends: bool) -> None:
    assert _may_end(Run(1, "n", scraper, key, "running", 0, 0), now) is ends


async def test_ended_runs_are_removed_after_their_time_and_what_this_machine_kept_of_them(
    queue: SqliteQueue,
) -> None:
    run = await started(queue)
    await done(queue)
    tidied = []

    async def tidy() -> None:
        tidied.append(True)

    await Upkeep(queue, retention=3600.0, tidy=tidy).once()
    assert await state(queue, run) == "finished" and not tidied
    await Upkeep(queue, retention=1e-6, tidy=tidy).once()
    assert await queue.runs() == [] and tidied


async def test_locks_of_those_who_died_long_ago_are_forgotten(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.control.upkeep.SILENT", 0.0)
    await Lock.take(queue, "scraper/books", "x", lasts=-1.0)
    await Upkeep(queue, retention=3600.0).once()
    assert await queue.papers("lock") == []


async def test_worker_that_vanished_long_ago_leaves_the_registry(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.control.upkeep.SILENT", 0.5)
    await queue.register(Mark("gone", "gone", "h", 1, "1", 0, 0))
    await asyncio.sleep(0.6)
    await queue.register(Mark("here", "here", "h", 1, "1", 0, 0))
    await Upkeep(queue).once()
    assert [mark.id for mark in await queue.workers()] == ["here"]


async def test_upkeep_is_shared_among_those_alive_and_a_crowd_that_is_gone_is_not_waited_for(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    upkeep = Upkeep(queue)
    for number in range(64):
        await queue.register(Mark(f"w{number}", "w", "h", 1, "1", 0, 0))
    await upkeep.tidy_registry()
    assert upkeep._pause(0.5) == 2.0
    monkeypatch.setattr("shoal.control.upkeep.ALIVE", 0.0)  # all are silent, though not for a day
    await upkeep.tidy_registry()
    assert upkeep._pause(0.5) == 0.5 and len(await queue.workers()) == 64


async def test_however_large_the_crowd_everybody_looks_once_a_minute(queue: SqliteQueue) -> None:
    upkeep = Upkeep(queue)
    upkeep._share = 1000.0
    assert (upkeep._pause(0.5), upkeep._pause(30.0), upkeep._pause(3600.0)) == (60.0, 60.0, 3600.0)


async def test_schedules_are_run_and_one_duty_that_fails_keeps_nobody_from_theirs(queue: SqliteQueue) -> None:
    run = await started(queue)
    await done(queue)
    ticks: list[int] = []

    async def tick(given: Any, now: int) -> None:
        ticks.append(now)
        raise QueueUnavailable("gone")

    ended = asyncio.Event()
    upkeep = asyncio.create_task(Upkeep(queue, tick=tick).run(ended))
    while not ticks or await state(queue, run) != "finished":
        await asyncio.sleep(0.01)
    ended.set()
    await upkeep


async def test_upkeep_keeps_history_however_many_do_it(queue: SqliteQueue) -> None:
    await started(queue, 3)
    await done(queue)
    await asyncio.gather(*(Upkeep(queue).once() for _ in range(4)))
    samples = (await History(queue).read(60)).samples
    assert 1 <= len(samples) <= 2 and sum(one.done for one in samples) == 3
