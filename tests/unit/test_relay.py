"""The relay: what waits in the queue is carried to the store, at a cost that does not grow with old runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from wait import HANG

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.core.task import LeasedTask, Outcome
from shoal.errors import StoreRefused
from shoal.queue import document_kinds as kinds
from shoal.queue.base import StoredRecord
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.outputs import RunOutputs
from shoal.runs.queue_identity import MoveRecord, result_origin
from shoal.runs.relay import Relay
from shoal.sources.start_task import start_tasks
from shoal.store.results.sqlite import SqliteResultBackend


class Counting(SqliteQueue):
    """Counts how often all runs are asked for."""

    lists = 0

    async def runs(self, **asked: Any) -> list[Run]:
        self.lists += not asked.get("states") and not asked.get("name")
        return await super().runs(**asked)


@pytest.fixture
async def queue(tmp_path: Path) -> AsyncIterator[Counting]:
    opened = await Counting.open(str(tmp_path / "q.db"), synchronous="normal")
    assert isinstance(opened, Counting)
    yield opened
    await opened.close()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteResultBackend]:
    opened = await SqliteResultBackend.open(str(tmp_path / "results.db"))
    yield opened
    await opened.close()


async def leased(queue: SqliteQueue) -> tuple[Run, LeasedTask]:
    run = await queue.start_run(NewRun("books", "k", name="r1"))
    tasks, _ = start_tasks(["http://h/"])
    await queue.add(run.id, tasks, {"h": UNLIMITED_PACE})
    return run, (await queue.claim("w", 1)).tasks[0]


async def done(queue: SqliteQueue, task: LeasedTask) -> None:
    await queue.settle([Outcome(task.id, task.lease, "done", records=(b'{"n":1}',))])


async def test_runs_that_ended_are_not_listed_again_and_again(queue: Counting, store: SqliteResultBackend) -> None:
    run, task = await leased(queue)
    relay = Relay(queue, store)
    assert await relay.drain_all() == 0
    await done(queue, task)
    assert [await relay.drain_all() for _ in range(5)] == [1, 0, 0, 0, 0]
    assert queue.lists == 1
    await queue.set_run(run.id, "finish")
    await relay.drain_all()
    await relay.drain_all()
    assert queue.lists == 2


async def test_page_that_was_under_way_when_its_run_was_cancelled_is_not_waited_for_a_minute(
    queue: Counting, store: SqliteResultBackend
) -> None:
    run, task = await leased(queue)
    relay = Relay(queue, store)
    await relay.drain_all()
    await queue.set_run(run.id, "cancel")
    assert await relay.drain_all() == 0
    await done(queue, task)
    assert await relay.drain_all() == 1


async def test_records_of_a_run_that_has_moved_away_are_not_waited_for(
    queue: Counting, store: SqliteResultBackend
) -> None:
    run, task = await leased(queue)
    await done(queue, task)
    gone = msgspec.json.encode(MoveRecord("elsewhere", "there", "running", gone=True)).decode()
    await queue.compare_and_swap(kinds.MOVING, run.name, gone, 0)
    outputs = RunOutputs(queue, store)
    outputs.attach(run, None)
    async with asyncio.timeout(HANG):
        assert await outputs.drain() == 0


async def test_a_relay_that_comes_late_brings_nothing_twice(queue: Counting, store: SqliteResultBackend) -> None:
    run, task = await leased(queue)
    await done(queue, task)
    origin, records = await result_origin(queue, run), await queue.records(run.id)
    assert await store.append(origin, 0, records)
    assert not await store.append(origin, 0, records), "another was quicker"
    assert await store.count("books") == 1


async def test_a_store_that_lacks_what_the_queue_let_go_of_is_refused(
    queue: Counting, store: SqliteResultBackend
) -> None:
    run, _ = await leased(queue)
    set_back: Any = SetBackQueue(queue)
    set_back.put(3, "c")
    with pytest.raises(StoreRefused, match="2 records of run r1 went to a store"):
        await Relay(set_back, store).drain(run)
    assert set_back.kept


class SetBackQueue:
    """A queue whose records are as told: one that was set back gives numbers again, to other records."""

    def __init__(self, queue: SqliteQueue) -> None:
        self._queue = queue
        self.kept: dict[int, StoredRecord] = {}
        self.trimmed = 0
        self.forgets_to_trim = False

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._queue, verb)

    def put(self, first: int, *texts: str) -> None:
        """What it has from `first` on; all before that went to the store."""
        self.kept = {
            seq: StoredRecord(seq, ord(text), json.dumps({"text": text}).encode())
            for seq, text in enumerate(texts, first)
        }
        self.trimmed = first - 1

    async def stats(self, run: int) -> Stats:
        return Stats(records=self.trimmed + len(self.kept), trimmed=self.trimmed)

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> list[StoredRecord]:
        return [record for seq, record in self.kept.items() if seq > after][:limit]

    async def trim(self, run: int, upto: int) -> None:
        if not self.forgets_to_trim:
            self.kept = {seq: record for seq, record in self.kept.items() if seq > upto}
            self.trimmed = max(self.trimmed, upto)


async def test_queue_that_was_set_back_twice_has_no_record_trimmed_that_was_not_stored(
    queue: Counting, store: SqliteResultBackend
) -> None:
    run = await queue.start_run(NewRun("books", "k", name="r1"))
    set_back: Any = SetBackQueue(queue)
    relay = Relay(set_back, store)
    for first, texts in ((1, "abcd"), (3, "ef"), (3, "gh"), (4, "ijk")):
        set_back.put(first, *texts)
        while await relay.pending(run):
            await relay.drain(run)
    assert [kept.value["text"] async for kept in store.aggregate("books")] == list("abcdefghijk")


async def test_after_set_backs_what_the_store_has_is_not_stored_again(
    queue: Counting, store: SqliteResultBackend
) -> None:
    run = await queue.start_run(NewRun("books", "k", name="r1"))
    set_back: Any = SetBackQueue(queue)
    for first, texts in ((1, "abcd"), (3, "ef"), (3, "gh")):
        set_back.put(first, *texts)
        set_back.forgets_to_trim = True  # it died in between
        await Relay(set_back, store).drain(run)
        set_back.forgets_to_trim = False
        assert await Relay(set_back, store).drain(run) == 0
        assert not set_back.kept
    assert [kept.value["text"] async for kept in store.aggregate("books")] == list("abcdefgh")


async def test_a_task_that_was_done_again_after_a_set_back_is_stored_once(
    queue: Counting, store: SqliteResultBackend
) -> None:
    run = await queue.start_run(NewRun("books", "k", name="r1"))
    set_back: Any = SetBackQueue(queue)
    relay = Relay(set_back, store)
    for first, texts in ((1, "abcd"), (3, "edc"), (2, "fb")):
        set_back.put(first, *texts)
        while await relay.pending(run):
            await relay.drain(run)
    assert [kept.value["text"] async for kept in store.aggregate("books")] == list("abcdef")
    assert await store.count("books") == 6
