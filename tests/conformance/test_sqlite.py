"""What the SQLite queue adds to the contract: old files, cheap waiting, and a look at the file itself."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from conformance.world import Clock, World, open_sqlite, page, pages
from shoal.core.lane import FREE
from shoal.core.task import Carried, LaneChange
from shoal.errors import Usage
from shoal.queue.base import Where
from shoal.queue.sqlite import SqliteQueue, account, purge, runs, schema
from shoal.queue.sqlite.checkup import checkup

NEWEST = len(schema.scripts())


@pytest.fixture
async def world(tmp_path: Path):
    world = World(open_sqlite, tmp_path)
    world.queue = await world.open()
    yield world
    await world.close()


# old files


def old_file(path: Path, version: int) -> None:
    """A state file as an earlier shoal left it: a run, a lane, a worker, tasks done, dead and cancelled."""
    db = sqlite3.connect(path)
    for step in schema.scripts()[:version]:
        db.executescript(step)
    db.execute(
        """INSERT INTO runs (name, scraper, key, state, created_at, changed_at, weight, max_pages, spec,
             seen, done, dead, cancelled, records, next_task, next_record)
           VALUES ('r', 's', 'k', 'running', 1, 1, 1, 0, '{}', 4, 1, 2, 1, 1, 5, 2)"""
    )
    db.execute(
        "INSERT INTO lanes (name, asked, spacing, max_in_flight) VALUES ('a.test', 2000000, 2000000, 3)"
    )
    db.execute("INSERT INTO heads (run, lane, spacing, max_in_flight) VALUES (1, 1, 2000000, 3)")
    db.execute(
        """INSERT INTO workers (id, name, host, pid, version, started_at, seen_at, state, doing)
           VALUES ('w', 'n', 'h', 1, '0', 5, 6, 'working', '')"""
    )
    id = 1 << 32 | 1
    db.executemany(
        "INSERT INTO ended VALUES (?, ?, 9, 0, 1, 8, 7, 1, 0, 0, 0, NULL, 'page', 'u', '', ?, ?, NULL)",
        [(id, "done", 1, 1), (id + 1, "cancelled", 0, 0)],
    )
    db.executemany(
        """INSERT INTO dead (id, ended_at, url, lease, gave_back, lane, added_at, attempts, lost, priority,
             depth, kind, cause)
           VALUES (?, ?, ?, 9, 0, 1, 7, 1, 0, 0, 0, 'page', 'http.500')""",
        [(id + 2, 8, "v"), (id + 3, 9, "w")],
    )
    db.executemany("INSERT INTO seen VALUES (1, ?, ?)", [(name, id + n) for n, name in enumerate("xyvw")])
    db.execute("INSERT INTO records VALUES (?, ?, '{}')", (id, id))
    db.execute(f"PRAGMA user_version = {version}")
    db.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
    db.commit()
    db.close()


@pytest.mark.parametrize("version", range(1, NEWEST))
async def test_a_file_of_an_earlier_shoal_is_migrated_after_a_backup(tmp_path: Path, version: int) -> None:
    path = tmp_path / "q.db"
    old_file(path, version)
    queue = await SqliteQueue.open(str(path), clock=Clock())
    (run,) = await queue.runs()
    assert await queue.recount(run.id) == await queue.stats(run.id)
    assert [len(await queue.look(run.id, state=state)) for state in ("done", "cancelled", "dead")] == [
        1,
        1,
        2,
    ]
    (group,) = await queue.dead_groups(run.id)
    assert (group.count, group.sample, group.first_at, group.last_at) == (2, "w", 8, 9)
    assert await queue.revive(run.id, Where(url="v")) == 1
    assert [group.count for group in await queue.dead_groups(run.id)] == [1]
    (lane,) = await queue.lanes()
    assert (lane.spacing, lane.max_in_flight, lane.rule, lane.limit) == (2.0, 3, -1.0, -1)
    (worker,) = await queue.workers()
    assert (worker.id, worker.serves, worker.asked) == ("w", (), "")
    assert await queue.trim(run.id, 1) == 1
    await queue.set_lane(LaneChange("a.test", rule=0.5))
    assert (await queue.lanes())[0].spacing == 0.5
    await queue.close()
    backup = sqlite3.connect(tmp_path / f"q.db.v{version}.backup")
    assert backup.execute("PRAGMA user_version").fetchone() == (version,)
    assert backup.execute("SELECT count(*) FROM records").fetchone() == (1,)
    backup.close()


# waiting


async def test_work_added_by_another_is_noticed_soon(world: World) -> None:
    run, other = await world.run(), await world.open()
    waiting = asyncio.create_task(other.wait(30.0))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await world.add(run, "a")
    async with asyncio.timeout(5.0):
        await waiting


async def test_our_own_work_is_noticed_too(world: World) -> None:
    run = await world.run()
    waiting = asyncio.create_task(world.queue.wait(30.0))
    await asyncio.sleep(0.01)
    await world.add(run, "a")
    async with asyncio.timeout(5.0):
        await waiting


async def test_what_nobody_could_be_handed_wakes_nobody(world: World) -> None:
    run, other = await world.run(), await world.open()
    await world.queue.set_run(run, "pause")
    began = time.monotonic()
    waiting = asyncio.create_task(other.wait(0.4))
    await asyncio.sleep(0.01)
    await world.add(run, "a")
    await world.queue.swap("lock", "x", "y", 0)
    await waiting
    assert time.monotonic() - began >= 0.4


# the file itself


async def test_a_healthy_file_has_nothing_wrong_with_it(world: World) -> None:
    found = {finding.what: finding for finding in await world.queue.checkup()}
    assert set(found) == {"version", "durability", "file system", "space", "log", "damage"}
    assert found["damage"].level == found["durability"].level == found["log"].level == "ok"
    assert f"schema {NEWEST}" in found["version"].words


async def test_a_file_that_may_lose_seconds_says_so(tmp_path: Path) -> None:
    queue = await SqliteQueue.open(str(tmp_path / "q.db"), synchronous="normal")
    found = {finding.what: finding.level for finding in await queue.checkup()}
    assert found["durability"] == "note"
    await queue.close()
    memory = await SqliteQueue.open(":memory:")
    assert [finding.level for finding in await memory.checkup()] == ["note"]
    await memory.close()


@pytest.mark.parametrize("part", [0.1, 0.9])
async def test_damage_is_found(world: World, tmp_path: Path, part: float) -> None:
    run = await world.run()
    await world.add(run, pages(2000))
    await world.close()
    path = tmp_path / "queue.db"
    data = bytearray(path.read_bytes())
    for place in range(round(part * len(data)), len(data) - 4096, 8192):
        data[place : place + 2000] = b"\xff" * 2000
    path.write_bytes(data)
    (damage,) = (finding for finding in checkup(str(path), True) if finding.what == "damage")
    assert damage.level == "wrong" and damage.fix


# moving house


async def test_a_run_with_work_of_its_own_takes_over_nothing(world: World) -> None:
    run = await world.run()
    await world.add(run, "mine")
    await world.queue.set_run(run, "pause")
    with pytest.raises(Usage, match="tasks of its own"):
        await world.queue.carry_in(run, [Carried(1, page("theirs"), "ready")], paces={"a.test": FREE})
    assert await world.stats(run) == await world.queue.recount(run)
    assert (await world.stats(run)).seen == 1


async def test_no_seq_of_a_carried_task_is_given_again(world: World) -> None:
    run = await world.run()
    await world.queue.set_run(run, "pause")
    await world.queue.carry_in(run, [Carried(1, page("old"), "done", first_record=8, records=2)])
    await world.add(run, "new")
    await world.queue.set_run(run, "resume")
    await world.settle(await world.one(), records=(b"{}",))
    assert [it.seq for it in await world.queue.records(run)] == [10]


async def test_what_changed_between_two_pages_is_carried_too(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.queue.set_run(run, "pause")
    (first,) = await world.queue.carry_out(run, limit=1)
    await world.add(run, "c")
    rest = await world.queue.carry_out(run, after=first.number)
    assert [it.task.url for it in (first, *rest)] == ["a", "b", "c"]


# large runs


async def ended_run(world: World, count: int = 12) -> int:
    """A finished run: some tasks done with a record, some dead."""
    run = await world.run()
    await world.add(run, pages(count))
    for number, leased in enumerate((await world.claim(count)).tasks):
        if number % 2:
            await world.settle(leased, "dead", cause="http.500")
        else:
            await world.settle(leased, records=(b"{}",), skipped=(("scope", "x"),))
    await world.queue.set_run(run, "finish")
    return run


def rows_of(world: World, run: int) -> int:
    assert isinstance(world.queue, SqliteQueue)
    db = world.queue._engine.db
    tables = ("tasks", "ended", "cancelled", "dead", "records")
    by_id = [db.execute(f"SELECT count(*) FROM {table} WHERE id >> 32 = ?", (run,)) for table in tables]
    by_run = [
        db.execute(f"SELECT count(*) FROM {table} WHERE run = ?", (run,))
        for table in ("seen", "heads", "skips", "skip_samples")
    ]
    return sum(found.fetchone()[0] for found in (*by_id, *by_run))


async def test_others_get_their_turn_while_a_large_run_is_removed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await ended_run(world)
    monkeypatch.setattr(purge, "SLICE", 5)
    going, turns = asyncio.ensure_future(world.queue.purge(run=run)), 0
    while not going.done():
        turns += 1
        await asyncio.sleep(0)
    assert await going == 1
    assert turns > 4
    assert rows_of(world, run) == 0
    assert await world.queue.runs() == []


async def test_a_removal_that_was_cut_short_can_be_gone_on_with(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, kept = await ended_run(world), await world.run("kept")
    await world.add(kept, "a")
    monkeypatch.setattr(purge, "SLICE", 5)
    before, going = rows_of(world, run), asyncio.ensure_future(world.queue.purge(run=run))
    while rows_of(world, run) == before:
        await asyncio.sleep(0)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert 0 < rows_of(world, run) < before
    with pytest.raises(Usage):
        await world.queue.revive(run)  # what is left of it is on its way out
    assert await world.queue.purge(run=run) == 1
    assert rows_of(world, run) == 0
    assert await world.stats(kept) == await world.queue.recount(kept)


async def test_many_small_runs_are_removed_together(world: World) -> None:
    for n in range(20):
        await world.queue.set_run(await world.run(f"k{n}"), "finish")
    await world.advance(100)
    assert isinstance(world.queue, SqliteQueue)
    counted = world.queue._engine.write
    steps = 0

    async def count(*args: object) -> object:
        nonlocal steps
        steps += 1
        return await counted(*args)  # type: ignore[arg-type]

    world.queue._engine.write = count  # type: ignore[method-assign,assignment]
    assert await world.queue.purge(older_than=50.0) == 20
    assert steps == 2, "one to choose them, one to remove them"


async def test_counting_a_run_anew_holds_up_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await ended_run(world)
    threads: list[threading.Thread] = []
    recount = account.recount

    def noted(*args: object) -> object:
        threads.append(threading.current_thread())
        return recount(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(account, "recount", noted)
    assert await world.queue.recount(run) == await world.stats(run)
    assert threads and threading.main_thread() not in threads


async def test_what_the_page_limit_cancelled_goes_in_steps_before_the_dead_are_revived(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "SWEEP_SLICE", 4)
    run = await world.run(max_pages=1)
    await world.add(run, pages(12))
    await world.settle(await world.one(), "dead", cause="http.500")
    assert await world.queue.revive(run) == 1
    stats = await world.stats(run)
    assert (stats.ready, stats.cancelled, stats.dead) == (1, 11, 0)
    assert stats == await world.queue.recount(run)


async def test_many_due_lanes_are_estimated_from_a_part_of_them(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account, "MOST_LANES", 10)
    run = await world.run()
    await world.add(run, [page(f"{n}/{k}", f"{n}.test") for n in range(40) for k in range(3)])
    assert (await world.stats(run)).claimable == 120
