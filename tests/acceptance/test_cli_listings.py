"""The listings and what acts on runs, over a real state file: for people and as JSON."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wait import HANG

from shoal import run_sync
from shoal.cli.hints import queue_option
from shoal.cli.main import main
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE, Pace, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, LaneChange, Outcome, Task
from shoal.core.url import canonical, lane_of, request_digest
from shoal.extract.load import load_scraper
from shoal.queue.sqlite import SqliteQueue
from shoal.view import status as status_view

SHOP = "http://shop.example"
Shoal = Callable[..., tuple[int, str, str]]


def task(url: str, parent: int | None = None, **more: Any) -> Task:
    url = canonical(url)
    return Task(url=url, lane=lane_of(url), digest=request_digest(url), parent=parent, **more)


async def claim_one(queue: SqliteQueue, run: Run, url: str) -> tuple[int, int]:
    """Claim until `url` comes; everything else is given back."""
    while True:
        claim = await queue.claim("w1", 1)
        (held,) = claim.tasks
        if held.url == canonical(url):
            return held.id, held.lease
        await queue.settle([Outcome(held.id, held.lease, "released")])


async def make_state(queue: SqliteQueue) -> None:
    """A run in the middle of its work, with one of everything."""
    books = await queue.start_run(NewRun(scraper="books", key="b", name="7KQ2A"))
    await queue.add(books.id, [task(f"{SHOP}/")], {"shop.example": UNLIMITED_PACE})
    start, lease = await claim_one(queue, books, f"{SHOP}/")
    now = await queue.now()
    ok = Attempt(at=now, worker="w1", status=200, seconds=0.12, size=3000)
    await queue.settle(
        [
            Outcome(
                start,
                lease,
                "done",
                attempt=ok,
                records=(b'{"title":"Start","n":1}',),
                found=(task(f"{SHOP}/list", start, depth=1),),
                skipped=(("robots", f"{SHOP}/private"), ("scope", "http://else.example/")),
            )
        ]
    )
    listing, lease = await claim_one(queue, books, f"{SHOP}/list")
    found = tuple(task(f"{SHOP}/item/{n}", listing, depth=2) for n in range(1, 6))
    slow = task("http://slow.example/1", listing), task("http://slow.example/2", listing)
    parked = task("http://parked.example/", listing)
    await queue.settle([Outcome(listing, lease, "done", attempt=ok, found=(*found, *slow, parked))])
    await queue.add(books.id, slow, {"slow.example": Pace(50.0, 1)})
    for number, cause, status in ((1, "http.404", 404), (2, "http.503", 503)):
        item, lease = await claim_one(queue, books, f"{SHOP}/item/{number}")
        bad = Attempt(at=now, worker="w1", cause=cause, message=f"answered {status}", status=status, seconds=0.5)
        await queue.settle([Outcome(item, lease, "dead", attempt=bad, cause=cause, evidence={"status": status})])
    again, lease = await claim_one(queue, books, f"{SHOP}/item/3")
    late = Attempt(at=now, worker="w1", cause="timeout.total", seconds=30.0)
    await queue.settle([Outcome(again, lease, "retry", attempt=late, after=500.0, cause="timeout.total")])
    await queue.set_lane(LaneChange("parked.example", park_for=500.0, reason="403 from every page"))
    await claim_one(queue, books, f"{SHOP}/item/4")
    mark = WorkerStatus("w1", "w1", "here", 1, "0", now, now)
    await queue.register(mark)


@pytest.fixture
def shoal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Shoal:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(status_view, "SAMPLE_SECONDS", 0.01)

    def call(*args: str) -> tuple[int, str, str]:
        code = main(list(args))
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


@pytest.fixture
def state(shoal: Shoal) -> None:
    async def make() -> None:
        queue = await SqliteQueue.open(".shoal/shoal.db")
        await make_state(queue)
        await queue.close()

    asyncio.run(make())


def read(shoal: Shoal, *args: str) -> Any:
    code, out, err = shoal(*args, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


@pytest.mark.parametrize(
    ("args", "empty"), [(["runs"], []), (["status"], None), (["dead"], []), (["dead", "--list"], [])]
)
def test_where_nothing_was_run_listings_say_so_and_make_no_state(shoal: Shoal, args: list[str], empty: object) -> None:
    code, out, err = shoal(*args)
    assert (code, err) == (0, "")
    assert out.startswith("No runs here yet.\n  try: shoal new")
    assert read(shoal, *args) == empty
    assert not Path(".shoal").exists()


@pytest.mark.parametrize("args", [["status", "x"], ["dead", "x"], ["pause"], ["why", SHOP], ["revive", "--all"]])
def test_where_nothing_was_run_asking_for_a_thing_is_a_usage_error(shoal: Shoal, args: list[str]) -> None:
    code, out, err = shoal(*args)
    assert (code, out) == (2, "")
    assert err.startswith("shoal: ")
    assert "\n  try: " in err


def test_runs_lists_what_is_kept(shoal: Shoal, state: None) -> None:
    (run,) = read(shoal, "runs")
    assert (run["name"], run["scraper"], run["state"], run["dead"]) == ("7KQ2A", "books", "running", 2)
    assert run["seen"] == run["done"] + run["dead"] + run["cancelled"] + run["open"]
    code, out, _ = shoal("runs")
    assert code == 0
    assert "7KQ2A" in out


@pytest.mark.parametrize("named", ["7KQ2A", "7K", "7kq2a", "books"])
def test_a_run_is_found_by_name_by_its_beginning_and_by_scraper(shoal: Shoal, state: None, named: str) -> None:
    assert read(shoal, "status", named)["name"] == "7KQ2A"


def test_a_name_that_is_not_there_or_not_clear_is_a_usage_error(shoal: Shoal, state: None) -> None:
    code, _, err = shoal("status", "ZZ")
    assert code == 2
    assert "there is no run ZZ" in err

    async def another() -> None:
        queue = await SqliteQueue.open(".shoal/shoal.db")
        await queue.start_run(NewRun(scraper="other", key="o", name="7KZZZ"))
        await queue.close()

    asyncio.run(another())
    code, _, err = shoal("status", "7K")
    assert code == 2
    assert "7KQ2A" in err
    assert "7KZZZ" in err
    assert read(shoal, "status")["name"] == "7KZZZ"


def test_status_says_what_limits_the_run(shoal: Shoal, state: None) -> None:
    found = read(shoal, "status")
    kinds = [limit["kind"] for limit in found["limits"]]
    assert {"host", "held", "retry", "robots"} <= set(kinds)
    assert found["decided_by"] in ("slow.example", "parked.example")
    assert found["dead_by_cause"] == {"http.404": 1, "http.503": 1}
    assert found["skipped"] == {"robots": 1, "scope": 1}
    code, out, _ = shoal("status")
    assert code == 0
    assert "What limits it" in out
    assert "403 from every page" in out
    assert "because of robots.txt" in out


def test_dead_groups_by_host_and_cause_with_a_sample(shoal: Shoal, state: None) -> None:
    groups = read(shoal, "dead")
    assert {(g["host"], g["cause"], g["count"], g["sample"]) for g in groups} == {
        ("shop.example", "http.404", 1, f"{SHOP}/item/1"),
        ("shop.example", "http.503", 1, f"{SHOP}/item/2"),
    }
    (letter,) = read(shoal, "dead", "--list", "--where", "cause=http.5*")
    assert (letter["url"], letter["message"]) == (f"{SHOP}/item/2", "answered 503")
    assert letter["evidence"] == {"status": 503}
    (group,) = read(shoal, "dead", "--where", "url=*/item/1")
    assert group["cause"] == "http.404"
    assert "http.503" in shoal("dead")[1]
    assert shoal("dead", "--where", "colour=red")[0] == 2


def test_dead_without_a_run_is_about_all_runs(shoal: Shoal, state: None) -> None:
    async def newer() -> None:
        queue = await SqliteQueue.open(".shoal/shoal.db")
        for name, dead in (("7KR00", True), ("7KS00", False)):
            run = await queue.start_run(NewRun(scraper="toys", key=name, name=name))
            await queue.add(run.id, [task(f"http://{name}.example/")], {f"{name.lower()}.example": UNLIMITED_PACE})
            claim = await queue.claim("w1", 1, serves=[name])
            bad = Attempt(at=await queue.now(), worker="w1", cause="dns")
            how: Any = "dead" if dead else "done"
            await queue.settle([Outcome(it.id, it.lease, how, attempt=bad, cause="dns") for it in claim.tasks])
            await queue.set_run(run.id, "finish")
        await queue.close()

    asyncio.run(newer())
    assert next((g["run"], g["cause"]) for g in read(shoal, "dead")) == ("7KR00", "dns")
    assert {g["run"] for g in read(shoal, "dead")} == {"7KR00", "7KQ2A"}
    assert {g["run"] for g in read(shoal, "dead", "--list")} == {"7KR00", "7KQ2A"}
    assert len(read(shoal, "dead", "--list", "--limit", "2")) == 2
    assert {g["run"] for g in read(shoal, "dead", "books")} == {"7KQ2A"}
    _, out, _ = shoal("dead")
    assert all(words in out for words in ("7KR00", "7KQ2A", "http.503", "dns", "shoal revive 7KR00 --all"))
    assert "7KR00" in shoal("dead", "--list")[1]
    assert "7KR00" not in shoal("dead", "books")[1]


PASTED = re.compile(r"\bshoal (?:\w+)(?: --queue '[^']*')?(?: (?:--\w+(?: \w+)?|[0-9w]\w+))*")
HINTS = (
    (["dead"], "revive"), (["dead"], "why"), (["status"], "dead"), (["pause"], "resume"),
    (["revive", "--where", "cause=http.5*"], ""), (["why", f"{SHOP}/nothing"], "status"), (["status", "nope"], "runs"),
    (["drain", "nobody"], "workers"), (["drain", "w1", "--pause"], "drain"), (["token", "list"], "token"),
)  # fmt: skip


def test_hints_can_be_pasted_where_the_queue_was_named(shoal: Shoal, state: None) -> None:
    Path(".shoal").rename("elsewhere and far")
    queue = "sqlite:///elsewhere and far/shoal.db"
    for args, word in HINTS:
        _, out, err = shoal(*args, "--queue", queue)
        text = out + err
        told = [line for line in text.splitlines() if "shoal " in line]
        assert all("--queue 'sqlite:///elsewhere and far/shoal.db'" in line for line in told), text
        assert not word or any(f"shoal {word} " in line for line in told), (args, text)
        for line in told:
            for command in PASTED.findall(line):
                words = shlex.split(command)[1:]
                if words[0] in ("resume", "status", "dead", "runs", "workers", "drain"):
                    assert shoal(*words)[0] == 0, command
    assert not Path(".shoal").exists()
    # Found without being named, it needs no option; and a password is never shown.
    Path("elsewhere and far").rename(".shoal")
    assert "--queue" not in shoal("dead")[1]


def test_a_password_in_the_queue_is_in_no_hint() -> None:
    named = load({"queue": "redis://:secret@h/0"}, env={})
    assert queue_option(named) == ""
    assert queue_option(load({"queue": "redis://h/0"}, env={})) == " --queue redis://h/0"
    assert queue_option(load({}, env={"SHOAL_QUEUE": "redis://h/0"})) == ""


def test_revive_puts_back_what_is_asked_for(shoal: Shoal, state: None) -> None:
    assert shoal("revive")[0] == 2
    assert read(shoal, "revive", "--where", "cause=http.5* host=shop.example")["revived"] == 1
    assert read(shoal, "revive", "--all")["revived"] == 1
    assert read(shoal, "dead") == []
    assert "No dead letters." in shoal("dead")[1]


WHYS = {
    f"{SHOP}/": ("done", "it is done", 0),
    f"{SHOP}/item/1": ("dead", "it failed permanently: http.404", 0),
    f"{SHOP}/item/3": ("delayed", "it is retried in", 0),
    f"{SHOP}/item/4": ("leased", "worker w1 has it", 0),
    f"{SHOP}/item/5": ("ready", "it is next", 0),
    "http://slow.example/2": ("ready", "waits for its turn at slow.example: 1 before it, 1 page every 50 s", 0),
    "http://parked.example/": ("ready", "parked for 8:", 0),
    f"{SHOP}/private": ("unknown", "links to it were refused (robots)", 0),
    "http://nobody.example/": ("unknown", "never seen", 2),
}


@pytest.mark.parametrize("url", list(WHYS))
def test_why_says_why_it_is_not_being_fetched_this_second(shoal: Shoal, state: None, url: str) -> None:
    state_now, words, wanted = WHYS[url]
    code, out, _ = shoal("why", url, "--json")
    found = json.loads(out)
    assert (code, found["state"]) == (wanted, state_now)
    assert words in found["reason"]
    assert shoal("why", url)[0] == wanted


def test_why_tells_who_found_it_and_every_attempt(shoal: Shoal, state: None) -> None:
    found = read(shoal, "why", f"{SHOP}/item/2")
    assert found["found_by"] == [f"{SHOP}/list", f"{SHOP}/"]
    (attempt,) = found["attempts"]
    assert (attempt["worker"], attempt["status"], attempt["milliseconds"]) == ("w1", 503, 500.0)
    _, out, _ = shoal("why", "shop.example/item/2#part")
    assert f"found by  {SHOP}/list" in out
    assert f"← {SHOP}/" in out
    assert "answered 503" in out


def test_pause_resume_and_cancel(shoal: Shoal, state: None) -> None:
    assert read(shoal, "pause")["state"] == "paused"
    assert "the run is paused" in read(shoal, "why", f"{SHOP}/item/5")["reason"]
    assert "shoal resume 7KQ2A" in shoal("status")[1]
    assert read(shoal, "resume", "books")["state"] == "running"
    before = read(shoal, "status", "7KQ2A")
    out = shoal("cancel", "7KQ2A")[1]
    assert "cancelled" in out and "shoal cancel --undo 7KQ2A" in out
    code, out, _ = shoal("cancel", "--undo", "7KQ2A")
    assert (code, "is running again" in out) == (0, True)
    assert read(shoal, "status", "7KQ2A")["ready"] == before["ready"]
    code, _, err = shoal("cancel", "--undo", "7KQ2A")
    assert (code, "there is no cancel to undo" in err) == (2, True)
    shoal("cancel", "7KQ2A")
    assert "dropped" in read(shoal, "why", f"{SHOP}/item/5")["reason"]


def test_export_writes_files_and_pipes(shoal: Shoal, state: None) -> None:
    code, out, _ = shoal("export", "-o", "x.jsonl")
    assert (code, out) == (0, "x.jsonl: 1 record, 1 of them new.\n")
    assert json.loads(Path("x.jsonl").read_text()) == {"title": "Start", "n": 1}
    assert shoal("export", "-o", "x.jsonl")[1] == "x.jsonl: 1 record, 0 of them new.\n"
    code, out, _ = shoal("export", "-o", "-")
    assert json.loads(out) == {"title": "Start", "n": 1}
    code, out, _ = shoal("export", "-o", "-", "--format", "csv")
    assert list(csv.DictReader(io.StringIO(out))) == [{"title": "Start", "n": "1"}]
    shoal("cancel")
    Path("y.csv").write_text("something else")
    code, _, err = shoal("export", "-o", "y.csv")
    assert code == 2
    assert "--fresh" in err
    assert shoal("export", "-o", "y.txt")[0] == 2


def test_doctor_finds_the_state_and_states_its_promises(shoal: Shoal, state: None) -> None:
    found = read(shoal, "doctor")
    assert found["ok"]
    assert any("state in .shoal/shoal.db: 1 run" in finding["words"] for finding in found["findings"])
    assert found["promises"]["durable"]
    assert "at least once" in shoal("doctor")[1]


def test_doctor_names_what_is_bad_and_how_to_put_it_right(shoal: Shoal) -> None:
    Path("notes.txt").write_text("not a database at all, but long enough to look like one" * 20)
    code, out, _ = shoal("doctor", "--queue", "notes.txt")
    assert code == 1
    assert "wrong" in out
    assert "try: " in out


def test_demo_serves_and_what_new_writes_brings_every_book(shoal: Shoal) -> None:
    command = [sys.executable, "-m", "shoal", "demo", "--port", "0", "--products", "30"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        address = demo.stdout.readline().partition(" is at ")[2].partition(" ")[0]
        try:
            assert shoal("new", "books.py", "--start", address, "--allow-private")[0] == 0
            result = run_sync(load_scraper("books.py"), allow_private=True)
            assert len({record["url"] for record in result}) == len(result) == 30
        finally:
            demo.terminate()
        assert demo.wait(HANG) == 0
    (run,) = read(shoal, "runs")
    assert (run["scraper"], run["state"], run["records"], run["balanced"]) == ("books", "finished", 30, True)
    found = read(shoal, "why", next(iter(result))["url"])
    assert found["state"] == "done"
    assert found["found_by"][-1] == address
    assert [attempt["status"] for attempt in found["attempts"]] == [200]
    assert "ended" in shoal("status")[1]
    assert shoal("export", "-o", "books.csv")[0] == 0
    with Path("books.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 30
