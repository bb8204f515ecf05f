"""History: every page is counted once, whoever samples, however often, and whatever dies meanwhile."""

from __future__ import annotations

import asyncio
import base64
import random
import zlib
from typing import Any

import msgspec
import pytest
from fake_clock import FakeClock
from unreliable_queue import UnreliableQueue

from shoal.control.history import CHUNK, COARSE, HOUR, MINUTE, SLOT, Chunk, History, Hour, merge_by
from shoal.control.history_baseline import MAX_BYTES, pack_baseline, unpack_baseline
from shoal.control.history_sample import Baseline, HostPoint, Observation, RunPoint, Sample, measure, merge
from shoal.core.counters import DURATION_BOUNDS, Counters, LaneCounters, empty_buckets, encode
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, Outcome
from shoal.errors import QueueUnavailable
from shoal.queue import document_kinds as kinds
from shoal.queue.sqlite import SqliteQueue
from shoal.sources.start_task import start_tasks

BEGIN = 1_750_000_200_000_000  # the start of a chunk


class LateQueue(UnreliableQueue):
    """Some answers come late: meanwhile pages are fetched, and a chunk may end."""

    def __init__(self, queue: SqliteQueue, dice: random.Random, clock: FakeClock) -> None:
        super().__init__(queue, dice)
        self._clock = clock

    async def stats_of(self, runs: Any) -> Any:
        found = await self._queue.stats_of(runs)
        if self._dice.random() < 0.3:
            self._clock.step(self._dice.choice((1, 10, 60)))
            await fetch(self._queue, self._dice.randrange(3))
            await self.late(found, 30)
        return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(BEGIN)


async def started(queue: SqliteQueue, pages: int, name: str = "n") -> Run:
    run = await queue.start_run(NewRun("s", f"key of {name}", name))
    tasks, _ = start_tasks(f"http://h/{name}/{n}" for n in range(pages))
    await queue.add(run.id, tasks, {"h": UNLIMITED_PACE})
    return run


async def fetch(queue: SqliteQueue, pages: int) -> None:
    claim = await queue.claim("w", pages)
    await queue.settle([Outcome(task.id, task.lease, "done", records=(b"{}",)) for task in claim.tasks])


def total(samples: Any, name: str = "done") -> int:
    return sum(getattr(one, name) for one in samples)


async def test_many_who_sample_make_one_sample_a_slot_and_count_every_page_once(
    queue: SqliteQueue, clock: FakeClock
) -> None:
    dice = random.Random(7)
    await started(queue, 2_000)

    def caller() -> History:
        return History(LateQueue(queue, dice, clock))  # type: ignore[arg-type]

    callers = [caller() for _ in range(5)]
    await History(queue).add_sample()
    for _ in range(150):
        await fetch(queue, dice.randrange(12))
        callers[dice.randrange(5)] = caller()  # it was started anew
        await asyncio.gather(*(one.add_sample() for one in callers), return_exceptions=True)
        clock.step(dice.choice((2, 5, 10, 40)))
    clock.step(SLOT)
    await History(queue).add_sample()
    series = await History(queue).read(3 * HOUR)
    slots = [one.at // SLOT for one in series.samples]
    assert len(slots) == len(set(slots)) and len(slots) > 50
    stats = (await queue.stats_of([1]))[0]
    assert total(series.samples) == stats.done and total(series.samples, "records") == stats.records
    assert sum(one.runs["n"].done for one in series.samples if "n" in one.runs) == stats.done


async def test_a_day_is_kept_in_few_documents_and_no_page_of_it_is_lost(queue: SqliteQueue, clock: FakeClock) -> None:
    dice = random.Random(3)
    await started(queue, 4_000)
    history = History(UnreliableQueue(queue, dice, 0.02))  # type: ignore[arg-type]
    await History(queue).add_sample()
    done: list[tuple[int, int]] = []
    for _ in range(27 * 30):
        clock.step(120)
        pages = dice.randrange(4)
        await fetch(queue, pages)
        done.append((clock.at, pages))
        for _ in range(3):
            try:
                await history.add_sample()
                break
            except QueueUnavailable:
                continue
    series = await History(queue).read(24 * HOUR)
    began = min(one.at - one.span for one in series.samples)
    expected = sum(pages for at, pages in done if at / 1e6 > began)
    assert total(series.samples) == expected > 100
    assert series.now - began > 23.9 * HOUR
    assert total((await history.read(24 * HOUR)).samples) == expected
    documents = await queue.documents(kinds.HISTORY)
    assert len(documents) < 50 and sum(len(document.text) for document in documents) < 1_000_000


async def test_a_chunk_that_is_in_its_hour_already_counts_once(queue: SqliteQueue, clock: FakeClock) -> None:
    await started(queue, 100)
    history = History(queue)
    await history.add_sample()
    for _ in range(6):
        clock.step(SLOT)
        await fetch(queue, 5)
        await history.add_sample()
    start = BEGIN // 1_000_000
    document = await queue.document(kinds.HISTORY, f"fine/{start}")
    assert document is not None
    chunk = msgspec.json.decode(document.text, type=Chunk)
    hour = Hour(merge_by(chunk.samples, MINUTE), [start])
    beginning = start // HOUR * HOUR
    await queue.compare_and_swap(kinds.HISTORY, f"hour/{beginning}", msgspec.json.encode(hour).decode(), 0)
    index = await queue.document(kinds.HISTORY, "index")
    assert index is not None
    text = index.text.replace('"hours":[]', f'"hours":[{beginning}]')
    assert text != index.text
    await queue.compare_and_swap(kinds.HISTORY, "index", text, index.version)
    assert total((await History(queue).read(HOUR)).samples) == 30


async def test_what_a_run_did_in_its_last_seconds_is_in_the_final_sample(queue: SqliteQueue, clock: FakeClock) -> None:
    run = await started(queue, 10)
    history = History(queue)
    assert await history.add_sample()
    clock.step(3)
    await fetch(queue, 10)
    assert not await history.add_sample(), "the slot has its sample"
    await queue.set_run(run.id, "finish")
    assert await history.add_sample(final=True)
    samples = (await history.read(60)).samples
    assert len(samples) == 1 and samples[0].done == 10 and samples[0].unfinished == 0


async def test_a_run_that_began_and_ended_between_two_samples_is_counted(queue: SqliteQueue, clock: FakeClock) -> None:
    history = History(queue)
    await history.add_sample()
    clock.step(4)
    run = await started(queue, 5)
    await fetch(queue, 5)
    await queue.set_run(run.id, "finish")
    clock.step(8)
    await history.add_sample()
    assert [one.done for one in (await history.read(60)).samples] == [0, 5]


async def test_what_was_done_long_before_anybody_sampled_is_no_burst(queue: SqliteQueue, clock: FakeClock) -> None:
    await started(queue, 50)
    await fetch(queue, 40)
    clock.step(HOUR)
    history = History(queue)
    await history.add_sample()
    clock.step(SLOT)
    await fetch(queue, 3)
    await history.add_sample()
    assert [one.done for one in (await history.read(60)).samples] == [0, 3]


async def test_a_document_of_another_version_is_written_anew(queue: SqliteQueue, clock: FakeClock) -> None:
    await queue.compare_and_swap(kinds.HISTORY, "index", '{"fine": "all"}', 0)
    await queue.compare_and_swap(kinds.HISTORY, f"fine/{BEGIN // 1_000_000}", "[]", 0)
    await History(queue).add_sample()
    assert await History(queue).add_sample(), "the first to try has written the index"
    assert len((await History(queue).read(60)).samples) == 1


def worker_status(id: str, done: int, started_at: int = BEGIN, memory: int = 10, **figures: Any) -> WorkerStatus:
    counted = Counters(done=done, took_sum=done * 1.0, **figures)
    return WorkerStatus(id, id, "here", 1, "0", started_at, BEGIN, done=done, memory=memory, counters=encode(counted))


def row(**placed: int) -> list[int]:
    made = empty_buckets(DURATION_BOUNDS)
    for place, number in placed.items():
        made[int(place[1:])] = number
    return made


def seen(at: float, *marks: WorkerStatus) -> Observation:
    return Observation(BEGIN + round(at * 1e6), (), marks, {"working": len(marks)})


def test_a_worker_that_started_anew_counts_from_nothing() -> None:
    first = worker_status("w", 100, took=row(b1=100), failed={"http.5xx": 10}, lanes={"h": LaneCounters(100, 10, 5.0)})
    _, base = measure(Baseline(), seen(0, first))
    later = worker_status(
        "w",
        130,
        took=row(b1=120, b2=10),
        failed={"http.5xx": 11, "handler": 1},
        lanes={"h": LaneCounters(130, 12, 6.5, 0, 1)},
    )
    sample, base = measure(base, seen(10, later))
    assert sample.took == row(b1=20, b2=10) and sample.failed == {"http.5xx": 1, "handler": 1} and sample.span == 10
    assert sample.by_worker["w"].done == 30 and sample.hosts["h"] == HostPoint(30, 2, 1.5, code_errors=1)
    anew = worker_status("w", 7, BEGIN + 12_000_000, took=row(b0=7), lanes={"h": LaneCounters(7, 0, 0.1)})
    sample, _ = measure(base, seen(20, anew))
    assert sample.by_worker["w"].done == 7 and sample.took == row(b0=7) and sample.hosts["h"].done == 7


def test_a_worker_that_was_there_long_before_the_first_sample_makes_no_burst() -> None:
    old = worker_status("w", 5_000, BEGIN - 3_600_000_000, took=row(b1=5_000))
    sample, _ = measure(Baseline(), seen(0, old))
    assert sample.by_worker["w"].done == 0 and not sum(sample.took)


def test_a_host_that_was_quiet_for_a_while_is_not_counted_again() -> None:
    _, base = measure(Baseline(), seen(0, worker_status("w", 0)))
    sample, base = measure(base, seen(10, worker_status("w", 100, lanes={"h": LaneCounters(100, 0, 9.0)})))
    assert sample.hosts["h"].done == 100
    sample, base = measure(base, seen(20, worker_status("w", 200)))
    assert "h" not in sample.hosts
    sample, _ = measure(base, seen(30, worker_status("w", 300, lanes={"h": LaneCounters(103, 0, 9.5)})))
    assert sample.hosts["h"].done == 3


def test_a_worker_that_is_heard_of_late_has_all_it_did_counted() -> None:
    _, base = measure(Baseline(), seen(0))
    late = worker_status("w", 40, BEGIN - 8_000_000, took=row(b1=40))
    sample, _ = measure(base, seen(10, late))
    assert sample.by_worker["w"].done == 40 and sum(sample.took) == 40
    returned = worker_status("w", 40_000, BEGIN - 900_000_000, took=row(b1=40_000))
    assert measure(base, seen(10, returned))[0].by_worker["w"].done == 0, "it was only silent for a while"


def test_samples_together_sum_what_was_done_and_keep_how_it_stood_last() -> None:
    one = Sample(10, 10, done=5, ready=7, lag=0.5, failed={"dns": 1}, runs={"a": RunPoint(5, ready=7)})
    two = Sample(20, 10, done=3, ready=4, lag=0.1, failed={"dns": 2}, runs={"b": RunPoint(3, ready=4)})
    both = merge([one, two])
    assert (both.at, both.span, both.done, both.ready, both.lag) == (20, 20, 8, 4, 0.5)
    assert both.failed == {"dns": 3} and both.runs == {"a": RunPoint(5, ready=7), "b": RunPoint(3, ready=4)}
    assert one.done == 5 and one.runs["a"].done == 5, "what is merged is not changed"


async def test_samples_name_no_more_runs_hosts_and_workers_than_charts_can_show(
    queue: SqliteQueue, clock: FakeClock
) -> None:
    now = await queue.now()
    for number in range(100):
        run = await started(queue, 1, f"r{number:03}")
        lanes = {f"h{number}-{n}": LaneCounters(number, 0, 1.0) for n in range(3)}
        figures = encode(Counters(done=number, lanes=lanes))
        await queue.register(WorkerStatus(f"w{number}", "w", "m", 1, "0", now, now, done=number, counters=figures))
    assert run.id == 100
    await History(queue).add_sample()
    (sample,) = (await History(queue).read(60)).samples
    assert (len(sample.runs), len(sample.hosts), len(sample.by_worker)) == (50, 30, 64)
    assert "w99" in sample.by_worker and sample.unfinished == 100 and sample.ready == 100
    assert CHUNK % SLOT == 0 and HOUR % CHUNK == 0


async def test_pages_that_failed_are_told_by_class(queue: SqliteQueue, clock: FakeClock) -> None:
    await started(queue, 4)
    history = History(queue)
    await history.add_sample()
    claim = await queue.claim("w", 4)
    bad = Attempt(at=clock.at, worker="w", cause="http.503", status=503)
    await queue.settle(
        [
            *(Outcome(t.id, t.lease, "dead", attempt=bad, cause="http.503") for t in claim.tasks[:1]),
            *(Outcome(t.id, t.lease, "retry", attempt=bad, cause="http.503", after=60.0) for t in claim.tasks[1:3]),
        ]
    )
    clock.step(SLOT)
    await history.add_sample()
    last = (await history.read(60)).samples[-1]
    assert (last.dead, last.retries, last.delayed, last.leased) == (1, 2, 2, 1)


def counters_of_worker(dice: random.Random, lanes: int) -> Counters:
    """As a worker has them after a day."""
    return Counters(
        done=dice.randrange(10**6),
        bytes=dice.randrange(10**11),
        failed={"http.404": dice.randrange(10**4)},
        took=[dice.randrange(10**5) for _ in empty_buckets(DURATION_BOUNDS)],
        took_sum=dice.random() * 1e6,
        asks=dice.randrange(10**6),
        lanes={f"shop{n}.example": LaneCounters(dice.randrange(10**5), 0, dice.random(), 1) for n in range(lanes)},
    )


async def test_a_thousand_workers_make_no_large_documents_every_ten_seconds(
    queue: SqliteQueue, clock: FakeClock
) -> None:
    dice, history = random.Random(1), History(queue)
    for number in range(1_000):
        counters = encode(counters_of_worker(dice, 20 if number < 256 else 0))
        await queue.register(WorkerStatus(f"machine-{number}", "w", "h", 1, "1", 5, 5, counters=counters))
    added = []
    for _ in range(9):
        for number in range(1_000):
            await queue.register(WorkerStatus(f"machine-{number}", "w", "h", 1, "1", 5, 5, done=len(added)))
        added.append(await history.add_sample())
        clock.step(SLOT)
    assert added == [True, False, False] * 3
    written = [len(one.text) for one in await queue.documents(kinds.HISTORY)]
    assert max(written) < 400_000
    assert sum(one.span for one in (await history.read(HOUR)).samples) == 60.0, "nothing of the time is left out"


async def test_what_a_chunk_is_measured_against_is_no_way_to_fill_the_memory() -> None:
    bomb = base64.b85encode(zlib.compress(b"\x00" * (MAX_BYTES + 1))).decode()
    for text in ("", "no base", bomb, base64.b85encode(b"no zlib").decode(), pack_baseline(Baseline())[:-4]):
        assert unpack_baseline(text) == Baseline()


async def test_a_week_is_kept_and_what_is_older_than_a_day_by_ten_minutes(queue: SqliteQueue, clock: FakeClock) -> None:
    await started(queue, 2_000)
    history = History(queue)
    await history.add_sample()
    for _ in range(8 * 24 * 4):
        clock.step(900)
        await fetch(queue, 1)
        await history.add_sample()
        clock.step(0.001)
    series = await History(queue).read(8 * 24 * HOUR)
    began = series.samples[0].at
    assert 7 * 24 * HOUR <= series.now - began <= (7 * 24 + 3) * HOUR
    assert total(series.samples) == pytest.approx((series.now - began) / 900, abs=2), "nothing is lost on the way"
    index = await queue.document(kinds.HISTORY, "index")
    assert index is not None
    kept = msgspec.json.decode(index.text)
    assert set(kept["coarse"]) < set(kept["hours"]) and len(kept["hours"]) - len(kept["coarse"]) <= 28


def test_ten_minutes_become_one_sample_and_stay_so() -> None:
    samples = [Sample(at, span=60.0, done=1) for at in range(600, 1800, 60)]
    merged = merge_by(samples, COARSE)
    assert [(one.at, one.done, one.span) for one in merged] == [(1140, 10, 600.0), (1740, 10, 600.0)]
    assert merge_by(merged, COARSE) == merged
