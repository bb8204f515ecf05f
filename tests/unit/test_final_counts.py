"""Final counts: what a worker had counted when it ended is in the history exactly once."""

from __future__ import annotations

import asyncio
import random
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_clock import FakeClock
from unreliable_queue import UnreliableQueue

from shoal.control.history import HOUR, SLOT, History
from shoal.control.history_sample import ENDED_RETENTION, MAX_ENDED_WORKERS, Baseline, Observation, measure
from shoal.core.counters import DURATION_BOUNDS, Counters, LaneCounters, WorkerCounters, combine, empty_buckets, encode
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun
from shoal.core.task import Outcome
from shoal.files import flock
from shoal.queue import document_kinds as kinds
from shoal.queue.sqlite import SqliteQueue
from shoal.runs.identity import SERVER_MODE
from shoal.sources.start_task import start_tasks
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.pool.final_counts import (
    MAX_DOCUMENTS,
    MAX_PER_DOCUMENT,
    counters_of,
    list_final_counts,
    save_final_counts,
)
from shoal.worker.pool.recovery import recover_dead_workers

BEGIN = 1_750_000_200_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(BEGIN)


class LateQueue(UnreliableQueue):
    async def workers(self) -> Any:
        return await self.late(await self._queue.workers(), 8)  # somebody may end meanwhile

    async def documents(self, kind: str) -> Any:
        return await self.late(await self._queue.documents(kind), 8)


class Worker:
    """Counts, tells of it now and then, and ends."""

    def __init__(self, queue: SqliteQueue, name: str, dice: random.Random) -> None:
        self._queue, self._name, self._dice = queue, name, dice
        self._started_at = 0
        self.figures = Counters(took=empty_buckets(DURATION_BOUNDS))

    def count(self) -> None:
        figures, bad = self.figures, self._dice.randrange(3)
        figures.done += 4
        figures.records += 7
        figures.took[self._dice.randrange(5)] += 4 + bad
        figures.failed = {"timeout": figures.failed.get("timeout", 0) + bad}
        lane = figures.lanes.get("h", LaneCounters())
        figures.lanes = {"h": LaneCounters(lane.done + 4, lane.failed + bad)}

    async def worker_status(self) -> WorkerStatus:
        now = await self._queue.now()
        self._started_at = self._started_at or now
        figures = encode(self.figures)
        return WorkerStatus(
            self._name, "w", "m", 1, "0", self._started_at, now, done=self.figures.done, counters=figures
        )

    async def beat(self) -> None:
        await self._queue.register(await self.worker_status())

    async def end(self) -> None:
        await save_final_counts(self._queue, counters_of(await self.worker_status()))
        await asyncio.sleep(0)
        if self._dice.random() < 0.8:  # else it is killed before it has taken leave of the registry
            await self._queue.forget_worker(self._name)


async def test_every_worker_is_counted_once_whoever_samples_and_whatever_fails(
    queue: SqliteQueue, clock: FakeClock
) -> None:
    dice = random.Random(11)
    alive: list[Worker] = []
    every: list[Worker] = []

    async def live() -> None:
        for _ in range(dice.randrange(3)):
            every.append(Worker(queue, f"w{len(every)}", dice))
            alive.append(every[-1])
            await every[-1].beat()
        for worker in list(alive):
            await asyncio.sleep(0)
            worker.count()
            if dice.random() < 0.4:
                alive.remove(worker)
                await worker.end()
            elif dice.random() < 0.5:
                await worker.beat()

    def caller() -> History:
        return History(LateQueue(queue, dice))  # type: ignore[arg-type]

    before = Counters()
    await History(queue).add_sample()
    for _ in range(120):
        callers = [caller() for _ in range(3)]
        await asyncio.gather(live(), *(one.add_sample() for one in callers), return_exceptions=True)
        clock.step(dice.choice((2, 5, 10, 20)))
        total = (await History(queue).lifetime_counters()).base.total
        assert total.done >= before.done
        before = total
    for worker in alive:
        await worker.end()
    clock.step(SLOT)
    await History(queue).add_sample()

    expected = Counters()
    for worker in every:
        expected = combine(expected, worker.figures)
    samples = (await History(queue).read(3 * HOUR)).samples
    assert len(every) > 80
    assert [sum(bucket) for bucket in zip(*(one.took for one in samples if one.took), strict=True)] == (expected.took)
    assert sum(one.failed.get("timeout", 0) for one in samples) == expected.failed["timeout"]
    assert sum(point.done for one in samples for point in one.by_worker.values()) == expected.done
    assert sum(one.hosts["h"].done for one in samples if "h" in one.hosts) == expected.done
    total = (await History(queue).lifetime_counters()).base.total
    assert (total.done, total.records, total.took) == (expected.done, expected.records, expected.took)
    assert not await queue.documents(kinds.FINAL_COUNTS)


async def test_what_ended_while_nobody_sampled_is_found_later(queue: SqliteQueue, clock: FakeClock) -> None:
    dice = random.Random(1)
    await History(queue).add_sample()
    clock.step(60)
    worker = Worker(queue, "w", dice)
    await worker.beat()
    worker.count()
    clock.step(2)
    await worker.end()
    clock.step(2 * HOUR)
    assert len((await History(queue).lifetime_counters()).final_counts) == 1
    await History(queue).add_sample()
    (sample,) = (await History(queue).read(HOUR)).samples
    assert sample.took == worker.figures.took and sample.by_worker["w"].done == 4
    assert not (await History(queue).lifetime_counters()).final_counts


async def test_what_ended_long_before_the_first_sample_is_in_the_sums_and_is_no_burst(
    queue: SqliteQueue, clock: FakeClock
) -> None:
    worker = Worker(queue, "w", random.Random(1))
    await worker.beat()
    worker.count()
    await worker.end()
    clock.step(HOUR)
    await History(queue).add_sample()
    (sample,) = (await History(queue).read(HOUR)).samples
    assert not sum(sample.took)
    assert (await History(queue).lifetime_counters()).base.total.done == 4


async def test_final_counts_take_up_little_room_however_many_there_are(queue: SqliteQueue) -> None:
    lanes = {f"host-{n}.example": LaneCounters(9, 9, 9.0, 9) for n in range(20)}
    for number in range(400):
        one = WorkerCounters(f"w-{number}", BEGIN, 1, 0, Counters(done=1, lanes=lanes))
        await save_final_counts(queue, one)
    assert len(await list_final_counts(queue)) <= MAX_DOCUMENTS
    place = (await list_final_counts(queue))[0].document.name
    same = [
        name for n in range(40 * MAX_DOCUMENTS) if str(zlib.crc32((name := f"x-{n}").encode()) % MAX_DOCUMENTS) == place
    ]
    for name in same:
        await save_final_counts(queue, WorkerCounters(name, BEGIN, 1, 0, Counters(done=1, lanes=lanes)))
    found = next(documents for documents in await list_final_counts(queue) if documents.document.name == place)
    assert [one.id for one in found.final_counts] == same[-MAX_PER_DOCUMENT:], "the oldest are forgotten"
    assert (
        len(found.document.text) * MAX_DOCUMENTS < 4_000_000 and MAX_DOCUMENTS * MAX_PER_DOCUMENT == MAX_ENDED_WORKERS
    )


async def test_a_second_final_count_takes_the_place_of_the_first(queue: SqliteQueue) -> None:
    await save_final_counts(queue, WorkerCounters("w", BEGIN, 1))
    await save_final_counts(queue, WorkerCounters("w", BEGIN, 2))
    assert [one.final_counts for one in await list_final_counts(queue)] == [(WorkerCounters("w", BEGIN, 2),)]


async def test_a_document_of_final_counts_that_is_none_is_written_anew(queue: SqliteQueue, clock: FakeClock) -> None:
    await save_final_counts(queue, WorkerCounters("w", BEGIN, 1))
    (document,) = await queue.documents(kinds.FINAL_COUNTS)
    await queue.compare_and_swap(kinds.FINAL_COUNTS, document.name, '{"nonsense": true}', document.version)
    assert [one.final_counts for one in await list_final_counts(queue)] == [()]
    await save_final_counts(queue, WorkerCounters("w", BEGIN, 3))
    assert [one.done for documents in await list_final_counts(queue) for one in documents.final_counts] == [3]


def test_those_that_are_counted_are_forgotten_in_time() -> None:
    def seen(at: float, *final_counts: WorkerCounters) -> Observation:
        return Observation(BEGIN + round(at * 1e6), (), (), {}, final_counts=final_counts)

    one = WorkerCounters("w", BEGIN, 3, 0, Counters(done=3))
    _, base = measure(Baseline(), seen(0, one))
    sample, base = measure(base, seen(ENDED_RETENTION * 2, one))
    assert "w" in base.ended and base.total.done == 3 and not sample.by_worker, "its final counts are still there"
    _, base = measure(base, seen(ENDED_RETENTION * 3))
    assert not base.ended and base.total.done == 3


async def test_notes_of_the_dead_tell_what_they_had_counted(queue: SqliteQueue, tmp_path: Path) -> None:
    worker = Worker(queue, "dead", random.Random(1))
    await worker.beat()
    await History(queue).add_sample()
    worker.count()
    note = CrashNote.create(tmp_path / "notes", "dead")
    note.add_done(4)
    note.write_counters(encode(msgspec.structs.replace(worker.figures, lanes={})))
    silent = CrashNote.create(tmp_path / "notes", "took-leave")
    for one in (note, silent):
        one._map.close()
        flock.release(one.file)
    await recover_dead_workers(queue, tmp_path / "notes")
    assert [one.id for documents in await list_final_counts(queue) for one in documents.final_counts] == ["dead"]
    await History(queue).add_sample(final=True)
    assert (await History(queue).lifetime_counters()).base.total.took == worker.figures.took
    assert not await queue.workers()


async def test_processes_of_servers_are_counted_apart_from_workers(queue: SqliteQueue, clock: FakeClock) -> None:
    for name, mode in (("left", SERVER_MODE), ("shared", "distributed")):
        run = await queue.start_run(NewRun("s", f"key of {name}", name, spec={"mode": mode}))
        tasks, _ = start_tasks(f"http://h/{name}/{n}" for n in range(5))
        await queue.add(run.id, tasks, {"h": UNLIMITED_PACE})
    now = await queue.now()
    for id, serves in (("room-1", (SERVER_MODE,)), ("room-2", (SERVER_MODE,)), ("w", ("s",))):
        await queue.register(WorkerStatus(id, id, "m", 1, "0", now, now, serves=serves))
    history = History(queue)
    await history.add_sample()
    clock.step(SLOT)
    claim = await queue.claim("w", 10)
    await queue.settle([Outcome(task.id, task.lease, "done") for task in claim.tasks])
    await history.add_sample()
    last = (await history.read(60)).samples[-1]
    assert (last.workers, last.server_processes) == ({"working": 1}, 2)
    assert (last.done, last.own) == (10, 5)
