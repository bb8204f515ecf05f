"""Follow-ups: tasks of other types, from a settled task through the outbox to the run of their type."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from shoal.control.maintenance import Maintenance
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.core.task import Admission, OutboxEntry, Outcome, digest
from shoal.core.task import Task as QueueTask
from shoal.core.typed_task import Task
from shoal.errors import GiveUp, QueueUnavailable
from shoal.queue.base import MAX_OUTBOX_ENTRIES
from shoal.queue.follow_ups import KIND, FollowUps
from shoal.queue.sqlite import SqliteQueue
from shoal.worker.outbox_drain import OutboxDrain
from shoal.worker.task.follow_up_tasks import outbox_entries, with_keys
from shoal.worker.task.handler_output import HandlerOutput

DAY = 86_400_000_000


class Shifted(SqliteQueue):
    """A queue whose clock people see is moved by some days, and that may refuse all tasks."""

    days = 0
    refuses = False

    async def now(self) -> int:
        return await super().now() + self.days * DAY

    async def add(
        self, run: int, tasks: Sequence[QueueTask], paces: Mapping[str, Pace] | None = None
    ) -> list[Admission]:
        return ["rejected"] * len(tasks) if self.refuses else await super().add(run, tasks, paces)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Shifted]:
    queue = await Shifted.open(str(tmp_path / "q.db"))
    yield queue
    await queue.close()


async def leave(queue: SqliteQueue, *entries: OutboxEntry) -> int:
    """A page is done and leaves these; the number of its run."""
    run = await queue.start_run(NewRun(scraper="pages", key="pages"))
    task = QueueTask("p", "a.test", digest("p"))
    await queue.add(run.id, [task], {"a.test": UNLIMITED_PACE})
    (leased,) = (await queue.claim("w", 1, serves=["pages"])).tasks
    assert await queue.settle([Outcome(leased.id, leased.lease, "done", outbox=entries)]) == ["ok"]
    return run.id


def entries_of(*tasks: Task) -> tuple[OutboxEntry, ...]:
    return outbox_entries(with_keys(7, tasks))


async def seen(queue: SqliteQueue, type: str) -> int:
    return sum([(await queue.stats(run.id)).seen for run in await queue.runs(scraper=f"task:{type}")])


async def test_they_become_tasks_of_their_types_and_leave_the_outbox(queue: Shifted) -> None:
    resize = Task(type="resize", payload={"n": 1}, priority=3, retries=2, lane="images", rate="10/m")
    run = await leave(queue, *entries_of(resize, Task(type="mail", payload={"to": "a"}), Task(type="mail")))
    assert (await queue.stats(run)).outbox == 3
    assert await FollowUps(queue).drain() == 3
    assert (await queue.stats(run)).is_over
    (claimed,) = (await queue.claim("w", 5, serves=["task:resize"])).tasks
    assert (claimed.kind, claimed.priority, claimed.lane, claimed.spacing) == ("resize", 3, "images", 6.0)
    assert claimed.meta == {"payload": {"n": 1}, "retries": 2}
    assert await seen(queue, "mail") == 2
    assert await FollowUps(queue).drain() == 0


async def test_what_was_added_but_not_acknowledged_is_added_once_also_after_midnight(
    queue: Shifted, monkeypatch: pytest.MonkeyPatch
) -> None:
    await leave(queue, *entries_of(Task(type="t", payload={"n": 1})))

    async def die(seqs: object) -> int:
        raise QueueUnavailable("gone")

    with monkeypatch.context() as patched:
        patched.setattr(queue, "acknowledge", die)
        with pytest.raises(QueueUnavailable):
            await FollowUps(queue).drain()
    assert await seen(queue, "t") == 1
    queue.days = 1
    assert await FollowUps(queue).drain() == 1
    assert await seen(queue, "t") == 1


def test_the_same_handler_asks_for_the_same_tasks_when_it_runs_again() -> None:
    tasks = [Task(type="t", payload={"n": 1}), Task(type="t", payload={"n": 1}), Task(type="t", key="own")]
    once, again = entries_of(*tasks), entries_of(*tasks)
    assert once == again
    assert len({entry.key for entry in once}) == 3
    assert once[2].key == "task:t/own"
    assert {entry.key for entry in outbox_entries(with_keys(8, tasks[:2]))}.isdisjoint(entry.key for entry in once)


async def test_maintenance_drains_what_a_worker_left_and_finishes_the_run_only_then(queue: Shifted) -> None:
    run = await leave(queue, *entries_of(Task(type="t")))
    queue.refuses = True
    await Maintenance(queue).run_once()
    assert [it.state for it in await queue.runs(scraper="pages")] == ["running"]
    queue.refuses = False
    await Maintenance(queue).run_once()
    assert (await queue.stats(run)).outbox == 0
    assert [it.state for it in await queue.runs(scraper="pages")] == ["finished"]


async def test_many_are_drained_page_by_page(queue: Shifted) -> None:
    await leave(queue, *entries_of(*(Task(type="t", payload={"n": n}) for n in range(1100))))
    assert await FollowUps(queue).drain() == 1100
    assert await seen(queue, "t") == 1100


async def test_an_entry_that_nobody_understands_is_said_and_does_not_stop_the_others(
    queue: Shifted, caplog: pytest.LogCaptureFixture
) -> None:
    hostile = (OutboxEntry(KIND, "a", b"{"), OutboxEntry(KIND, "b", b'{"task":{"url":"u","lane":"l","digest":"AA"}}'))
    await leave(queue, *hostile, *entries_of(Task(type="t")))
    with caplog.at_level(logging.WARNING):
        assert await FollowUps(queue).drain() == 3
    assert [it.message for it in caplog.records] == ["follow_up_not_understood"] * 2
    assert await seen(queue, "t") == 1


async def test_those_that_their_queue_refuses_wait(queue: Shifted) -> None:
    run = await leave(queue, *entries_of(Task(type="t")))
    queue.refuses = True
    assert await FollowUps(queue).drain() == 0
    assert (await queue.stats(run)).outbox == 1
    queue.refuses = False
    assert await FollowUps(queue).drain() == 1


def test_a_handler_that_asks_for_too_many_is_told_so() -> None:
    with pytest.raises(GiveUp, match="at most 10,000"):
        entries_of(*[Task(type="t")] * (MAX_OUTBOX_ENTRIES + 1))


def test_a_page_handler_yields_tasks_between_records() -> None:
    output = HandlerOutput()
    output.add_item([{"a": 1}, Task(type="t", payload={"n": 1})])
    assert output.records == [b'{"a":1}']
    assert [task.type for task in output.tasks] == ["t"]


async def test_what_comes_while_it_drains_is_drained_next() -> None:
    drained, go = [], asyncio.Event()

    async def drain() -> None:
        drained.append(len(drained))
        await go.wait()

    own = OutboxDrain(drain)
    own.wake()
    await asyncio.sleep(0)
    own.wake()
    own.wake()
    go.set()
    await own.close()
    assert drained == [0, 1]


async def test_a_queue_that_is_away_leaves_the_rest_to_later() -> None:
    tries = []

    async def drain() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise QueueUnavailable("gone")

    own = OutboxDrain(drain)
    for _ in range(2):
        own.wake()
        await own.close()
    assert len(tries) == 2
