"""What the SQLite queue adds to the contract: old files, cheap waiting, and a look at the file itself."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from fake_clock import FakeClock
from wait import FOREVER, HANG

from conformance.harness import QueueHarness, open_sqlite, page, pages
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import ExportedTask
from shoal.errors import UsageError
from shoal.queue.base import LIMIT_SECONDS
from shoal.queue.sqlite import SqliteQueue, purge, runs, schema, stats
from shoal.queue.sqlite.diagnostics import diagnose

NEWEST = len(schema.scripts())


@pytest.fixture
async def harness(tmp_path: Path):
    harness = QueueHarness(open_sqlite, tmp_path)
    harness.queue = await harness.open()
    yield harness
    await harness.close()


# old files


async def test_a_file_of_an_earlier_shoal_is_migrated_after_a_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "q.db"
    queue = await SqliteQueue.open(str(path), clock=FakeClock())
    run = await queue.start_run(NewRun("books", "key", "name"))
    await queue.add(run.id, [page("a"), page("b")])
    await queue.close()
    later = [*schema.scripts(), "ALTER TABLE meta ADD COLUMN later TEXT NOT NULL DEFAULT 'x';"]
    monkeypatch.setattr(schema, "scripts", lambda: later)
    queue = await SqliteQueue.open(str(path), clock=FakeClock())
    assert (await queue.stats(run.id)).ready == 2 and await queue.recount(run.id) == await queue.stats(run.id)
    await queue.close()
    for file, version in ((path, NEWEST + 1), (tmp_path / f"q.db.v{NEWEST}.backup", NEWEST)):
        db = sqlite3.connect(file)
        assert db.execute("PRAGMA user_version").fetchone() == (version,)
        assert db.execute("SELECT count(*) FROM tasks").fetchone() == (2,)
        assert len(db.execute("SELECT * FROM meta").fetchone()) == 2 + (version > NEWEST)
        db.close()


# waiting


async def test_work_added_by_another_is_noticed_soon(harness: QueueHarness) -> None:
    run, other = await harness.run(), await harness.open()
    waiting = asyncio.create_task(other.wait(FOREVER))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await harness.add(run, "a")
    async with asyncio.timeout(HANG):
        await waiting


async def test_our_own_work_is_noticed_too(harness: QueueHarness) -> None:
    run = await harness.run()
    waiting = asyncio.create_task(harness.queue.wait(FOREVER))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await harness.add(run, "a")
    async with asyncio.timeout(HANG):
        await waiting


async def test_what_nobody_could_be_handed_wakes_nobody(harness: QueueHarness) -> None:
    run, other = await harness.run(), await harness.open()
    await harness.queue.set_run(run, "pause")
    began = time.monotonic()
    waiting = asyncio.create_task(other.wait(0.4))
    await asyncio.sleep(0.01)
    await harness.add(run, "a")
    await harness.queue.compare_and_swap("lock", "x", "y", 0)
    await waiting
    assert time.monotonic() - began >= 0.4


# the file itself


async def test_a_healthy_file_has_nothing_wrong_with_it(harness: QueueHarness) -> None:
    found = {finding.what: finding for finding in await harness.queue.diagnose()}
    assert set(found) == {"version", "durability", "file system", "space", "log", "damage"}
    assert found["damage"].level == found["durability"].level == found["log"].level == "ok"
    assert f"schema {NEWEST}" in found["version"].words


async def test_a_file_that_may_lose_seconds_says_so(tmp_path: Path) -> None:
    queue = await SqliteQueue.open(str(tmp_path / "q.db"), synchronous="normal")
    found = {finding.what: finding.level for finding in await queue.diagnose()}
    assert found["durability"] == "note"
    await queue.close()
    memory = await SqliteQueue.open(":memory:")
    assert [finding.level for finding in await memory.diagnose()] == ["note"]
    await memory.close()


@pytest.mark.parametrize("part", [0.1, 0.9])
async def test_damage_is_found(harness: QueueHarness, tmp_path: Path, part: float) -> None:
    run = await harness.run()
    await harness.add(run, pages(2000))
    await harness.close()
    path = tmp_path / "queue.db"
    data = bytearray(path.read_bytes())
    for place in range(round(part * len(data)), len(data) - 4096, 8192):
        data[place : place + 2000] = b"\xff" * 2000
    path.write_bytes(data)
    (damage,) = (finding for finding in diagnose(str(path), True) if finding.what == "damage")
    assert damage.level == "wrong" and damage.fix


# moving house


async def test_a_run_with_work_of_its_own_takes_over_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "mine")
    await harness.queue.set_run(run, "pause")
    with pytest.raises(UsageError, match="tasks of its own"):
        await harness.queue.import_run(
            run, [ExportedTask(1, page("theirs"), "ready")], paces={"a.test": UNLIMITED_PACE}
        )
    assert await harness.stats(run) == await harness.queue.recount(run)
    assert (await harness.stats(run)).seen == 1


async def test_no_seq_of_a_moved_task_is_given_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, "pause")
    await harness.queue.import_run(run, [ExportedTask(1, page("old"), "done", first_record=8, records=2)])
    await harness.add(run, "new")
    await harness.queue.set_run(run, "resume")
    await harness.settle(await harness.one(), records=(b"{}",))
    assert [it.seq for it in await harness.queue.records(run)] == [10]


async def test_what_changed_between_two_pages_is_moved_too(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.queue.set_run(run, "pause")
    (first,) = await harness.queue.export_run(run, limit=1)
    await harness.add(run, "c")
    rest = await harness.queue.export_run(run, after=first.number)
    assert [it.task.url for it in (first, *rest)] == ["a", "b", "c"]


# large runs


async def ended_run(harness: QueueHarness, count: int = 12) -> int:
    """A finished run: some tasks done with a record, some dead."""
    run = await harness.run()
    await harness.add(run, pages(count))
    for number, leased in enumerate((await harness.claim(count)).tasks):
        if number % 2:
            await harness.settle(leased, "dead", cause="http.500")
        else:
            await harness.settle(leased, records=(b"{}",), skipped=(("scope", "x"),))
    await harness.queue.set_run(run, "finish")
    return run


def rows_of(harness: QueueHarness, run: int) -> int:
    assert isinstance(harness.queue, SqliteQueue)
    db = harness.queue._engine.db
    tables = ("tasks", "ended", "cancelled", "dead", "records")
    by_id = [db.execute(f"SELECT count(*) FROM {table} WHERE id >> 32 = ?", (run,)) for table in tables]
    by_run = [
        db.execute(f"SELECT count(*) FROM {table} WHERE run = ?", (run,))
        for table in ("seen", "run_lanes", "skips", "skip_samples")
    ]
    return sum(found.fetchone()[0] for found in (*by_id, *by_run))


async def test_others_get_their_turn_while_a_large_run_is_removed(
    harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await ended_run(harness)
    monkeypatch.setattr(purge, "SLICE", 5)
    going, turns = asyncio.ensure_future(harness.queue.purge(run=run)), 0
    while not going.done():
        turns += 1
        await asyncio.sleep(0)
    assert await going == 1
    assert turns > 4
    assert rows_of(harness, run) == 0
    assert await harness.queue.runs() == []


async def test_a_removal_that_was_cut_short_can_be_gone_on_with(
    harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = await ended_run(harness), await harness.run("kept")
    await harness.add(kept, "a")
    monkeypatch.setattr(purge, "SLICE", 5)
    before, going = rows_of(harness, run), asyncio.ensure_future(harness.queue.purge(run=run))
    while rows_of(harness, run) == before:
        await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert 0 < rows_of(harness, run) < before
    with pytest.raises(UsageError):
        await harness.queue.revive(run)  # what is left of it is on its way out
    assert await harness.queue.purge(run=run) == 1
    assert rows_of(harness, run) == 0
    assert await harness.stats(kept) == await harness.queue.recount(kept)


async def test_many_small_runs_are_removed_together(harness: QueueHarness) -> None:
    for n in range(20):
        await harness.queue.set_run(await harness.run(f"k{n}"), "finish")
    await harness.advance(100)
    assert isinstance(harness.queue, SqliteQueue)
    counted = harness.queue._engine.write
    steps = 0

    async def count(*args: object) -> object:
        nonlocal steps
        steps += 1
        return await counted(*args)  # type: ignore[arg-type]

    harness.queue._engine.write = count  # type: ignore[method-assign,assignment]
    assert await harness.queue.purge(older_than=50.0) == 20
    assert steps == 2, "one to choose them, one to remove them"


async def test_counting_a_run_anew_holds_up_nobody(harness: QueueHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await ended_run(harness)
    threads: list[threading.Thread] = []
    accepts_tasks = runs.accepts_tasks  # which counting asks for, and the account does not

    def noted(*args: object) -> object:
        threads.append(threading.current_thread())
        return accepts_tasks(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(runs, "accepts_tasks", noted)
    assert await harness.queue.recount(run) == await harness.stats(run)
    assert threads and threading.main_thread() not in threads


async def test_what_the_page_limit_cancelled_goes_in_steps_before_the_dead_are_revived(
    harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SWEEP_SLICE", 4)
    run = await harness.run(max_pages=1)
    await harness.add(run, pages(12))
    await harness.settle(await harness.one(), "dead", cause="http.500")
    await harness.advance(LIMIT_SECONDS)
    assert await harness.queue.revive(run) == 1
    stats = await harness.stats(run)
    assert (stats.ready, stats.cancelled, stats.dead) == (1, 11, 0)
    assert stats == await harness.queue.recount(run)


async def test_many_due_lanes_are_estimated_from_a_part_of_them(
    harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "MOST_LANES", 10)
    run = await harness.run()
    await harness.add(run, [page(f"{n}/{k}", f"{n}.test") for n in range(40) for k in range(3)])
    assert (await harness.stats(run)).claimable == 120
