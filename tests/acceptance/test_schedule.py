"""Schedules: each time fires once, whoever looks after them and dies; and the command."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from local_fleet import LocalFleet, stop_process
from small_site import page
from wait import HANG, wait_until

from shoal.cli.main import main
from shoal.control import schedule_runner, schedules
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.schedule import Schedule, ScheduledRun
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.sources.start_task import start_tasks

TICKERS = 8
KILLS = 12
SPEED = 10  # their clock, so that there are many times in a few seconds
EVERY = 3
ADDRESSES = 1100  # two documents
SECOND = 1_000_000


class Tickers:
    """Eight processes that look after schedules, killed and replaced at random."""

    def __init__(self, fleet: LocalFleet, began: int) -> None:
        self._command = [sys.executable, str(Path(__file__).with_name("schedule_ticker.py")), fleet.queue]
        self._command += [str(began), str(SPEED)]
        self._alive = [self._start() for _ in range(TICKERS)]

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(self._command, stdout=subprocess.DEVNULL)

    def kill(self, number: int) -> None:
        process = self._alive[number]
        assert process.poll() is None, "it ended by itself"
        process.kill()
        process.wait(HANG)

    def replace(self, number: int) -> None:
        self.kill(number)
        self._alive[number] = self._start()

    def kill_all(self) -> None:
        for number in range(TICKERS):
            self.kill(number)


def test_each_time_fires_once_whoever_of_many_dies(fleet: LocalFleet) -> None:
    tasks, _ = start_tasks(fleet.site.url(f"/{number}") for number in range(ADDRESSES))
    paces = {task.lane: UNLIMITED_PACE for task in tasks}

    async def add(queue: Queue) -> Schedule:
        made = Schedule("often", f"every {EVERY}s", ScheduledRun("plain"), 0, 0, overlap="allow")
        return await schedules.add(queue, made, tasks, paces)

    def found() -> Schedule:
        return fleet.ask(lambda queue: schedules.find(queue, "often"))

    made = fleet.ask(add)
    tickers = Tickers(fleet, made.since)
    wait_until(lambda: found().fired)
    dice = random.Random(7)
    for _ in range(KILLS):
        tickers.replace(dice.randrange(TICKERS))
        time.sleep(dice.uniform(0.0, 0.3))
    wait_until(lambda: found().fired >= 5)
    tickers.kill_all()
    end = fleet.ask(lambda queue: queue.now())
    fleet.ask(lambda queue: schedule_runner.tick(queue, made.since + (end - made.since) * SPEED, grace=0))
    fleet.ask(lambda queue: schedule_runner.tick(queue, made.since, grace=0))  # carries out what was decided last
    last = found()

    async def look(queue: Queue) -> list[tuple[str, int]]:
        assert not await queue.documents(kinds.SEEDING)
        runs = await queue.runs(limit=10_000)
        return [(run.key, (await queue.stats(run.id)).seen) for run in runs]

    started = fleet.ask(look)
    times = {f"schedule/often/{at}" for at in range(made.next, last.since + 1, EVERY * SECOND)}
    keys = [key for key, _ in started]
    assert len(keys) == len(set(keys)) == last.fired
    assert set(keys) <= times
    assert len(times) == last.fired + last.missed  # each is accounted for
    assert last.fired >= 5
    assert {seen for _, seen in started} == {ADDRESSES}


# The command


def said(fleet: LocalFleet, *words: str) -> str:
    done = fleet.user.shoal("schedule", *words)
    assert done.code == 0, done.err
    return done.out


class InProcessCommand:
    """The command without a process of its own, for the many small things one says to it."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *words: str, code: int = 0) -> str:
        answer = main(["schedule", *words])
        out, err = self._capture.readouterr()
        assert answer == code, err
        return err if code else out

    def ask(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def here(
    sqlite_fleet: LocalFleet, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> InProcessCommand:
    monkeypatch.chdir(sqlite_fleet.user.folder)
    monkeypatch.setenv("SHOAL_QUEUE", sqlite_fleet.queue)
    return InProcessCommand(capsys)


def test_a_worker_fires_a_schedule_and_works_on_its_runs(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/"] = page("home")
    said(sqlite_fleet, "add", sqlite_fleet.scraper(), "every 1s")
    worker = sqlite_fleet.worker("plain.py")
    wait_until(lambda: shown(sqlite_fleet)["fired"] >= 2)
    assert stop_process(worker).code == 0
    found = shown(sqlite_fleet)
    (first, *_) = reversed(found["history"])
    (run,) = sqlite_fleet.ask(lambda queue: queue.runs(name=first["run"]))
    assert (run.state, run.scraper, run.spec["schedule"]) == ("finished", "plain", "plain")
    assert sqlite_fleet.records(run) == [sqlite_fleet.site.url("/")]


def shown(fleet: LocalFleet, name: str = "plain") -> Any:
    return fleet.user.ask("schedule", "show", name)


def test_a_list_is_fired_long_after_its_file_is_gone(sqlite_fleet: LocalFleet) -> None:
    for path in "ab":
        sqlite_fleet.site.pages[f"/{path}"] = lambda hit: page(f"<h1>{hit.path}</h1>")
    (sqlite_fleet.user.folder / "urls.txt").write_text(
        f"{sqlite_fleet.site.url('/a')}\nnonsense:\n{sqlite_fleet.site.url('/b')}\n"
    )
    out = said(sqlite_fleet, "add", "urls.txt", "@yearly", "-f", "title=h1::text", "--name", "list", "--delay", "0")
    assert "2 URLs to start from" in out and "Line 2 is not a URL to fetch: nonsense:" in out
    (sqlite_fleet.user.folder / "urls.txt").unlink()
    run = sqlite_fleet.user.ask("schedule", "run", "list")["run_id"]
    done = sqlite_fleet.work("--exit-when-done")
    assert done.code == 0, done.err
    assert sqlite_fleet.user.shoal("export", run, "-o", "out.jsonl").code == 0
    assert sorted(row["title"] for row in sqlite_fleet.user.lines("out.jsonl")) == ["/a", "/b"]


def test_the_life_of_a_schedule(sqlite_fleet: LocalFleet, here: InProcessCommand) -> None:
    assert "No schedules here yet." in here("list")
    target = sqlite_fleet.scraper()
    out = here("add", target, "0 9 * * mon-fri", "--zone", "Europe/Berlin", "--overlap", "queue")
    assert "Schedule plain: Monday to Friday at 09:00 Europe/Berlin, 1 URL to start from." in out
    assert "shoal worker plain.py" in out
    assert "schedule plain already exists" in here("add", target, "@daily", code=2)
    here("add", target, "@daily", "--replace", "--overlap", "queue")
    (listed,) = here.ask("list")
    assert (listed["cron"], listed["overlap"], listed["zone"]) == ("@daily", "queue", "UTC")
    assert listed["next_at"].endswith("T00:00:00.000Z")
    assert "plain     every day at 00:00 UTC  @daily" in here("list")
    here("pause", "plain")
    found = here.ask("show", "plain")
    assert found["paused"] and found["next_at"] is None
    assert "next at" in here("resume", "plain")
    run = here("run", "plain").split()[1]
    assert f"run {run} of plain is still running" in here("run", "plain", code=2)
    assert run not in here("run", "plain", "--anyway")
    assert f"{run} (by hand)" in here("show", "plain")
    assert "it had fired 2 times" in here("remove", "plain")
    assert "there is no schedule plain here" in here("show", "plain", code=2)
    assert len(sqlite_fleet.ask(lambda queue: queue.runs())) == 2


REFUSED = [
    (("add", "plain.py", "61 * * * *"), "minute 61: 0 to 59"),
    (("add", "plain.py", "0 3 * *"), "it takes five fields"),
    (("add", "plain.py", "@daily", "--zone", "Mars"), "there is no time zone Mars"),
    (("add", "plain.py", "@daily", "--overlap", "maybe"), "maybe"),
    (("add", "plain.py", "@daily", "--name", "a/b"), "is not a valid schedule name"),
    (("add", "@daily", "plain.py"), "shoal schedule add plain.py @daily"),
    (("add", "none.py", "@daily"), "none.py"),
    (("add", "alone.py", "@daily"), "has the mode single"),
    (("add", "plain.py", "@daily", "--proxy", "http://me:secret@proxy.example:8080"), "holds a secret"),
    (("add", "plain.py"), "WHEN"),
    (("run", "none"), "there is no schedule none here"),
    (("pause", "none"), "there is no schedule none here"),
]


def test_what_cannot_be_scheduled_is_refused_and_nothing_is_kept(
    sqlite_fleet: LocalFleet, here: InProcessCommand
) -> None:
    sqlite_fleet.scraper()
    sqlite_fleet.scraper("alone", ISOLATED)
    for words, why in REFUSED:
        err = here(*words, code=2)
        assert why in err and "secret@" not in err, words
    assert here.ask("list") == []


ISOLATED = """
import shoal

{name} = shoal.Scraper("{name}", start="{url}", mode="single")
"""
