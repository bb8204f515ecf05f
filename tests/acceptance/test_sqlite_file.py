"""What the embedded queue adds to the contract: a file, its disk, its versions, other processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Outcome, Task, digest
from shoal.errors import NotBalanced, QueueFull, QueueReadOnly, QueueRefused
from shoal.files.file_system import NETWORK_FILE_SYSTEMS, _mounted
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.identity import checked_stats

ROOT_ON_LINUX = sys.platform == "linux" and os.geteuid() == 0


def tasks(count: int, first: int = 0) -> list[Task]:
    urls = [f"http://h/{number}" for number in range(first, first + count)]
    return [Task(url, "h", digest(url)) for url in urls]


async def started(path: Path) -> tuple[SqliteQueue, int]:
    queue = await SqliteQueue.open(str(path))
    run = await queue.start_run(NewRun("s", "key", "R1"))
    return queue, run.id


async def test_state_survives_reopening(tmp_path: Path) -> None:
    queue, run = await started(tmp_path / "q.db")
    await queue.add(run, tasks(3), {"h": UNLIMITED_PACE})
    claim = await queue.claim("w", 1)
    await queue.settle([Outcome(claim.tasks[0].id, claim.lease, "done", records=(b'{"a":1}',))])
    await queue.close()
    again = await SqliteQueue.open(str(tmp_path / "q.db"))
    stats = await again.stats(run)
    assert (stats.done, stats.ready, stats.records) == (1, 2, 1)
    await again.close()


async def test_a_newer_schema_is_refused_with_a_word(tmp_path: Path) -> None:
    queue, _ = await started(tmp_path / "q.db")
    await queue.close()
    with sqlite3.connect(tmp_path / "q.db") as db:
        db.execute("PRAGMA user_version = 999")
    db.close()
    with pytest.raises(QueueRefused, match="newer shoal"):
        await SqliteQueue.open(str(tmp_path / "q.db"))


async def test_a_foreign_database_is_never_written(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "mine.db") as db:
        db.execute("CREATE TABLE letters (text)")
    db.close()
    with pytest.raises(QueueRefused, match="another program"):
        await SqliteQueue.open(str(tmp_path / "mine.db"))
    with sqlite3.connect(tmp_path / "mine.db") as db:
        assert [row[0] for row in db.execute("SELECT name FROM sqlite_master")] == ["letters"]
    db.close()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("dear diary, this is not a database at all " * 50)
    with pytest.raises(QueueRefused, match="not a shoal state file"):
        await SqliteQueue.open(str(tmp_path / "notes.txt"))


async def test_an_older_schema_is_migrated_after_a_backup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.queue.sqlite import schema

    queue, run = await started(tmp_path / "q.db")
    await queue.add(run, tasks(5), {"h": UNLIMITED_PACE})
    await queue.close()
    steps = schema.scripts()
    monkeypatch.setattr(schema, "scripts", lambda: [*steps, "CREATE TABLE extra (x);\n"])
    newer = await SqliteQueue.open(str(tmp_path / "q.db"))
    assert (await newer.stats(run)).ready == 5
    await newer.close()
    backup = sqlite3.connect(tmp_path / f"q.db.v{len(steps)}.backup")
    assert backup.execute("SELECT count(*) FROM tasks").fetchone() == (5,)
    assert backup.execute("PRAGMA user_version").fetchone() == (len(steps),)
    backup.close()


async def test_a_failed_migration_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.queue.sqlite import schema

    queue, run = await started(tmp_path / "q.db")
    await queue.add(run, tasks(5), {"h": UNLIMITED_PACE})
    await queue.close()
    steps = schema.scripts()
    monkeypatch.setattr(schema, "scripts", lambda: [*steps, "CREATE TABLE extra (x);\nCREATE TABLE extra (x);\n"])
    with pytest.raises(Exception, match="extra"):
        await SqliteQueue.open(str(tmp_path / "q.db"))
    monkeypatch.undo()
    again = await SqliteQueue.open(str(tmp_path / "q.db"))
    assert (await again.stats(run)).ready == 5
    await again.close()


@pytest.mark.parametrize("kind", sorted(NETWORK_FILE_SYSTEMS))
def test_network_file_systems_are_recognised_by_the_longest_mount(kind: str) -> None:
    table = f"/dev/vda / ext4 rw 0 0\nserver:/x /data {kind} rw 0 0\n"
    assert _mounted(table, "/data/crawl", mac=False) == kind
    assert _mounted(table, "/database", mac=False) == "ext4"


async def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.queue.sqlite import engine

    monkeypatch.setattr(engine, "file_system", lambda folder: "nfs4")
    with pytest.raises(QueueRefused, match="network file system"):
        await SqliteQueue.open(str(tmp_path / "q.db"))


@pytest.fixture
def small_disk(tmp_path: Path):
    if not ROOT_ON_LINUX:
        pytest.skip("mounting a small disk needs root on Linux")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], check=False)
    if done.returncode:
        pytest.skip("this machine does not let us mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_is_said_clearly_and_loses_nothing(small_disk: Path) -> None:
    queue, run = await started(small_disk / "q.db")
    added = 0
    with pytest.raises(QueueFull, match="no space left"):
        for first in range(0, 100_000, 500):
            answers = await queue.add(run, tasks(500, first), {"h": UNLIMITED_PACE})
            added += answers.count("added")
    stats = await queue.stats(run)
    assert stats.seen == added == stats.ready
    await queue.close()
    # The person frees some space, and the same state goes on.
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    again = await SqliteQueue.open(str(small_disk / "q.db"))
    assert (await again.stats(run)).ready == added
    assert (await again.add(run, tasks(500, 200_000), {"h": UNLIMITED_PACE})).count("added") == 500
    claim = await again.claim("w", 10)
    assert await again.settle([Outcome(t.id, t.lease, "done") for t in claim.tasks]) == ["ok"] * 10
    await again.close()


async def test_a_disk_that_became_read_only_is_said_clearly(small_disk: Path) -> None:
    queue, run = await started(small_disk / "q.db")
    await queue.add(run, tasks(5), {"h": UNLIMITED_PACE})
    await queue.close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(QueueReadOnly, match="cannot be written"):
        queue = await SqliteQueue.open(str(small_disk / "q.db"))
        await queue.add(run, tasks(5, 10), {"h": UNLIMITED_PACE})
    subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
    again = await SqliteQueue.open(str(small_disk / "q.db"))
    assert (await again.stats(run)).ready == 5
    await again.close()


_CLIENT = """
import asyncio, sys
from shoal.queue.sqlite import SqliteQueue
from shoal.core.task import Outcome
async def main(path, worker):
    queue = await SqliteQueue.open(path)
    while (claim := await queue.claim(worker, 20)).tasks:
        outcomes = [Outcome(t.id, t.lease, "done", records=(b'{"id":%d}' % t.id,)) for t in claim.tasks]
        assert set(await queue.settle(outcomes)) == {"ok"}
    await queue.close()
asyncio.run(main(*sys.argv[1:]))
"""


async def test_eight_processes_share_one_file_without_collisions(tmp_path: Path) -> None:
    queue, run = await started(tmp_path / "q.db")
    for first in range(0, 4000, 1000):
        await queue.add(run, tasks(1000, first), {"h": UNLIMITED_PACE})
    clients = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", _CLIENT, str(tmp_path / "q.db"), f"w{n}")
        for n in range(8)
    ]
    assert [await client.wait() for client in clients] == [0] * 8
    stats = await queue.stats(run)
    assert (stats.done, stats.records, stats.open) == (4000, 4000, 0)
    assert stats == await queue.recount(run)
    await queue.close()


async def test_a_client_killed_in_the_middle_leaves_a_whole_state(tmp_path: Path) -> None:
    queue, run = await started(tmp_path / "q.db")
    await queue.add(run, tasks(3000), {"h": UNLIMITED_PACE})
    for delay in (0.25, 0.3, 0.35, 0.4):
        client = await asyncio.create_subprocess_exec(sys.executable, "-c", _CLIENT, str(tmp_path / "q.db"), "w")
        await asyncio.sleep(delay)
        if client.returncode is None:
            client.kill()
        await client.wait()
        await queue.reap({"w": ()})
    stats = await queue.stats(run)
    assert stats.is_balanced and stats.leased == 0 and stats.records == stats.done
    assert stats == await queue.recount(run)
    await queue.close()


async def test_the_state_is_one_folder_that_can_be_copied_while_closed(tmp_path: Path) -> None:
    queue, run = await started(tmp_path / "a" / "q.db")
    await queue.add(run, tasks(7), {"h": UNLIMITED_PACE})
    await queue.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = await SqliteQueue.open(str(tmp_path / "b" / "q.db"))
    assert (await copy.stats(run)).ready == 7
    await copy.close()


async def test_a_damaged_state_does_not_balance_and_names_its_orphans(tmp_path: Path) -> None:
    queue, run = await started(tmp_path / "q.db")
    await queue.add(run, tasks(5), {"h": UNLIMITED_PACE})
    claim = await queue.claim("w", 2)
    await queue.settle([Outcome(t.id, t.lease, "done") for t in claim.tasks])
    assert await queue.orphans(run) == []
    with sqlite3.connect(tmp_path / "q.db") as db:
        lost = db.execute("SELECT max(id) FROM tasks").fetchone()[0]
        db.execute("DELETE FROM tasks WHERE id = ?", (lost,))
        db.execute("DELETE FROM ended WHERE id = ?", (claim.tasks[0].id,))
    db.close()
    (found,) = await queue.runs(name="R1")
    with pytest.raises(NotBalanced, match=f"{claim.tasks[0].id}, {lost}") as caught:
        await checked_stats(queue, found)
    assert "done 2 (counted 1)" in str(caught.value)
    await queue.close()


async def test_a_settle_is_durable_also_when_a_claim_waits_beside_it(tmp_path: Path) -> None:
    queue, run = await started(tmp_path / "q.db")
    await queue.add(run, tasks(20), {"h": UNLIMITED_PACE})
    claim = await queue.claim("w", 5)
    said: list[str] = []
    queue._engine.db.set_trace_callback(said.append)
    other = sqlite3.connect(tmp_path / "q.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    both = asyncio.gather(queue.settle([Outcome(t.id, t.lease, "done") for t in claim.tasks]), queue.claim("w", 5))
    await asyncio.sleep(0.05)
    other.execute("COMMIT")
    other.close()
    await both
    level, levels = "", {}
    for statement in said:
        if statement.startswith("PRAGMA synchronous"):
            level = statement.rpartition(" ")[2]
        for verb, mark in (("settle", "INSERT OR REPLACE INTO ended"), ("claim", "INSERT INTO leases")):
            if statement.startswith(mark):
                levels[verb] = level
    assert levels == {"settle": "2", "claim": "1"}
    await queue.close()
