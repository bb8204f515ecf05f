"""Reaping: when it is time, and for workers that outlive their supervisor."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_clock import FakeClock

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.files import flock
from shoal.queue.base import ReapResult
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.pool.reaper import Reaper


class Seconds(FakeClock):
    def __call__(self) -> float:
        return self.at / 1e6


async def leased_task(queue: SqliteQueue, worker: str) -> int:
    run = await queue.start_run(NewRun("books", "k"))
    tasks, _ = start_tasks(["http://h/page"])
    await queue.add(run.id, tasks, {"h": UNLIMITED_PACE})
    (leased,) = (await queue.claim(worker, 1)).tasks
    return leased.run


@pytest.mark.parametrize(("interval", "quiet", "due"), [(2.0, 1.4, 2.6), (20.0, 14.9, 25.1)])
async def test_reaping_comes_at_its_interval_and_not_in_step(
    queue: SqliteQueue, tmp_path: Path, interval: float, quiet: float, due: float
) -> None:
    clock = Seconds()
    reaper = Reaper(queue, tmp_path, clock=clock)
    reaper.interval = lambda: interval
    assert await reaper.run_if_due(()) is None
    clock.step(2.0)
    assert await reaper.run_if_due(()) == ReapResult()
    clock.step(quiet)
    assert await reaper.run_if_due(()) is None
    clock.step(due - quiet)
    assert await reaper.run_if_due(()) == ReapResult()


async def look_for(reaper: Reaper, clock: Seconds, seconds: float, *own: str) -> None:
    for _ in range(round(seconds / 0.25)):
        clock.step(0.25)
        await reaper.run_if_due(own)


async def test_what_a_worker_held_that_ended_after_its_supervisor_goes_back_long_before_its_lease(
    queue: SqliteQueue, tmp_path: Path
) -> None:
    clock = Seconds()
    reaper = Reaper(queue, tmp_path, clock=clock)
    note = CrashNote.create(tmp_path, "late")
    run = await leased_task(queue, "late")
    await look_for(reaper, clock, 20)
    assert (await queue.stats(run)).leased == 1, "it is alive"
    note._map.close()
    flock.release(note.file)
    await look_for(reaper, clock, 4)
    assert (await queue.stats(run)).leased == 1, "its own supervisor may be about to do it"
    await look_for(reaper, clock, 5)
    assert (await queue.stats(run)).ready == 1
    assert not (tmp_path / "late").exists()


async def test_children_of_our_own_are_left_to_who_knows_why_they_ended(queue: SqliteQueue, tmp_path: Path) -> None:
    clock = Seconds()
    note = CrashNote.create(tmp_path, "mine")
    run = await leased_task(queue, "mine")
    note._map.close()
    flock.release(note.file)
    await look_for(Reaper(queue, tmp_path, clock=clock), clock, 20, "mine")
    assert (await queue.stats(run)).leased == 1
