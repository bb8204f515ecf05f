"""Farewells: what a worker had counted when it ended is in the history once, whoever looks and whenever."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal import locks
from shoal.control.history import HOUR, SLOT, History
from shoal.control.runs import HERE
from shoal.control.sample import ENDED, ENDED_FOR, Base, Sight, measure
from shoal.core.figures import SECONDS, Figures, LaneFigures, buckets, encode, plus
from shoal.core.lane import FREE, Mark
from shoal.core.run import NewRun
from shoal.core.task import Outcome
from shoal.errors import QueueUnavailable
from shoal.extract.links import start_tasks
from shoal.queue.base import Paper
from shoal.queue.sqlite import SqliteQueue
from shoal.worker.farewell import KEPT, KIND, PLACES, Farewell, farewell_of, leave, left
from shoal.worker.note import Note
from shoal.worker.takeover import take_over

BEGIN = 1_750_000_200_000_000


class Clock:
    def __init__(self) -> None:
        self.at = BEGIN

    def __call__(self) -> int:
        return self.at

    def step(self, seconds: float) -> None:
        self.at += round(seconds * 1e6)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def queue(tmp_path: Path, clock: Clock) -> AsyncIterator[SqliteQueue]:
    opened = await SqliteQueue.open(str(tmp_path / "q.db"), clock=clock, synchronous="normal")
    yield opened
    await opened.close()


class Shaky:
    """A queue that fails now and then, before or after it has done what it was asked for."""

    def __init__(self, queue: SqliteQueue, dice: random.Random) -> None:
        self._queue = queue
        self._dice = dice

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def workers(self) -> Any:
        return await self._late(await self._queue.workers())

    async def papers(self, kind: str) -> Any:
        return await self._late(await self._queue.papers(kind))

    async def _late(self, found: Any) -> Any:
        for _ in range(self._dice.randrange(8)):  # somebody may end meanwhile
            await asyncio.sleep(0)
        return found

    async def swap(self, *args: Any) -> Paper | None:
        await asyncio.sleep(0)
        chance = self._dice.random()
        if chance < 0.1:
            raise QueueUnavailable("before")
        done = await self._queue.swap(*args)
        if chance < 0.2:
            raise QueueUnavailable("after")
        return done


class Worker:
    """Counts, tells of it now and then, and ends."""

    def __init__(self, queue: SqliteQueue, name: str, dice: random.Random) -> None:
        self._queue, self._name, self._dice = queue, name, dice
        self._started_at = 0
        self.figures = Figures(took=buckets(SECONDS))

    def count(self) -> None:
        figures, bad = self.figures, self._dice.randrange(3)
        figures.done += 4
        figures.records += 7
        figures.took[self._dice.randrange(5)] += 4 + bad
        figures.failed = {"timeout": figures.failed.get("timeout", 0) + bad}
        lane = figures.lanes.get("h", LaneFigures())
        figures.lanes = {"h": LaneFigures(lane.done + 4, lane.failed + bad)}

    async def mark(self) -> Mark:
        now = await self._queue.now()
        self._started_at = self._started_at or now
        figures = encode(self.figures)
        return Mark(
            self._name, "w", "m", 1, "0", self._started_at, now, done=self.figures.done, figures=figures
        )

    async def beat(self) -> None:
        await self._queue.register(await self.mark())

    async def end(self) -> None:
        await leave(self._queue, farewell_of(await self.mark()))
        await asyncio.sleep(0)
        if self._dice.random() < 0.8:  # else it is killed before it has taken leave of the registry
            await self._queue.forget_worker(self._name)


async def test_every_worker_is_counted_once_whoever_samples_and_whatever_fails(
    queue: SqliteQueue, clock: Clock
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
        return History(Shaky(queue, dice))  # type: ignore[arg-type]

    before = Figures()
    await History(queue).note()
    for _ in range(120):
        callers = [caller() for _ in range(3)]
        await asyncio.gather(live(), *(one.note() for one in callers), return_exceptions=True)
        clock.step(dice.choice((2, 5, 10, 20)))
        total = (await History(queue).ledger()).base.total
        assert total.done >= before.done
        before = total
    for worker in alive:
        await worker.end()
    clock.step(SLOT)
    await History(queue).note()

    expected = Figures()
    for worker in every:
        expected = plus(expected, worker.figures)
    samples = (await History(queue).read(3 * HOUR)).samples
    assert len(every) > 80
    assert [sum(bucket) for bucket in zip(*(one.took for one in samples if one.took), strict=True)] == (
        expected.took
    )
    assert sum(one.failed.get("timeout", 0) for one in samples) == expected.failed["timeout"]
    assert sum(point.done for one in samples for point in one.by_worker.values()) == expected.done
    assert sum(one.hosts["h"].done for one in samples if "h" in one.hosts) == expected.done
    total = (await History(queue).ledger()).base.total
    assert (total.done, total.records, total.took) == (expected.done, expected.records, expected.took)
    assert not await queue.papers(KIND)


async def test_what_ended_while_nobody_sampled_is_found_later(queue: SqliteQueue, clock: Clock) -> None:
    dice = random.Random(1)
    await History(queue).note()
    clock.step(60)
    worker = Worker(queue, "w", dice)
    await worker.beat()
    worker.count()
    clock.step(2)
    await worker.end()
    clock.step(2 * HOUR)
    assert len((await History(queue).ledger()).farewells) == 1
    await History(queue).note()
    (sample,) = (await History(queue).read(HOUR)).samples
    assert sample.took == worker.figures.took and sample.by_worker["w"].done == 4
    assert not (await History(queue).ledger()).farewells


async def test_what_ended_long_before_the_first_sample_is_in_the_sums_and_is_no_burst(
    queue: SqliteQueue, clock: Clock
) -> None:
    worker = Worker(queue, "w", random.Random(1))
    await worker.beat()
    worker.count()
    await worker.end()
    clock.step(HOUR)
    await History(queue).note()
    (sample,) = (await History(queue).read(HOUR)).samples
    assert not sum(sample.took)
    assert (await History(queue).ledger()).base.total.done == 4


async def test_farewells_take_up_little_room_however_many_there_are(queue: SqliteQueue) -> None:
    lanes = {f"host-{n}.example": LaneFigures(9, 9, 9.0, 9) for n in range(20)}
    for number in range(400):
        await leave(queue, Farewell(f"w-{number}", BEGIN, 1, 0, Figures(done=1, lanes=lanes)))
    assert len(await left(queue)) <= PLACES
    place = (await left(queue))[0].paper.name
    same = [
        name for n in range(40 * PLACES) if str(zlib.crc32((name := f"x-{n}").encode()) % PLACES) == place
    ]
    for name in same:
        await leave(queue, Farewell(name, BEGIN, 1, 0, Figures(done=1, lanes=lanes)))
    found = next(papers for papers in await left(queue) if papers.paper.name == place)
    assert [one.id for one in found.farewells] == same[-KEPT:], "the oldest are forgotten"
    assert len(found.paper.text) * PLACES < 4_000_000 and PLACES * KEPT == ENDED


async def test_a_second_farewell_takes_the_place_of_the_first(queue: SqliteQueue) -> None:
    await leave(queue, Farewell("w", BEGIN, 1))
    await leave(queue, Farewell("w", BEGIN, 2))
    assert [one.farewells for one in await left(queue)] == [(Farewell("w", BEGIN, 2),)]


async def test_a_document_of_farewells_that_is_none_is_written_anew(queue: SqliteQueue, clock: Clock) -> None:
    await leave(queue, Farewell("w", BEGIN, 1))
    (paper,) = await queue.papers(KIND)
    await queue.swap(KIND, paper.name, '{"nonsense": true}', paper.version)
    assert [one.farewells for one in await left(queue)] == [()]
    await leave(queue, Farewell("w", BEGIN, 3))
    assert [one.done for papers in await left(queue) for one in papers.farewells] == [3]


def test_those_that_are_counted_are_forgotten_in_time() -> None:
    def seen(at: float, *farewells: Farewell) -> Sight:
        return Sight(BEGIN + round(at * 1e6), (), (), {}, farewells=farewells)

    one = Farewell("w", BEGIN, 3, 0, Figures(done=3))
    _, base = measure(Base(), seen(0, one))
    sample, base = measure(base, seen(ENDED_FOR * 2, one))
    assert "w" in base.ended and base.total.done == 3 and not sample.by_worker, "its farewell is still there"
    _, base = measure(base, seen(ENDED_FOR * 3))
    assert not base.ended and base.total.done == 3


async def test_notes_of_the_dead_tell_what_they_had_counted(queue: SqliteQueue, tmp_path: Path) -> None:
    worker = Worker(queue, "dead", random.Random(1))
    await worker.beat()
    await History(queue).note()
    worker.count()
    note = Note.create(tmp_path / "notes", "dead")
    note.count(4)
    note.figures(encode(msgspec.structs.replace(worker.figures, lanes={})))
    silent = Note.create(tmp_path / "notes", "took-leave")
    for one in (note, silent):
        one._map.close()
        locks.release(one.file)
    await take_over(queue, tmp_path / "notes")
    assert [one.id for papers in await left(queue) for one in papers.farewells] == ["dead"]
    await History(queue).note(final=True)
    assert (await History(queue).ledger()).base.total.took == worker.figures.took
    assert not await queue.workers()


async def test_processes_of_control_rooms_are_counted_apart_from_workers(
    queue: SqliteQueue, clock: Clock
) -> None:
    for name, mode in (("left", HERE), ("shared", "distributed")):
        run = await queue.start_run(NewRun("s", f"key of {name}", name, spec={"mode": mode}))
        tasks, _ = start_tasks(f"http://h/{name}/{n}" for n in range(5))
        await queue.add(run.id, tasks, {"h": FREE})
    now = await queue.now()
    for id, serves in (("room-1", (HERE,)), ("room-2", (HERE,)), ("w", ("s",))):
        await queue.register(Mark(id, id, "m", 1, "0", now, now, serves=serves))
    history = History(queue)
    await history.note()
    clock.step(SLOT)
    claim = await queue.claim("w", 10)
    await queue.settle([Outcome(task.id, task.lease, "done") for task in claim.tasks])
    await history.note()
    last = (await history.read(60)).samples[-1]
    assert (last.workers, last.rooms) == ({"working": 1}, 2)
    assert (last.done, last.own) == (10, 5)
