"""How fast a run goes is told by a single look, from what the queue has."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_clock import FakeClock

from shoal.config.load import Settings, load
from shoal.control.history import History
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, Outcome
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.view.advice import recommend_for_queue
from shoal.view.snapshot import take_snapshot
from shoal.view.status import gather_status


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load({"queue": f"sqlite:///{tmp_path}/q.db"}, env={})


class Fleet:
    """A run, and a worker that does so many pages in so many seconds, with samples as workers take them."""

    def __init__(self, queue: SqliteQueue, clock: FakeClock, settings: Settings) -> None:
        self.queue, self.clock, self.settings = queue, clock, settings
        self.history = History(queue)

    async def begin(self, name: str = "r") -> Run:
        run = await self.queue.start_run(NewRun("s", name, name, {"mode": "distributed"}))
        tasks, _ = start_tasks(f"http://h.test/{name}/{n}" for n in range(2000))
        await self.queue.add(run.id, tasks, {"h.test": UNLIMITED_PACE})
        return run

    async def pages(self, count: int, seconds: float, *, sampled: bool = True) -> None:
        for _ in range(10):
            now = await self.queue.now()
            await self.queue.register(WorkerStatus("w", "w", "m", 1, "0", now, now))
            claim = await self.queue.claim("w", count // 10)
            tried = Attempt(at=now, worker="w")
            await self.queue.settle([Outcome(task.id, task.lease, "done", attempt=tried) for task in claim.tasks])
            self.clock.step(seconds / 10)
            if sampled:
                await self.history.add_sample()

    async def rates(self, run: Run) -> tuple[float, ...]:
        seen = await take_snapshot(self.queue, self.settings)
        status = await gather_status(self.queue, self.settings, run)
        advised, _, _ = await recommend_for_queue(self.queue, self.settings)
        assert status.rate is not None
        return round(seen.rate, 2), round(seen.runs[0].rate, 2), round(status.rate, 2), round(advised.rate, 2)


@pytest.fixture
def fleet(queue: SqliteQueue, clock: FakeClock, settings: Settings) -> Fleet:
    return Fleet(queue, clock, settings)


async def test_a_single_look_at_a_run_that_nobody_watched_tells_its_rate(fleet: Fleet) -> None:
    run = await fleet.begin()
    await fleet.pages(160, 32.0)
    assert await fleet.rates(run) == (5.0,) * 4


async def test_a_rate_is_that_of_the_last_minute(fleet: Fleet) -> None:
    run = await fleet.begin()
    await fleet.pages(1000, 300.0)
    await fleet.pages(60, 60.0)
    assert all(rate == pytest.approx(1.0, rel=0.25) for rate in await fleet.rates(run))


async def test_what_happened_since_the_last_sample_counts(fleet: Fleet) -> None:
    run = await fleet.begin()
    await fleet.pages(100, 20.0)
    await fleet.pages(50, 5.0, sampled=False)
    assert all(rate == pytest.approx(6.0, rel=0.05) for rate in await fleet.rates(run))


async def test_a_run_younger_than_the_first_sample_has_a_rate(fleet: Fleet) -> None:
    run = await fleet.begin()
    await fleet.pages(40, 4.0, sampled=False)
    assert await fleet.rates(run) == (10.0,) * 4


async def test_a_run_that_waited_for_workers_goes_as_fast_as_it_goes_now(fleet: Fleet) -> None:
    run = await fleet.begin()
    await fleet.pages(0, 50.0)
    await fleet.pages(100, 5.0)
    assert all(rate == pytest.approx(20.0, rel=0.1) for rate in await fleet.rates(run))


async def test_after_a_long_silence_nothing_is_made_up(fleet: Fleet) -> None:
    await fleet.begin()
    await fleet.pages(100, 20.0)
    fleet.clock.step(3600.0)
    assert (await take_snapshot(fleet.queue, fleet.settings)).rate == 0.0
