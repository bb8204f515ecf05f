"""shoal move: a run goes on in another queue, whole, and never in both."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from backend_urls import QUEUE_KINDS, backend_url
from shell_user import BOOKS_SCRAPER, ShellUser
from unreliable_queue import CrashingQueue, Killed
from wait import FOREVER, HANG, until, wait_until

from shoal import app
from shoal.commands import move
from shoal.commands.move import MoveResult, RunMove
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, LaneChange, Outcome, Task, digest
from shoal.core.typed_task import Task as TypedTask
from shoal.errors import NotBalanced, RunBusy, UsageError
from shoal.queue.base import Queue
from shoal.queue.follow_ups import follow_up_entry
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.records import RecordsReader
from shoal.runs.relay import Relay
from shoal.store.results.base import open_results

NAME = "20261115_120000_abc"
PAIRS = [(one, other) for one in QUEUE_KINDS for other in QUEUE_KINDS]


class QueuePair:
    """Two queues, and what one does with them."""

    def __init__(self, urls: tuple[str, str], source: Queue, target: Queue) -> None:
        self.urls = urls
        self.source = source
        self.target = target

    async def move(self, run: Run, *, force: bool = False, lease_timeout: float = 0.0) -> MoveResult:
        (now,) = await self.source.runs(name=run.name)
        move = RunMove(
            self.source, self.target, "there", lease_timeout=lease_timeout, force=force, on_progress=lambda *_: None
        )
        return await move.run(now)

    async def states(self, name: str = NAME) -> tuple[str, str]:
        found = [await queue.runs(name=name) for queue in (self.source, self.target)]
        return tuple(runs[0].state if runs else "" for runs in found)  # type: ignore[return-value]


@pytest.fixture
async def open_pair(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[QueuePair]]]:
    opened: list[Queue] = []

    async def pair(one: str = "sqlite", other: str = "sqlite") -> QueuePair:
        urls = backend_url(one, tmp_path), backend_url(other, tmp_path)
        queues = [await app.open_queue(load({"queue": url})) for url in urls]
        opened.extend(queues)
        return QueuePair(urls, *queues)

    yield pair
    for queue in opened:
        await queue.close()


def page(name: str, lane: str = "a.test", **more: Any) -> Task:
    return Task(url=f"http://{lane}/{name}", lane=lane, digest=digest(name), **more)


async def populated_run(queue: Queue, *, records: int = 3, name: str = NAME) -> Run:
    """A run in which much has happened: done, dead, to be tried again, found, delayed."""
    run = await queue.start_run(
        NewRun(scraper="books", key=f"key-{name}", name=name, spec={"x": 1}, weight=2, max_pages=50)
    )
    tasks = [page(f"p{n}", meta={"n": n}) for n in range(8)]
    await queue.add(run.id, tasks, {"a.test": UNLIMITED_PACE})
    claim = await queue.claim("w", 4)
    data = tuple(json.dumps({"n": n}).encode() for n in range(records))
    found = (page("child", "b.test", parent=claim.tasks[0].id),)
    failed = Attempt(1, "w", "http.500", "no", 500)
    results = [
        {"result": "done", "records": data, "found": found, "skipped": (("robots", "u"),)},
        {"result": "done", "records": data},
        {"result": "dead", "cause": "http.404", "evidence": {"a": "ü"}},
        {"result": "retry", "after": 60.0, "cause": "http.500", "attempt": failed},
    ]
    outcomes = [
        Outcome(task.id, task.lease, **result)  # type: ignore[arg-type]
        for task, result in zip(claim.tasks, results, strict=True)
    ]
    assert await queue.settle(outcomes, {"b.test": Pace(0.5, 3)}) == ["ok"] * 4
    await queue.add(run.id, [page("later", delay=100.0)])
    await queue.set_lane(LaneChange("b.test", spacing=2.5, reason="429"))
    return run


async def run_contents(queue: Queue, run: Run) -> Any:
    """Everything that must be the same in both queues."""
    stats = await queue.stats(run.id)
    assert await queue.recount(run.id) == stats
    views = {
        view.url: (view.state, view.attempts, view.cause, view.records, view.meta, view.evidence)
        for view in await queue.list_tasks(run.id, limit=1000)
    }
    records = [(one.seq, one.task & 0xFFFFFFFF, one.data) for one in await queue.records(run.id)]
    counts = (stats.seen, stats.open, stats.delayed, stats.done, stats.dead, stats.records, stats.retries)
    return counts, stats.skipped, views, records


@pytest.mark.parametrize(("one", "other"), PAIRS)
async def test_a_run_goes_on_in_any_other_queue(
    open_pair: Callable[..., Awaitable[QueuePair]], one: str, other: str
) -> None:
    pair = await open_pair(one, other)
    run = await populated_run(pair.source)
    await pair.source.set_lane(LaneChange("a.test", spacing_override=7.0, limit=1))
    before = await run_contents(pair.source, run)
    moved = await pair.move(run)
    assert await pair.states() == ("cancelled", "running")
    assert await run_contents(pair.target, moved.run) == before
    there = moved.run
    assert (there.key, there.scraper, there.weight, there.max_pages, there.spec["x"]) == (
        run.key, "books", 2, 50, 1,
    )  # fmt: skip
    lanes = {lane.name: lane for lane in await pair.target.lanes(run=there.id)}
    assert (lanes["a.test"].spacing_override, lanes["a.test"].limit) == (7.0, 1)
    assert (lanes["b.test"].learned, lanes["b.test"].requested, lanes["b.test"].spacing) == (2.5, 0.5, 2.5)
    assert set(await pair.target.add(there.id, [page("p0"), page("p7"), page("child")])) == {"known"}
    assert (await pair.source.claim("w", 10)).tasks == ()
    claim = await pair.target.claim("w", 10)
    assert claim.tasks and {task.run for task in claim.tasks} == {there.id}
    assert await pair.target.revive(there.id) == 1


async def test_a_run_without_limits_is_worked_off_where_it_went(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair("sqlite", "redis")
    run = await populated_run(pair.source)
    there = (await pair.move(run)).run
    while (await pair.target.stats(there.id)).done < 6:
        claim = await pair.target.claim("w", 10)
        done = [Outcome(task.id, task.lease, "done", records=(b'{"new":1}',)) for task in claim.tasks]
        await pair.target.settle(done)
        await asyncio.sleep(claim.next_in or 0.0)
    records = await pair.target.records(there.id)
    seqs = [one.seq for one in records]
    assert seqs == sorted(set(seqs))
    assert [one.data for one in records[:6]] == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}'] * 2
    assert {one.data for one in records[6:]} == {b'{"new":1}'} and len(records) >= 10


@pytest.mark.parametrize("state", ["paused", "finished", "cancelled"])
async def test_a_run_keeps_its_state(open_pair: Callable[..., Awaitable[QueuePair]], state: str) -> None:
    pair = await open_pair("sqlite", "redis")
    run = await pair.source.start_run(NewRun("books", "key", NAME))
    await pair.source.add(run.id, [page(f"p{n}") for n in range(3)], {"a.test": UNLIMITED_PACE})
    if state == "finished":
        claim = await pair.source.claim("w", 3)
        await pair.source.settle([Outcome(task.id, task.lease, "done") for task in claim.tasks])
    action = {"paused": "pause", "finished": "finish", "cancelled": "cancel"}[state]
    await pair.source.set_run(run.id, action)  # type: ignore[arg-type]
    moved = await pair.move(run)
    assert moved.run.state == state
    assert (await pair.target.stats(moved.run.id)).seen == 3
    assert (await pair.states())[0] == ("cancelled" if state == "paused" else state)


async def test_a_run_may_come_back(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair("sqlite", "redis")
    run = await populated_run(pair.source)
    before = await run_contents(pair.source, run)
    there = (await pair.move(run)).run
    back = QueuePair(pair.urls[::-1], pair.target, pair.source)
    moved = await back.move(there)
    assert await pair.states() == ("running", "cancelled")
    assert await run_contents(pair.source, moved.run) == before
    assert (await pair.move(moved.run)).run.state == "running"
    assert await pair.states() == ("cancelled", "running")


async def test_moving_again_what_has_moved_changes_nothing(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    first = await pair.move(run)
    await pair.target.set_run(first.run.id, "pause")
    again = await pair.move(run)
    assert again.already_moved and again.run.state == "paused"
    third = await open_pair()
    elsewhere = QueuePair(pair.urls, pair.source, third.target)
    with pytest.raises(UsageError, match="was moved to there"):
        await elsewhere.move(run)


async def test_a_run_that_workers_hold_stays_and_goes_on(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    claim = await pair.source.claim("w", 2)
    assert len(claim.tasks) == 2
    with pytest.raises(RunBusy, match="still hold 2 pages"):
        await pair.move(run, lease_timeout=0.3)
    assert await pair.states() == ("running", "")
    moved = await pair.move(run, force=True)
    assert (await pair.target.stats(moved.run.id)).leased == 0
    late = [Outcome(task.id, task.lease, "done", records=(b"{}",)) for task in claim.tasks]
    await pair.source.settle(late)
    assert (await pair.target.stats(moved.run.id)).records == 6


async def is_held(pair: QueuePair) -> bool:
    return (await pair.source.runs(name=NAME))[0].state != "running"


async def test_pages_under_way_are_waited_for(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    claim = await pair.source.claim("w", 2)
    waiting = asyncio.create_task(pair.move(run, lease_timeout=FOREVER))
    await until(lambda: is_held(pair))
    await pair.source.settle([Outcome(task.id, task.lease, "done", records=(b"{}",)) for task in claim.tasks])
    moved = await waiting
    assert (moved.stats.done, moved.stats.records, moved.stats.leased) == (4, 8, 0)


async def test_what_a_run_has_settled_takes_its_course_where_it_was(
    open_pair: Callable[..., Awaitable[QueuePair]],
) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    (task,) = (await pair.source.claim("w", 1)).tasks
    follow_up = follow_up_entry(TypedTask(type="mail", key="a").to_queue_task(), None)
    await pair.source.settle([Outcome(task.id, task.lease, "done", outbox=(follow_up,))])
    moved = await pair.move(run)
    assert moved.stats.outbox == 0
    (daily,) = await pair.source.runs(scraper="task:mail")
    assert (await pair.source.stats(daily.id)).ready == 1
    assert await pair.target.runs(scraper="task:mail") == []


async def test_a_run_that_is_still_being_seeded_stays(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    await pair.source.compare_and_swap("seeding", NAME, "{}", 0)
    with pytest.raises(RunBusy, match="still being added"):
        await pair.move(run)
    assert await pair.states() == ("running", "")
    await pair.move(run, force=True)
    assert await pair.target.document("seeding", NAME) is not None
    assert await pair.states() == ("cancelled", "running")


async def test_another_run_at_the_target_is_in_the_way(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    await pair.target.start_run(NewRun("other", "other", NAME))
    with pytest.raises(UsageError, match="another run called"):
        await pair.move(run)
    pair = await open_pair()
    run = await populated_run(pair.source)
    await pair.target.start_run(NewRun("books", run.key, "20261115_130000_xyz"))
    with pytest.raises(UsageError, match="run 20261115_130000_xyz of the same command"):
        await pair.move(run)
    assert await pair.target.documents("seeding") == [] == await pair.target.documents("arriving")


async def test_typed_tasks_move_beside_those_that_are_there(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair()
    new = NewRun("task:profile", "task:profile/2026-11-15", "20261115_profile_abc")
    run = await pair.source.start_run(new)
    await pair.source.add(run.id, [page("u1", "task:profile:0", kind="profile")], {"task:profile:0": UNLIMITED_PACE})
    await pair.target.start_run(NewRun("task:profile", new.key, "20261115_profile_xyz"))
    moved = await pair.move(run)
    assert moved.run.state == "running"
    assert len((await pair.target.claim("w", 5, serves=["task:profile"])).tasks) == 1


async def test_templates_travel_with_their_versions(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair("sqlite", "redis")
    for text in ("one", "two", "three"):
        await pair.source.save_document("template", "shop", text)
    run = await pair.source.start_run(NewRun("shop", "key", NAME, spec={"template": "shop", "template_version": 2}))
    await pair.move(run)
    assert [await _text(pair.target, number) for number in (1, 2, 3)] == ["one", "two", None]
    other = await open_pair()
    await other.source.save_document("template", "shop", "one")
    await other.target.save_document("template", "shop", "another")
    run = await other.source.start_run(NewRun("shop", "key", NAME, spec={"template": "shop", "template_version": 1}))
    with pytest.raises(UsageError, match="another template shop"):
        await other.move(run)
    assert await other.states() == ("running", "")


async def _text(queue: Queue, version: int) -> str | None:
    document = await queue.document("template", "shop", version)
    return document.text if document else None


async def test_holds_and_parked_hosts_stay_held(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair("redis", "sqlite")
    run = await populated_run(pair.source)
    await pair.source.set_lane(LaneChange("a.test", hold_for=500.0, reason="Retry-After"))
    await pair.source.set_lane(LaneChange("b.test", park_for=900.0, reason="403 everywhere"))
    there = (await pair.move(run)).run
    lanes, now = {it.name: it for it in await pair.target.lanes(run=there.id)}, await pair.target.now()
    assert 490 < (lanes["a.test"].held_until - now) / 1e6 < 501
    assert lanes["b.test"].parked and 890 < (lanes["b.test"].held_until - now) / 1e6 < 901
    assert lanes["b.test"].reason == "403 everywhere"


async def test_records_that_are_in_a_store_are_neither_lost_nor_stored_twice(
    open_pair: Callable[..., Awaitable[QueuePair]], tmp_path: Path
) -> None:
    pair = await open_pair("sqlite", "redis")
    store = await open_results(f"sqlite:///{tmp_path}/results.db")
    try:
        run = await populated_run(pair.source, records=4)
        await Relay(pair.source, store).drain(run)
        claim = await pair.source.claim("w", 1)
        await pair.source.settle([Outcome(t.id, t.lease, "done", records=(b'{"n":9}',)) for t in claim.tasks])
        there = (await pair.move(run)).run
        claim = await pair.target.claim("w", 1)
        await pair.target.settle([Outcome(t.id, t.lease, "done", records=(b'{"n":10}',)) for t in claim.tasks])
        reader = RecordsReader(pair.target, store)
        whole = [one.data for one in await reader.records(there.id)]
        assert len(whole) == 8
        assert await Relay(pair.source, store).drain_all() == 0, "what has left is not carried from there"
        assert await Relay(pair.target, store).drain_all() == 2
        assert [kept.data async for kept in store.aggregate("books")] == [*whole, b'{"n":9}', b'{"n":10}']
    finally:
        await store.close()


async def test_a_run_that_did_not_arrive_whole_goes_on_nowhere(
    open_pair: Callable[..., Awaitable[QueuePair]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    import_run = pair.target.import_run

    async def lossy(run: int, tasks: Any, records: Any = (), **more: Any) -> None:
        await import_run(run, tasks[:-1], records, **more)

    monkeypatch.setattr(pair.target, "import_run", lossy)
    with pytest.raises(NotBalanced):
        await pair.move(run)
    assert await pair.states() == ("paused", "paused")


async def test_a_run_that_somebody_let_go_on_meanwhile_is_copied_anew(
    open_pair: Callable[..., Awaitable[QueuePair]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = await open_pair()
    run = await populated_run(pair.source)
    stop, import_run = asyncio.Event(), pair.target.import_run

    async def interrupted(run: int, tasks: Any, *rest: Any, **more: Any) -> None:
        if tasks:
            await import_run(run, tasks, *rest, **more)
        else:
            stop.set()
            await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(pair.target, "import_run", interrupted)
        task = asyncio.create_task(pair.move(run))
        await stop.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await pair.states() == ("paused", "paused")
    await pair.source.set_run(run.id, "resume")
    claim = await pair.source.claim("w", 2)
    await pair.source.settle([Outcome(t.id, t.lease, "done", records=(b'{"late":1}',)) for t in claim.tasks])
    moved = await pair.move(run)
    assert (moved.stats.done, moved.stats.records) == (4, 8)
    assert await pair.states() == ("cancelled", "running")


# interrupted


@pytest.mark.parametrize("after", [False, True])
async def test_interrupted_at_any_step_the_same_command_goes_on(after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move, "SLICE", 4)
    monkeypatch.setattr(move, "FIRST_BATCH", 2)
    monkeypatch.setattr(move, "SAVE_EVERY", 1)
    step, dead = 0, True
    while dead:
        step, left = step + 1, [step + 1]
        source, target = [await SqliteQueue.open(":memory:") for _ in "ab"]
        pair = QueuePair(("", ""), source, target)
        run = await populated_run(source)
        before = await run_contents(source, run)
        crashing_queues = (CrashingQueue(queue, left, after=after) for queue in (source, target))
        try:
            await QueuePair(("", ""), *crashing_queues).move(run)  # type: ignore[arg-type]
            dead = False
        except Killed:
            assert await pair.states() != ("running", "running")
            await pair.move(run)
        assert await pair.states() == ("cancelled", "running"), step
        (there,) = await target.runs(name=NAME)
        assert await run_contents(target, there) == before, step
        assert await target.documents("arriving") == [] == await target.documents("seeding"), step
        await source.close()
        await target.close()
    assert step > 40


MOVE = """
import asyncio, sys
from shoal import app
from shoal.commands import move
from shoal.config.load import load

move.SLICE, move.FIRST_BATCH, move.SAVE_EVERY = 20, 5, 2

async def main(one, other, name):
    source, target = [await app.open_queue(load({"queue": url})) for url in (one, other)]
    (run,) = await source.runs(name=name)
    print("ready", flush=True)
    whole = move.RunMove(source, target, "there", lease_timeout=1, force=False, on_progress=lambda *_: None)
    await whole.run(run)
    await source.close(); await target.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(("one", "other"), [("sqlite", "redis"), ("redis", "postgres"), ("postgres", "sqlite")])
async def test_killed_at_any_moment_the_same_command_goes_on(
    open_pair: Callable[..., Awaitable[QueuePair]], one: str, other: str
) -> None:
    pair = await open_pair(one, other)
    run = await populated_run(pair.source, records=40)
    await pair.source.add(run.id, [page(f"more{n}") for n in range(300)], {"a.test": UNLIMITED_PACE})
    before, kills, pause = await run_contents(pair.source, run), 0, 0.01
    while True:
        process = subprocess.Popen([sys.executable, "-c", MOVE, *pair.urls, NAME], stdout=subprocess.PIPE)
        assert process.stdout is not None
        await asyncio.to_thread(process.stdout.readline)
        try:
            await asyncio.to_thread(process.wait, pause)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
        code = process.wait()
        process.stdout.close()
        assert await pair.states() != ("running", "running")
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills, pause = kills + 1, pause * 2
    assert kills
    assert await pair.states() == ("cancelled", "running")
    (there,) = await pair.target.runs(name=NAME)
    after = await run_contents(pair.target, there)
    assert after[0] == before[0] and after[2:] == before[2:]
    assert await pair.target.documents("arriving") == [] == await pair.target.documents("seeding")


# many


async def test_twenty_thousand_tasks_move(open_pair: Callable[..., Awaitable[QueuePair]]) -> None:
    pair = await open_pair("sqlite", "redis")
    run = await pair.source.start_run(NewRun("books", "key", NAME))
    for first in range(0, 20_000, 2000):
        tasks = [page(f"p{n}", f"h{n % 50}.test") for n in range(first, first + 2000)]
        await pair.source.add(run.id, tasks, {f"h{n}.test": UNLIMITED_PACE for n in range(50)})
    for _ in range(10):
        claim = await pair.source.claim("w", 500)
        await pair.source.settle([Outcome(t.id, t.lease, "done", records=(b'{"a":1}',)) for t in claim.tasks])
    before = await pair.source.stats(run.id)
    moved = await pair.move(run)
    assert (moved.stats.seen, moved.stats.done, moved.stats.records) == (20_000, before.done, before.records)
    assert before.done >= 4000


# the command


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path, products=10) as someone:
        yield someone


def test_an_interrupted_crawl_is_moved_and_ends_elsewhere(user: ShellUser, tmp_path: Path) -> None:
    user.write(BOOKS_SCRAPER)
    run = ("run", "books.py", "-o", "books.jsonl", "--allow-private", "--workers", "1")
    begun = user.start(*run, "--delay", "0.2")
    wait_until(lambda: user.requests > 4)
    begun.send_signal(signal.SIGINT)
    begun.communicate(timeout=HANG)
    there = f"sqlite:///{tmp_path}/elsewhere.db"
    done = user.shoal("move", ".shoal/shoal.db", there)
    assert done.code == 0, done.err
    assert "has moved" in done.out and "It is running." in done.out
    assert "resume with: shoal run books.py" in done.out
    assert "moved" in user.shoal("runs").out and f"to {there}" in user.shoal("status").out
    lost = user.shoal(*run)
    assert lost.code == 2 and f"was moved to {there}" in lost.err and f"--queue {there}" in lost.err
    (old,), (new,) = user.ask("runs"), user.ask("runs", "--queue", there)
    assert (old["state"], new["state"], old["name"]) == ("cancelled", "running", new["name"])
    again = user.shoal("move", ".shoal/shoal.db", there, "--run", old["name"], "--json")
    assert again.code == 0 and again.json["moved"][0]["again"] is True
    end = user.shoal(*run, "--delay", "0", "--queue", there)
    assert end.code == 0, end.err
    assert sorted(line["url"] for line in user.lines()) == user.catalogue()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("none.db", "other.db"), "there is no state file"),
        (("one.db", "one.db", "--all"), "same queue"),
        (("one.db", "other.db", "--run", "zzz"), "there is no run zzz"),
        (("one.db", "other.db", "--run", "a", "--all"), "--run names one run"),
        (("one.db", "other.db"), "2 runs are unfinished"),
        (("one.db", "redis://127.0.0.1:1/0", "--all"), "cannot be reached"),
        (("one.db", "nowhere://x", "--all"), "not supported"),
        (("one.db", "other.db", "--wait", "soon"), "not understood"),
    ],
)
def test_what_cannot_be_moved_is_said_and_stays(
    user: ShellUser, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    async def fill() -> None:
        queue = await app.open_queue(load({"queue": str(tmp_path / "one.db")}))
        await populated_run(queue)
        await populated_run(queue, name="20261115_120000_xyz")
        await queue.close()

    asyncio.run(fill())
    done = user.shoal("move", *words)
    assert done.code in (1, 2) and said in done.err, done.err
    assert {run["state"] for run in user.ask("runs", "--queue", "one.db")} == {"running"}


def test_all_unfinished_runs_move_at_once(user: ShellUser, tmp_path: Path) -> None:
    async def fill() -> None:
        queue = await app.open_queue(load({"queue": str(tmp_path / "one.db")}))
        await populated_run(queue)
        await populated_run(queue, name="20261115_120000_xyz")
        await queue.close()

    asyncio.run(fill())
    moved = user.ask("move", "one.db", "other.db", "--all")
    assert [run["state"] for run in moved["moved"]] == ["running", "running"]
    assert {run["state"] for run in user.ask("runs", "--queue", "one.db")} == {"cancelled"}
    assert user.shoal("move", "one.db", "other.db").out.startswith("No run here is unfinished")
