"""shoal backup and restore: one moment of a queue that is at work, and a crawl that goes on from there."""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_urls import QUEUE_KINDS, backend_url
from local_fleet import LocalFleet, local_fleet, stop_process
from small_site import Hit, page
from wait import wait_until

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome, Task, digest
from shoal.errors import RunBusy
from shoal.queue.base import Queue
from shoal.queue.postgres.backup import without_password
from shoal.queue.sqlite import SqliteQueue
from shoal.queue.sqlite.backup import SqliteBackup

PAGES = 30
QUICK = ("--concurrency", "4", "--batch-size", "4", "--health", "0")


@pytest.fixture(params=QUEUE_KINDS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LocalFleet]:
    with local_fleet(request.param, tmp_path) as found:
        yield found


class Gate:
    """Lets the site answer a few pages, and no more until it is opened."""

    def __init__(self, places: int) -> None:
        self._places = threading.Semaphore(places)

    def __call__(self, hit: Hit) -> Any:
        assert self._places.acquire(timeout=60)
        return page("x")

    def open(self, places: int) -> None:
        self._places.release(places)


def backup(fleet: LocalFleet, name: str = "monday") -> dict[str, Any]:
    return fleet.user.ask("backup", name)


def restore(fleet: LocalFleet, *more: str) -> dict[str, Any]:
    return fleet.user.ask("restore", "monday", *more)


def exported(fleet: LocalFleet, run: Run) -> list[str]:
    done = fleet.user.shoal("export", run.name, "-o", "out.jsonl")
    assert done.code == 0, done.err
    return sorted(row["url"] for row in fleet.user.lines("out.jsonl"))


def crawl_past_a_backup(fleet: LocalFleet) -> tuple[Run, list[str]]:
    """A crawl that was backed up in its midst, went on for a while, and was exported then."""
    gate = Gate(8)
    fleet.site.pages["/p/*"] = gate
    run = fleet.submit([f"/p/{number}" for number in range(PAGES)])
    worker = fleet.worker(fleet.scraper(), *QUICK)
    wait_until(lambda: fleet.stats(run).done == 8)  # and others are in progress
    assert backup(fleet)["bytes"] > 0
    gate.open(8)
    wait_until(lambda: fleet.stats(run).done == 16)
    gate.open(1000)
    assert stop_process(worker).code == 0
    return run, exported(fleet, run)


def test_a_crawl_goes_on_after_a_restore(fleet: LocalFleet) -> None:
    run, ahead = crawl_past_a_backup(fleet)
    assert len(ahead) >= 16
    done = restore(fleet, "--replace")
    assert (done["runs"], done["unfinished"], done["open"], done["records"]) == (1, 1, PAGES - 8, 8)
    assert done["voided"] >= 1  # what the worker had when the backup was made
    assert Path(fleet.user.folder, done["replaced"], "backup.json").exists()
    stats = fleet.stats(run)
    assert (stats.seen, stats.done, stats.leased, stats.lost) == (PAGES, 8, 0, 0)

    said = fleet.user.shoal("doctor", "--quiet").out
    assert "out.jsonl was written before the queue was restored" in " ".join(said.split())

    assert fleet.work(fleet.scraper(), *QUICK, "--exit-when-done").code == 0
    everything = sorted(fleet.site.url(f"/p/{number}") for number in range(PAGES))
    assert fleet.records(run) == everything
    assert fleet.stats(run).is_balanced
    # The file is the queue's again, row by row; what it knew beyond the backup is kept beside it.
    assert exported(fleet, run) == everything
    former = [json.loads(line)["url"] for line in (fleet.user.folder / "out.jsonl.old").read_text().splitlines()]
    assert sorted(former) == ahead
    assert "out.jsonl" not in fleet.user.shoal("doctor", "--quiet").out


def test_leases_from_before_a_restore_are_void(fleet: LocalFleet) -> None:
    async def lease(queue: Queue) -> tuple[Run, int, int]:
        run = await queue.start_run(NewRun("plain", "key", "a-run"))
        tasks = [Task(f"http://a.test/{n}", "a.test", digest(str(n))) for n in range(3)]
        await queue.add(run.id, tasks, {"a.test": UNLIMITED_PACE})
        (task,) = (await queue.claim("of-the-old-time", 1)).tasks
        return run, task.id, task.lease

    run, task, number = fleet.ask(lease)
    backup(fleet)
    assert restore(fleet, "--replace")["voided"] == 1

    async def settle(queue: Queue) -> list[str]:
        late = Outcome(task=task, lease=number, result="done", records=(b'{"url": "late"}',))
        before = await queue.settle([late])
        again = await queue.claim("new", 10)
        assert len(again.tasks) == 3 and again.tasks[0].lease > number
        return [*before, *await queue.settle([late])]

    assert fleet.ask(settle) == ["stale", "stale"]
    assert fleet.stats(run).records == 0


def test_a_restore_does_not_touch_what_is_there_unless_told_to(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    run = fleet.submit(["/p/1"])
    backup(fleet)
    assert fleet.work(fleet.scraper(), *QUICK, "--exit-when-done").code == 0
    refused = fleet.user.shoal("restore", "monday")
    assert refused.code == 2 and "is not empty" in refused.err and "--replace" in refused.err
    assert fleet.stats(run).done == 1

    worker = fleet.worker(fleet.scraper(), *QUICK)
    wait_until(fleet.workers)
    refused = fleet.user.shoal("restore", "monday", "--replace")
    assert refused.code == 2 and "1 worker of this queue is alive" in refused.err
    assert stop_process(worker).code == 0
    assert fleet.stats(run).done == 1

    replaced = restore(fleet, "--replace")["replaced"]
    assert fleet.stats(run).done == 0
    back = fleet.user.shoal("restore", replaced, "--replace")
    assert back.code == 0, back.err
    assert fleet.stats(run).done == 1


def test_what_is_no_whole_backup_of_this_queue_is_refused(fleet: LocalFleet, tmp_path: Path) -> None:
    fleet.site.pages["/p/*"] = page("x")
    run = fleet.submit(["/p/1"])
    backup(fleet)
    folder = fleet.user.folder / "monday"
    assert folder.stat().st_mode & 0o077 == 0 and (folder / "queue").stat().st_mode & 0o077 == 0

    def refusal(*words: str, **variables: str) -> str:
        said = fleet.user.shoal(*words, **variables)
        assert said.code in (1, 2), said
        return said.err

    assert "exists already" in refusal("backup", "monday")
    other = backend_url("redis" if fleet.queue.startswith("sqlite") else "sqlite", tmp_path)
    assert "is another" in refusal("restore", "monday", "--replace", SHOAL_QUEUE=other)
    manifest = folder / "backup.json"
    about = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(about | {"edition": 99}))
    assert "newer shoal" in refusal("restore", "monday", "--replace")
    manifest.write_text(json.dumps(about))
    with (folder / "queue").open("r+b") as data:
        data.seek(-1, os.SEEK_END)
        data.write(b"\xa5")
    assert "damaged" in refusal("restore", "monday", "--replace")
    manifest.unlink()
    assert "is not a backup" in refusal("restore", "monday", "--replace")
    assert fleet.stats(run).open == 1


async def test_a_file_that_a_process_has_open_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "shoal.db"
    queue = await SqliteQueue.open(str(path))
    with pytest.raises(RunBusy, match="another process has"):
        await SqliteBackup(path).remove()
    await queue.save_document("kind", "name", "text")
    await queue.close()
    await SqliteBackup(path).remove()
    assert not path.exists()


@pytest.mark.parametrize(
    "given", ["postgresql://me:s%40t@h:5/d?sslmode=off", "postgresql://me@h:5/d?sslmode=off&password=s%40t"]
)
def test_the_password_of_a_database_is_not_among_the_arguments_of_its_tools(given: str) -> None:
    assert without_password(given) == ("postgresql://me@h:5/d?sslmode=off", "s@t")


def test_doctor_notices_a_state_file_that_was_put_back_by_hand(tmp_path: Path) -> None:
    with local_fleet("sqlite", tmp_path) as fleet:
        fleet.site.pages["/p/*"] = page("x")
        run = fleet.submit(["/p/1", "/p/2"])
        backup(fleet)
        assert fleet.work(fleet.scraper(), *QUICK, "--exit-when-done").code == 0
        assert len(exported(fleet, run)) == 2
        assert "set back" not in fleet.user.shoal("doctor", "--quiet").out
        for name in ("queue.db", "queue.db-wal", "queue.db-shm"):
            (tmp_path / name).unlink(missing_ok=True)
        shutil.copy(tmp_path / "monday" / "queue", tmp_path / "queue.db")
        said = " ".join(fleet.user.shoal("doctor", "--quiet").out.split())
        assert "out.jsonl has 2 rows, and the queue 0 records" in said and "--fresh" in said
