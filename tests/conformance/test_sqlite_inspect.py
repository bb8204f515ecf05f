"""Listing a big SQLite queue costs what is shown, not what is there: counted in steps of its machine."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock

from conformance.harness import QueueHarness, page
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import TASK_BITS
from shoal.core.task import ExportedTask, LaneChange, digest
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.sqlite import SqliteQueue

MANY, LANES = 6_000, 300
GRAIN = 50  # steps between two counts
Ask = Callable[[Queue, int], Awaitable[Any]]


def carried(number: int, state: Any) -> ExportedTask:
    task = page(f"http://h{number % LANES}.test/{number}", f"h{number % LANES}.test")
    if state == "delayed":
        task = page(task.url, task.lane, delay=1000.0)
        state = "ready"
    cause = f"http.50{number % 3}" if state == "dead" else ""
    return ExportedTask(number, task, state, attempts=1, added_at=1, finished_at=number, cause=cause)


async def fill(queue: Queue, run: int, counts: dict[str, int]) -> None:
    """So many tasks of each state, one state after the other."""
    states = [state for state, count in counts.items() for _ in range(count)]
    await queue.set_run(run, "pause")
    tasks = [carried(number, state) for number, state in enumerate(states, 1)]
    paces = {task.task.lane: UNLIMITED_PACE for task in tasks}
    await queue.import_run(run, tasks, paces=paces)
    await queue.set_run(run, "resume")


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[QueueHarness]:
    async def opener(folder: Path, clock: FakeClock) -> Queue:
        return await SqliteQueue.open(str(folder / "q.db"), clock=clock, synchronous="normal", small=True)

    harness = QueueHarness(opener, tmp_path)
    harness.queue = await harness.open()
    yield harness
    await harness.close()


async def steps(queue: Queue, ask: Awaitable[Any]) -> int:
    """How many steps SQLite's machine took for an answer."""
    assert isinstance(queue, SqliteQueue)
    count = 0

    def tick() -> int:
        nonlocal count
        count += 1
        return 0

    db: sqlite3.Connection = queue._engine.db
    db.set_progress_handler(tick, GRAIN)
    try:
        await ask
    finally:
        db.set_progress_handler(None, 0)
    return count * GRAIN


STATES = ("done", "dead", "cancelled", "delayed", "ready")
PER_ROW = 250  # steps that showing one task may take
FEW = 20


@pytest.mark.parametrize("wanted", STATES)
@pytest.mark.parametrize("others", STATES)
async def test_the_first_page_of_a_state_passes_over_no_other(harness: QueueHarness, wanted: str, others: str) -> None:
    if wanted == others:
        return
    run = await harness.run()
    await fill(harness.queue, run, {others: MANY, wanted: FEW})
    look = harness.queue.list_tasks(run, state=wanted, limit=FEW)  # type: ignore[arg-type]
    assert await steps(harness.queue, look) < FEW * PER_ROW
    assert len(await harness.queue.list_tasks(run, state=wanted)) == FEW  # type: ignore[arg-type]


@pytest.mark.parametrize("others", ["ready", "delayed"])
async def test_leased_tasks_are_found_among_many_others(harness: QueueHarness, others: str) -> None:
    run = await harness.run()
    await fill(harness.queue, run, {others: MANY, "ready": FEW} if others != "ready" else {"ready": MANY})
    await harness.claim(10)
    assert await steps(harness.queue, harness.queue.list_tasks(run, state="leased")) < FEW * PER_ROW
    assert len(await harness.queue.list_tasks(run, state="leased")) == 10


BOUNDED: dict[str, tuple[Ask, int]] = {
    "stats": (lambda queue, run: queue.stats(run), 60 * LANES),
    "stats of many": (lambda queue, run: queue.stats_of([run] * 5), 60 * LANES),
    "a page of any state": (lambda queue, run: queue.list_tasks(run, limit=20), 5 * 20 * PER_ROW),
    "a page from the middle": (
        lambda queue, run: queue.list_tasks(run, state="dead", after=(run << TASK_BITS) + MANY + 500, limit=20),
        20 * PER_ROW,
    ),
    "a window": (
        lambda queue, run: queue.list_tasks(
            run, where=TaskFilter(url="*/50"), after=run << TASK_BITS, upto=(run << TASK_BITS) + 100
        ),
        100 * PER_ROW,
    ),
    "by number": (
        lambda queue, run: queue.list_tasks(
            run, where=TaskFilter(ids=tuple(range(run << TASK_BITS, (run << TASK_BITS) + 20)))
        ),
        5 * 20 * PER_ROW,
    ),
    "dead of a lane": (
        lambda queue, run: queue.list_tasks(run, state="dead", where=TaskFilter(lane="h3.test"), limit=20),
        20 * PER_ROW,
    ),
    "ready of a lane": (
        lambda queue, run: queue.list_tasks(run, state="ready", where=TaskFilter(lane="h3.test"), limit=20),
        20 * PER_ROW,
    ),
    "groups": (lambda queue, run: queue.dead_groups(run, limit=20), 20 * PER_ROW),
    "find": (lambda queue, run: queue.find(run, digest("http://h3.test/3")), PER_ROW),
    "lanes": (lambda queue, run: queue.lanes(limit=20), 60 * LANES),
    "lanes by name": (lambda queue, run: queue.lanes(order="name", limit=20), 20 * PER_ROW),
    "lanes by name, after": (lambda queue, run: queue.lanes(order="name", after="h2", limit=20), 20 * PER_ROW),
    "lanes named": (lambda queue, run: queue.lanes(names=["h1.test", "h2.test"]), 5 * PER_ROW),
    "lanes of a run": (lambda queue, run: queue.lanes(run=run, limit=20), 60 * LANES),
    "lanes parked": (lambda queue, run: queue.lanes(only="parked"), 60 * LANES),
    "runs": (lambda queue, run: queue.runs(limit=20), 20 * PER_ROW),
}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("full") / "q.db"


async def opened(path: Path) -> tuple[Queue, int]:
    """A queue with much of everything, made once."""
    queue = await SqliteQueue.open(str(path), clock=FakeClock(), synchronous="normal", small=True)
    found = await queue.runs(limit=1)
    if found:
        return queue, found[0].id
    harness = QueueHarness(lambda folder, clock: SqliteQueue.open(str(path)), path.parent)
    harness.queue = queue
    run = await harness.run()
    await fill(queue, run, dict.fromkeys(STATES, MANY))
    await queue.set_lane(LaneChange("h7.test", park_for=60.0))
    for n in range(100):
        await queue.register(WorkerStatus(f"w{n}", "n", "h", n, "1", 1, 0, counters=b"x" * 1000))
        await queue.claim(f"w{n}", 2)
    return queue, run


@pytest.mark.parametrize("words", BOUNDED)
async def test_a_question_costs_what_is_shown_not_what_is_there(full: Path, words: str) -> None:
    queue, run = await opened(full)
    ask, most = BOUNDED[words]
    try:
        assert await ask(queue, run)
        taken = await steps(queue, ask(queue, run))
    finally:
        await queue.close()
    assert taken < most, f"{words} took {taken} steps"


async def test_workers_cost_no_more_than_they_and_their_leases(full: Path) -> None:
    queue, _ = await opened(full)
    try:
        assert len(await queue.workers()) == 100
        assert await steps(queue, queue.workers()) < 100 * PER_ROW
    finally:
        await queue.close()
