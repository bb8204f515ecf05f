"""Schedules: what is decided when, and that a firing is carried out once whoever dies on the way."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import msgspec
import pytest
from conformance.harness import pages
from conformance.model import ModelQueue
from fake_clock import FakeClock
from unreliable_queue import CrashingQueue, Killed

from shoal.control import schedule_runner as control
from shoal.control import schedules
from shoal.core.lane import Pace
from shoal.core.schedule import (
    CATCH_UP_WINDOW,
    MAX_MISSED,
    Firing,
    Overlap,
    Pending,
    Schedule,
    ScheduledRun,
    advance,
    complete_firing,
    decide_firing,
    is_due,
    next_firing,
)
from shoal.errors import UsageError
from shoal.queue import document_kinds as kinds
from shoal.sources.start_task import start_task

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
NOON = 1_794_744_000 * SECOND  # 2026-11-15 12:00 UTC


def made(cron: str = "@hourly", since: int = NOON, **more: Any) -> Schedule:
    return advance(Schedule("books", cron, ScheduledRun("books"), since, since, **more), since)


# What is decided


def test_nothing_happens_before_its_time() -> None:
    schedule = made()
    assert schedule.next == NOON + HOUR
    assert not is_due(schedule, NOON + HOUR - 1)
    assert is_due(schedule, NOON + HOUR)


def test_a_time_that_has_come_becomes_a_firing() -> None:
    fired = decide_firing(made(), NOON + HOUR + 5 * SECOND, busy="", run="r1")
    assert fired.pending == Pending(NOON + HOUR, "r1")
    assert (fired.since, fired.next, fired.missed) == (NOON + HOUR, NOON + 2 * HOUR, 0)
    assert not is_due(fired, NOON + 9 * HOUR)  # first it is carried out


def test_of_times_that_nobody_was_there_for_the_latest_fires_and_the_others_are_counted() -> None:
    fired = decide_firing(made(), NOON + 5 * HOUR + MINUTE, busy="", run="r1")
    assert fired.pending == Pending(NOON + 5 * HOUR, "r1")
    assert fired.missed == 4


def test_a_time_longer_ago_than_a_day_is_not_made_up_for() -> None:
    schedule = made("@monthly")  # the 1st of December
    late = decide_firing(schedule, schedule.next + DAY + 1, busy="", run="r1")
    assert (late.pending, late.missed, late.next > schedule.next) == (None, 1, True)
    assert decide_firing(schedule, schedule.next + DAY, busy="", run="r1").pending


def test_the_count_of_missed_times_is_bounded() -> None:
    late = decide_firing(made("every 1s"), NOON + 300 * DAY, busy="", run="r1")
    assert late.missed == MAX_MISSED - 1
    assert late.since == NOON + 300 * DAY


def test_a_paused_schedule_lets_its_times_pass() -> None:
    assert not is_due(made(paused=True), NOON + 5 * HOUR)


RULES: list[tuple[Overlap, str, Pending | None, int, int]] = [
    # rule, former run, pending, waiting, skipped
    ("skip", "", Pending(NOON + HOUR, "new"), 0, 0),
    ("skip", "old", None, 0, 1),
    ("queue", "", Pending(NOON + HOUR, "new"), 0, 0),
    ("queue", "old", None, NOON + HOUR, 0),
    ("cancel-former", "", Pending(NOON + HOUR, "new"), 0, 0),
    ("cancel-former", "old", Pending(NOON + HOUR, "new", cancel="old"), 0, 0),
    ("allow", "", Pending(NOON + HOUR, "new"), 0, 0),
    ("allow", "old", Pending(NOON + HOUR, "new"), 0, 0),
]


@pytest.mark.parametrize(("overlap", "busy", "pending", "waiting", "skipped"), RULES)
def test_what_to_do_while_the_former_run_goes_on(
    overlap: Overlap, busy: str, pending: Pending | None, waiting: int, skipped: int
) -> None:
    found = decide_firing(made(overlap=overlap), NOON + HOUR, busy=busy, run="new")
    assert (found.pending, found.waiting, found.skipped) == (pending, waiting, skipped)
    assert found.since == NOON + HOUR
    assert bool(found.history) == bool(skipped)


def test_one_time_waits_for_the_former_run_and_further_ones_do_not() -> None:
    waiting = decide_firing(made(overlap="queue"), NOON + HOUR, busy="old", run="new")
    assert is_due(waiting, NOON + HOUR + 1)
    assert decide_firing(waiting, NOON + HOUR + 1, busy="old", run="new") == waiting
    again = decide_firing(waiting, NOON + 2 * HOUR, busy="old", run="new")
    assert (again.waiting, again.skipped, again.history[0].at) == (NOON + HOUR, 1, NOON + 2 * HOUR)
    fired = decide_firing(again, NOON + 2 * HOUR + MINUTE, busy="", run="new")
    assert (fired.pending, fired.waiting) == (Pending(NOON + HOUR, "new"), 0)


def test_a_clock_that_went_back_does_not_fire_a_time_again() -> None:
    fired = complete_firing(decide_firing(made(), NOON + 3 * HOUR, busy="", run="r1"), "r1")
    assert not is_due(fired, NOON + HOUR)
    assert decide_firing(fired, NOON + HOUR, busy="", run="r2") == fired
    assert decide_firing(fired, NOON + 3 * HOUR + MINUTE, busy="", run="r2") == fired


def test_a_clock_that_was_ahead_by_days_does_not_stop_a_schedule_for_days() -> None:
    ahead = complete_firing(decide_firing(made(), NOON + 300 * DAY, busy="", run="r1"), "r1")
    now = NOON + HOUR + MINUTE
    assert is_due(ahead, now)
    righted = decide_firing(ahead, now, busy="", run="r2")
    assert (righted.pending, righted.next) == (None, NOON + 2 * HOUR)
    assert ahead.since > now + CATCH_UP_WINDOW


def test_what_happened_last_is_kept_and_no_more() -> None:
    schedule = made()
    for number in range(1, 15):
        at = NOON + number * HOUR
        schedule = complete_firing(decide_firing(schedule, at, busy="", run=f"r{number}"), f"r{number}")
    assert [firing.run for firing in schedule.history] == [f"r{n}" for n in range(14, 4, -1)]
    assert (schedule.fired, schedule.latest) == (14, "r14")


def test_a_schedule_survives_being_written_down() -> None:
    schedule = made(
        zone="Europe/Berlin",
        overlap="queue",
        pending=Pending(NOON, "r1", "r0", is_manual=True),
        history=(Firing(NOON, why="because"),),
    )
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


# In a queue


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def queue(clock: FakeClock) -> ModelQueue:
    return ModelQueue(clock)


ADDRESSES = 2500


async def add(queue: ModelQueue, cron: str = "@hourly", count: int = ADDRESSES, **more: Any) -> Schedule:
    schedule = Schedule("books", cron, ScheduledRun("books", {"scraper": "books"}), 0, 0, **more)
    return await schedules.add(queue, schedule, pages(count), {"a.example": Pace(0.5, 1)})


async def whole(queue: ModelQueue, at: int, count: int = ADDRESSES) -> bool:
    """Whether a time has fired once and as a whole."""
    runs = await queue.runs(key=f"schedule/books/{at}")
    schedule = await schedules.find(queue, "books")
    return (
        len(runs) == 1
        and (await queue.stats(runs[0].id)).seen == count
        and not await queue.documents(kinds.SEEDING)
        and [(it.at, it.run) for it in schedule.history] == [(at, runs[0].name)]
        and (schedule.pending, schedule.latest, schedule.fired) == (None, runs[0].name, 1)
    )


async def test_a_time_becomes_a_run_with_all_its_urls(queue: ModelQueue, clock: FakeClock) -> None:
    await add(queue)
    clock.step(3599)
    assert await control.tick(queue) == []
    clock.step(1)
    (name,) = await control.tick(queue)
    assert await control.tick(queue) == []
    (run,) = await queue.runs()
    assert (run.name, run.scraper, run.state) == (name, "books", "running")
    assert run.spec == {"scraper": "books", "schedule": "books"}
    assert await whole(queue, NOON + HOUR)


async def test_a_schedule_with_a_seen_set_takes_only_what_is_new(queue: ModelQueue, clock: FakeClock) -> None:
    order = ScheduledRun("books", {"scraper": "books"}, seen_set="prices", seen_for=86_400.0, dead_retention=3600.0)
    schedule = Schedule("books", "@hourly", order, 0, 0, overlap="allow")
    await schedules.add(queue, schedule, pages(5), {})
    for expected in (5, 0):
        clock.step(3600)
        (name,) = await control.tick(queue)
        (run,) = await queue.runs(name=name)
        assert (run.seen_set, run.seen_for, run.dead_retention) == ("prices", 86_400.0, 3600.0)
        assert (await queue.stats(run.id)).seen == expected


async def test_a_schedule_with_a_seen_set_reads_its_sitemaps_every_time(queue: ModelQueue, clock: FakeClock) -> None:
    order = ScheduledRun("books", {"scraper": "books"}, seen_set="prices")
    await schedules.add(
        queue,
        Schedule("books", "@hourly", order, 0, 0, overlap="allow"),
        [start_task("sitemap:https://a.test"), start_task("https://a.test/page")],
        {},
    )
    for expected in (2, 1):
        clock.step(3600)
        (name,) = await control.tick(queue)
        (run,) = await queue.runs(name=name)
        assert (await queue.stats(run.id)).seen == expected


DEATHS = [(at, after) for at in range(1, 18) for after in (False, True)]


@pytest.mark.parametrize(("at", "after"), DEATHS)
async def test_whoever_dies_at_whatever_step_another_finishes_the_firing(
    queue: ModelQueue, clock: FakeClock, at: int, after: bool
) -> None:
    await add(queue)
    clock.step(3600)
    with pytest.raises(Killed):
        await control.tick(CrashingQueue(queue, [at], after=after))  # type: ignore[arg-type]
        raise Killed  # it has fewer steps
    await control.tick(queue)
    clock.step(control.GRACE)
    await control.tick(queue)
    assert await whole(queue, NOON + HOUR)


class WatchedQueue:
    """A queue that is looked at before and after each word: a run without all its URLs must be marked."""

    def __init__(self, queue: ModelQueue) -> None:
        self._queue = queue
        self.seen: set[int] = set()

    def __getattr__(self, verb: str) -> Any:
        async def asked(*args: Any, **named: Any) -> Any:
            await self._look()
            answer = await getattr(self._queue, verb)(*args, **named)
            await self._look()
            return answer

        return asked

    async def _look(self) -> None:
        for run in await self._queue.runs():
            self.seen.add(count := (await self._queue.stats(run.id)).seen)
            marked = await self._queue.document(kinds.SEEDING, run.name)
            assert count == 3 or marked, f"with {count} of 3 URLs whoever looks may finish it"


@pytest.mark.parametrize(("at", "after"), [(0, True), *DEATHS])
async def test_a_run_is_marked_from_before_it_begins_until_all_its_urls_are_in_it(
    queue: ModelQueue, clock: FakeClock, at: int, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules, "BATCH_SIZE", 1)
    await add(queue, count=3)
    clock.step(3600)
    watched = WatchedQueue(queue)
    with contextlib.suppress(Killed):
        await control.tick(CrashingQueue(watched, [at], after=after))  # type: ignore[arg-type]
    await control.tick(watched)  # type: ignore[arg-type]
    clock.step(control.GRACE)
    await control.tick(watched)  # type: ignore[arg-type]
    assert await whole(queue, NOON + HOUR, 3)
    assert watched.seen == {0, 1, 2, 3}


@pytest.mark.parametrize("seed", range(20))
async def test_many_at_once_of_whom_some_die_fire_each_time_once(
    queue: ModelQueue, clock: FakeClock, seed: int
) -> None:
    await add(queue)
    clock.step(3600)
    crowd = [CrashingQueue(queue, [(seed * 7 + n * 5) % 23], after=bool(n % 2)) for n in range(8)]
    await asyncio.gather(
        *(control.tick(each, grace=seed % 2) for each in crowd),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    await control.tick(queue)
    clock.step(control.GRACE)
    await control.tick(queue)
    assert await whole(queue, NOON + HOUR)


@pytest.mark.parametrize(("pages", "more"), [(3, 0), (20 * schedules.BATCH_SIZE, 2)])
async def test_who_decided_a_firing_is_given_the_time_to_carry_it_out(
    queue: ModelQueue, clock: FakeClock, pages: int, more: int
) -> None:
    await add(queue, count=pages)
    clock.step(3600)
    with pytest.raises(Killed):
        await control.tick(CrashingQueue(queue, [4], after=True))  # type: ignore[arg-type]
    assert (await schedules.find(queue, "books")).pending
    clock.step(control.GRACE + more - 1)
    assert await control.tick(queue) == []
    clock.step(1)
    assert len(await control.tick(queue)) == 1


class PausingQueue:
    """A queue whose user sleeps before a word until woken."""

    def __init__(self, queue: ModelQueue, before: str) -> None:
        self._queue, self._before = queue, before
        self.asleep, self.woken = asyncio.Event(), asyncio.Event()

    def __getattr__(self, verb: str) -> Any:
        async def asked(*args: Any, **named: Any) -> Any:
            if verb == self._before:
                self.asleep.set()
                await self.woken.wait()
            return await getattr(self._queue, verb)(*args, **named)

        return asked


@pytest.mark.parametrize("before", ["compare_and_swap", "start_run", "add", "now"])
async def test_one_who_slept_until_the_run_had_ended_does_not_start_it_again(
    queue: ModelQueue, clock: FakeClock, before: str
) -> None:
    await add(queue, count=3)
    clock.step(3600)
    pausing_queue = PausingQueue(queue, before)
    late = asyncio.create_task(control.tick(pausing_queue))  # type: ignore[arg-type]
    await pausing_queue.asleep.wait()
    clock.step(control.GRACE)
    await control.tick(queue)
    (run,) = await queue.runs()
    await queue.set_run(run.id, "cancel")
    clock.step(60)
    pausing_queue.woken.set()
    await late
    await control.tick(queue)
    assert [known.name for known in await queue.runs()] == [run.name]
    assert await whole(queue, NOON + HOUR, 3)


async def test_a_mark_left_by_one_who_came_late_and_died_is_taken_away(queue: ModelQueue, clock: FakeClock) -> None:
    await add(queue)
    clock.step(3600)
    (name,) = await control.tick(queue)
    await queue.compare_and_swap(kinds.SEEDING, name, '{"seeder": "schedule books"}', 0)
    other = await queue.compare_and_swap(kinds.SEEDING, "another", '{"host": "producer"}', 0)
    await control.tick(queue)
    assert await queue.documents(kinds.SEEDING) == [other]


async def test_a_time_is_skipped_while_the_former_run_goes_on(queue: ModelQueue, clock: FakeClock) -> None:
    await add(queue, count=3)
    clock.step(3600)
    (name,) = await control.tick(queue)
    clock.step(3600)
    assert await control.tick(queue) == []
    clock.step(3600)
    (run,) = await queue.runs()
    await queue.set_run(run.id, "cancel")
    assert len(await control.tick(queue)) == 1
    found = await schedules.find(queue, "books")
    assert [it.why for it in found.history] == ["", f"run {name} was still running", ""]
    assert (found.fired, found.skipped) == (2, 1)


async def test_a_former_run_can_be_made_to_give_way(queue: ModelQueue, clock: FakeClock) -> None:
    await add(queue, count=3, overlap="cancel-former")
    for _ in range(3):
        clock.step(3600)
        assert len(await control.tick(queue)) == 1
    assert [run.state for run in await queue.runs()] == ["running", "cancelled", "cancelled"]


async def test_a_time_waits_until_the_former_run_has_ended(queue: ModelQueue, clock: FakeClock) -> None:
    await add(queue, count=3, overlap="queue")
    clock.step(3600)
    await control.tick(queue)
    clock.step(3600)
    assert await control.tick(queue) == []
    (run,) = await queue.runs()
    await queue.set_run(run.id, "cancel")
    assert len(await control.tick(queue)) == 1
    assert (await queue.runs())[0].key == f"schedule/books/{NOON + 2 * HOUR}"


async def test_pausing_lets_times_pass_and_resuming_makes_up_for_none(queue: ModelQueue, clock: FakeClock) -> None:
    await add(queue)
    await schedules.pause(queue, "books")
    clock.step(4 * 3600 + 60)
    assert await control.tick(queue) == []
    resumed = await schedules.resume(queue, "books")
    assert resumed.next == NOON + 5 * HOUR
    assert await control.tick(queue) == []


async def test_a_run_by_hand_is_a_firing_beside_the_times(queue: ModelQueue, clock: FakeClock) -> None:
    await add(queue, count=3)
    run = await schedules.run_now(queue, "books")
    assert (await queue.stats(run.id)).seen == 3
    with pytest.raises(UsageError, match="is still running"):
        await schedules.run_now(queue, "books")
    clock.step(1)
    assert (await schedules.run_now(queue, "books", anyway=True)).id != run.id
    found = await schedules.find(queue, "books")
    assert (found.next, found.fired, found.history[0].is_manual) == (NOON + HOUR, 2, True)


async def test_a_schedule_is_replaced_only_when_told_so_and_keeps_its_history(
    queue: ModelQueue, clock: FakeClock
) -> None:
    await add(queue, count=3)
    await schedules.run_now(queue, "books")
    with pytest.raises(UsageError, match="schedule books already exists"):
        await add(queue, count=4)
    new = Schedule("books", "@daily", ScheduledRun("books"), 0, 0)
    changed = await schedules.add(queue, new, pages(4), {}, replace=True)
    assert (changed.fired, changed.cron, len(changed.history)) == (1, "@daily", 1)
    assert changed.next == next_firing(changed, NOON)
    (start,) = await queue.documents(kinds.SCHEDULE_START)
    assert start.name.startswith(changed.order.start)


async def test_what_is_removed_is_gone_with_its_urls_and_its_runs_go_on(queue: ModelQueue) -> None:
    await add(queue, count=3)
    run = await schedules.run_now(queue, "books")
    await schedules.remove(queue, "books")
    assert await schedules.all_schedules(queue) == [] and await queue.documents(kinds.SCHEDULE_START) == []
    assert (await queue.stats(run.id)).open == 3
    with pytest.raises(UsageError, match="there is no schedule books here"):
        await schedules.remove(queue, "books")


async def test_a_firing_that_was_decided_is_carried_out_before_its_schedule_goes(
    queue: ModelQueue, clock: FakeClock
) -> None:
    await add(queue)
    clock.step(3600)
    with pytest.raises(Killed):
        await control.tick(CrashingQueue(queue, [5], after=True))  # type: ignore[arg-type]
    assert (await schedules.find(queue, "books")).pending
    await schedules.remove(queue, "books")
    (run,) = await queue.runs()
    assert (await queue.stats(run.id)).seen == ADDRESSES and not await queue.documents(kinds.SEEDING)


async def test_more_urls_than_a_schedule_takes_are_refused(queue: ModelQueue) -> None:
    with pytest.raises(UsageError, match="at most 100,000 URLs"):
        await schedules.add(queue, made(), pages(1) * (schedules.MAX_URLS + 1), {})


async def test_document_that_is_no_schedule_at_all_ends_nobody(
    queue: ModelQueue, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.compare_and_swap(kinds.SCHEDULE, "odd", "not even JSON", 0)
    await add(queue, count=1)
    clock.step(3600)
    assert len(await control.tick(queue)) == 1
    assert [found.name for found in await schedules.all_schedules(queue)] == ["books"]
    assert "schedule_failing" in [record.message for record in caplog.records]


@pytest.mark.parametrize("strange", [{"cron": 7}, {"zone": "Mars/Base"}, {"cron": "every other day"}])
async def test_a_schedule_that_is_not_understood_here_is_left_to_others(
    queue: ModelQueue, clock: FakeClock, strange: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    known = msgspec.to_builtins(made())
    text = msgspec.json.encode(known | {"name": f"atom-{strange}"} | strange).decode()
    await queue.compare_and_swap(kinds.SCHEDULE, f"atom-{strange}", text, 0)
    await add(queue, count=1)
    clock.step(3600)
    assert len(await control.tick(queue)) == 1
    assert await control.tick(queue) == []
    assert [record.message for record in caplog.records] == ["schedule_failing"]
