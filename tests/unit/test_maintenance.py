"""Maintenance: runs end when they should and not earlier, however many processes do it, however often."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.control import maintenance
from shoal.control.history import History
from shoal.control.maintenance import Maintenance, _may_end
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome
from shoal.errors import QueueUnavailable, StoreUnavailable
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.fleet_lock import FleetLock
from shoal.runs.identity import begin_seeding, finish_seeding
from shoal.sources.start_task import start_tasks

DAY = 86_400_000_000


async def started(queue: SqliteQueue, pages: int = 1, **new: Any) -> Run:
    run = await queue.start_run(NewRun(**{"scraper": "s", "key": "k", "name": "n"} | new))
    await added(queue, run, pages)
    return run


async def added(queue: SqliteQueue, run: Run, pages: int) -> None:
    tasks, _ = start_tasks(f"http://h/{n}" for n in range(pages))
    await queue.add(run.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})


async def done(queue: SqliteQueue, records: int = 0) -> None:
    claim = await queue.claim("w", 100)
    data = tuple(b'{"n":1}' for _ in range(records))
    await queue.settle([Outcome(task.id, task.lease, "done", records=data) for task in claim.tasks])


async def state(queue: SqliteQueue, run: Run) -> str:
    return (await queue.runs(name=run.name))[0].state


async def test_run_is_finished_when_nothing_is_open(queue: SqliteQueue) -> None:
    run, maintenance = await started(queue), Maintenance(queue)
    assert await maintenance.finish_empty_runs() == 0
    await done(queue)
    assert await asyncio.gather(*(Maintenance(queue).finish_empty_runs() for _ in range(4)))
    assert await state(queue, run) == "finished"


async def test_run_to_which_urls_are_still_added_is_not_finished(queue: SqliteQueue) -> None:
    run, maintenance = await started(queue), Maintenance(queue)
    await begin_seeding(queue, run.name)
    await done(queue)
    assert await maintenance.finish_empty_runs() == 0
    await finish_seeding(queue, run.name)
    assert await maintenance.finish_empty_runs() == 1


async def test_run_that_has_just_begun_is_given_time_for_its_first_url(queue: SqliteQueue) -> None:
    run = await started(queue, pages=0)
    assert await Maintenance(queue).finish_empty_runs() == 0
    await added(queue, run, 1)
    assert (await queue.stats(run.id)).open == 1


async def test_run_of_one_process_alone_is_left_to_it(queue: SqliteQueue) -> None:
    run = await started(queue, spec={"mode": "single"})
    await done(queue)
    assert await Maintenance(queue).finish_empty_runs() == 0
    assert await state(queue, run) == "running"


async def test_paused_run_is_not_finished(queue: SqliteQueue) -> None:
    run = await started(queue)
    await done(queue)
    await queue.set_run(run.id, "pause")
    assert await Maintenance(queue).finish_empty_runs() == 0


class FakeRelay:
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
    run, relay = await started(queue), FakeRelay(queue)
    await done(queue, records=3)
    maintenance = Maintenance(queue, relay=relay)
    await maintenance.run_once()
    assert await state(queue, run) == "running"
    relay.away = False
    await maintenance.run_once()
    await maintenance.run_once()
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
def test_daily_run_ends_with_its_day(scraper: str, key: str, now: int, ends: bool) -> None:
    assert _may_end(Run(1, "n", scraper, key, "running", 0, 0), now) is ends


async def test_ended_runs_are_removed_after_their_time_and_what_this_machine_kept_of_them(queue: SqliteQueue) -> None:
    run = await started(queue)
    await done(queue)
    tidied = []

    async def tidy() -> None:
        tidied.append(True)

    await Maintenance(queue, retention=3600.0, after_purge=tidy).run_once()
    assert await state(queue, run) == "finished" and not tidied
    await Maintenance(queue, retention=1e-6, after_purge=tidy).run_once()
    assert await queue.runs() == [] and tidied


async def test_locks_of_those_who_died_long_ago_are_forgotten(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.control.maintenance.FORGET_AFTER", 0.0)
    await FleetLock.acquire(queue, "scraper/books", "x", ttl=-1.0)
    await Maintenance(queue, retention=3600.0).run_once()
    assert await queue.documents("lock") == []


async def test_worker_that_vanished_long_ago_leaves_the_registry(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = queue._engine.clock
    await queue.register(WorkerStatus("gone", "gone", "h", 1, "1", 0, 0))
    monkeypatch.setattr(queue._engine, "clock", lambda: clock() + round((maintenance.FORGET_AFTER + 1) * 1e6))
    await queue.register(WorkerStatus("here", "here", "h", 1, "1", 0, 0))
    await Maintenance(queue).run_once()
    assert [mark.id for mark in await queue.workers()] == ["here"]


async def test_maintenance_is_shared_among_those_alive_and_a_crowd_that_is_gone_is_not_waited_for(
    queue: SqliteQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    maintenance = Maintenance(queue)
    for number in range(64):
        await queue.register(WorkerStatus(f"w{number}", "w", "h", 1, "1", 0, 0))
    await maintenance.prune_registry()
    assert maintenance._delay(0.5) == 2.0
    monkeypatch.setattr("shoal.control.maintenance.ALIVE_WITHIN", 0.0)  # all are silent, though not for a day
    await maintenance.prune_registry()
    assert maintenance._delay(0.5) == 0.5 and len(await queue.workers()) == 64


async def test_many_machines_reap_twice_a_second_together_and_one_that_is_left_soon_enough(queue: SqliteQueue) -> None:
    maintenance = Maintenance(queue)
    intervals = []
    for machines in (1, 4, 40, 1_000):
        for number in range(machines):
            await queue.register(WorkerStatus(f"w{number}", "w", f"h{number}", 1, "1", 0, 0))
        await maintenance.prune_registry()
        intervals.append(maintenance.reap_interval())
    assert intervals == [2.0, 2.0, 20.0, 30.0]


async def test_workers_of_one_machine_do_not_make_reaping_rarer(queue: SqliteQueue) -> None:
    maintenance = Maintenance(queue)
    for number in range(100):
        await queue.register(WorkerStatus(f"w{number}", "w", "h", 1, "1", 0, 0))
    await maintenance.prune_registry()
    assert maintenance.reap_interval() == 2.0


async def test_the_queue_is_asked_every_few_seconds_however_large_the_crowd(queue: SqliteQueue) -> None:
    maintenance = Maintenance(queue)
    maintenance._slowdown = 1000.0
    assert min(maintenance._interval_of(job) for job in maintenance._jobs if job.name != "reap") == 5.0


async def test_however_large_the_crowd_everybody_looks_once_a_minute(queue: SqliteQueue) -> None:
    maintenance = Maintenance(queue)
    maintenance._slowdown = 1000.0
    assert (maintenance._delay(0.5), maintenance._delay(30.0), maintenance._delay(3600.0)) == (60.0, 60.0, 3600.0)


async def test_schedules_are_run_and_one_duty_that_fails_keeps_nobody_from_theirs(queue: SqliteQueue) -> None:
    run = await started(queue)
    await done(queue)
    ticks: list[int] = []

    async def tick(given: Any, now: int) -> None:
        ticks.append(now)
        raise QueueUnavailable("gone")

    ended = asyncio.Event()
    maintenance = asyncio.create_task(Maintenance(queue, tick=tick).run(ended))
    while not ticks or await state(queue, run) != "finished":
        await asyncio.sleep(0.01)
    ended.set()
    await maintenance


async def test_maintenance_keeps_history_however_many_do_it(queue: SqliteQueue) -> None:
    await started(queue, 3)
    await done(queue)
    await asyncio.gather(*(Maintenance(queue).run_once() for _ in range(4)))
    samples = (await History(queue).read(60)).samples
    assert 1 <= len(samples) <= 2 and sum(one.done for one in samples) == 3
