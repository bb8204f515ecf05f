"""Schedules: what is decided when, and that a firing is carried out once whoever dies on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from conformance.model import ModelQueue
from conformance.world import Clock, pages

from shoal.control import schedule as control
from shoal.control import timetable
from shoal.control.runs import SEEDING
from shoal.core.lane import Pace
from shoal.core.schedule import (
    LATE,
    MISSED_MOST,
    Firing,
    Order,
    Overlap,
    Pending,
    Schedule,
    carried_out,
    decided,
    following,
    is_due,
    settled,
)
from shoal.errors import Usage

SECOND = 1_000_000
MINUTE, HOUR, DAY = 60 * SECOND, 3600 * SECOND, 86_400 * SECOND
NOON = 1_794_744_000 * SECOND  # 2026-11-15 12:00 UTC


def made(cron: str = "@hourly", since: int = NOON, **more: Any) -> Schedule:
    return settled(Schedule("books", cron, Order("books"), since, since, **more), since)


# What is decided


def test_nothing_happens_before_its_time() -> None:
    schedule = made()
    assert schedule.next == NOON + HOUR
    assert not is_due(schedule, NOON + HOUR - 1)
    assert is_due(schedule, NOON + HOUR)


def test_a_time_that_has_come_becomes_a_firing() -> None:
    fired = decided(made(), NOON + HOUR + 5 * SECOND, busy="", run="r1")
    assert fired.pending == Pending(NOON + HOUR, "r1")
    assert (fired.since, fired.next, fired.missed) == (NOON + HOUR, NOON + 2 * HOUR, 0)
    assert not is_due(fired, NOON + 9 * HOUR)  # first it is carried out


def test_of_times_that_nobody_was_there_for_the_latest_fires_and_the_others_are_counted() -> None:
    fired = decided(made(), NOON + 5 * HOUR + MINUTE, busy="", run="r1")
    assert fired.pending == Pending(NOON + 5 * HOUR, "r1")
    assert fired.missed == 4


def test_a_time_longer_ago_than_a_day_is_not_made_up_for() -> None:
    schedule = made("@monthly")  # the 1st of December
    late = decided(schedule, schedule.next + DAY + 1, busy="", run="r1")
    assert (late.pending, late.missed, late.next > schedule.next) == (None, 1, True)
    assert decided(schedule, schedule.next + DAY, busy="", run="r1").pending


def test_the_count_of_missed_times_is_bounded() -> None:
    late = decided(made("every 1s"), NOON + 300 * DAY, busy="", run="r1")
    assert late.missed == MISSED_MOST - 1
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
    found = decided(made(overlap=overlap), NOON + HOUR, busy=busy, run="new")
    assert (found.pending, found.waiting, found.skipped) == (pending, waiting, skipped)
    assert found.since == NOON + HOUR
    assert bool(found.history) == bool(skipped)


def test_one_time_waits_for_the_former_run_and_further_ones_do_not() -> None:
    waiting = decided(made(overlap="queue"), NOON + HOUR, busy="old", run="new")
    assert is_due(waiting, NOON + HOUR + 1)
    assert decided(waiting, NOON + HOUR + 1, busy="old", run="new") == waiting
    again = decided(waiting, NOON + 2 * HOUR, busy="old", run="new")
    assert (again.waiting, again.skipped, again.history[0].at) == (NOON + HOUR, 1, NOON + 2 * HOUR)
    fired = decided(again, NOON + 2 * HOUR + MINUTE, busy="", run="new")
    assert (fired.pending, fired.waiting) == (Pending(NOON + HOUR, "new"), 0)


def test_a_clock_that_went_back_does_not_fire_a_time_again() -> None:
    fired = carried_out(decided(made(), NOON + 3 * HOUR, busy="", run="r1"), "r1")
    assert not is_due(fired, NOON + HOUR)
    assert decided(fired, NOON + HOUR, busy="", run="r2") == fired
    assert decided(fired, NOON + 3 * HOUR + MINUTE, busy="", run="r2") == fired


def test_a_clock_that_was_ahead_by_days_does_not_stop_a_schedule_for_days() -> None:
    ahead = carried_out(decided(made(), NOON + 300 * DAY, busy="", run="r1"), "r1")
    now = NOON + HOUR + MINUTE
    assert is_due(ahead, now)
    righted = decided(ahead, now, busy="", run="r2")
    assert (righted.pending, righted.next) == (None, NOON + 2 * HOUR)
    assert ahead.since > now + LATE


def test_what_happened_last_is_kept_and_no_more() -> None:
    schedule = made()
    for number in range(1, 15):
        at = NOON + number * HOUR
        schedule = carried_out(decided(schedule, at, busy="", run=f"r{number}"), f"r{number}")
    assert [firing.run for firing in schedule.history] == [f"r{n}" for n in range(14, 4, -1)]
    assert (schedule.fired, schedule.latest) == (14, "r14")


def test_a_schedule_survives_being_written_down() -> None:
    schedule = made(
        zone="Europe/Berlin",
        overlap="queue",
        pending=Pending(NOON, "r1", "r0", by_hand=True),
        history=(Firing(NOON, why="because"),),
    )
    assert msgspec.json.decode(msgspec.json.encode(schedule), type=Schedule) == schedule


# In a queue


class Died(BaseException):
    """A kill -9, as far as one process can do it to itself."""


class Mortal:
    """A queue whose user dies at its nth word: before it was heard, or before the answer came."""

    def __init__(self, queue: ModelQueue, at: int, after: bool) -> None:
        self._queue, self._left, self._after = queue, at, after

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        async def asked(*args: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left == 0 and not self._after:
                raise Died
            answer = await getattr(self._queue, verb)(*args, **named)
            await asyncio.sleep(0)  # others get a word in
            if self._left == 0:
                raise Died
            return answer

        return asked


@pytest.fixture
def clock() -> Clock:
    return Clock(NOON)


@pytest.fixture
def queue(clock: Clock) -> ModelQueue:
    return ModelQueue(clock)


ADDRESSES = 2500


async def add(queue: ModelQueue, cron: str = "@hourly", count: int = ADDRESSES, **more: Any) -> Schedule:
    schedule = Schedule("books", cron, Order("books", {"scraper": "books"}), 0, 0, **more)
    return await timetable.add(queue, schedule, pages(count), {"a.example": Pace(0.5, 1)})


async def whole(queue: ModelQueue, at: int, count: int = ADDRESSES) -> bool:
    """Whether a time has fired once and as a whole."""
    runs = await queue.runs(key=f"schedule/books/{at}")
    schedule = await timetable.find(queue, "books")
    return (
        len(runs) == 1
        and (await queue.stats(runs[0].id)).seen == count
        and not await queue.papers(SEEDING)
        and [(it.at, it.run) for it in schedule.history] == [(at, runs[0].name)]
        and (schedule.pending, schedule.latest, schedule.fired) == (None, runs[0].name, 1)
    )


async def test_a_time_becomes_a_run_with_all_its_addresses(queue: ModelQueue, clock: Clock) -> None:
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


DEATHS = [(at, after) for at in range(1, 18) for after in (False, True)]


@pytest.mark.parametrize(("at", "after"), DEATHS)
async def test_whoever_dies_at_whatever_step_another_finishes_the_firing(
    queue: ModelQueue, clock: Clock, at: int, after: bool
) -> None:
    await add(queue)
    clock.step(3600)
    with pytest.raises(Died):
        await control.tick(Mortal(queue, at, after))  # type: ignore[arg-type]
        raise Died  # it has fewer steps
    await control.tick(queue)
    clock.step(control.GRACE)
    await control.tick(queue)
    assert await whole(queue, NOON + HOUR)


@pytest.mark.parametrize("seed", range(20))
async def test_many_at_once_of_whom_some_die_fire_each_time_once(
    queue: ModelQueue, clock: Clock, seed: int
) -> None:
    await add(queue)
    clock.step(3600)
    crowd = [Mortal(queue, (seed * 7 + n * 5) % 23, bool(n % 2)) for n in range(8)]
    await asyncio.gather(
        *(control.tick(each, grace=seed % 2) for each in crowd),  # type: ignore[arg-type]
        return_exceptions=True,
    )
    await control.tick(queue)
    clock.step(control.GRACE)
    await control.tick(queue)
    assert await whole(queue, NOON + HOUR)


@pytest.mark.parametrize(("pages", "more"), [(3, 0), (20 * timetable.AT_ONCE, 2)])
async def test_who_decided_a_firing_is_given_the_time_to_carry_it_out(
    queue: ModelQueue, clock: Clock, pages: int, more: int
) -> None:
    await add(queue, count=pages)
    clock.step(3600)
    with pytest.raises(Died):
        await control.tick(Mortal(queue, 4, after=True))  # type: ignore[arg-type]
    assert (await timetable.find(queue, "books")).pending
    clock.step(control.GRACE + more - 1)
    assert await control.tick(queue) == []
    clock.step(1)
    assert len(await control.tick(queue)) == 1


class Sleepy:
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


@pytest.mark.parametrize("before", ["swap", "start_run", "add", "now"])
async def test_one_who_slept_until_the_run_had_ended_does_not_start_it_again(
    queue: ModelQueue, clock: Clock, before: str
) -> None:
    await add(queue, count=3)
    clock.step(3600)
    sleepy = Sleepy(queue, before)
    late = asyncio.create_task(control.tick(sleepy))  # type: ignore[arg-type]
    await sleepy.asleep.wait()
    clock.step(control.GRACE)
    await control.tick(queue)
    (run,) = await queue.runs()
    await queue.set_run(run.id, "cancel")
    clock.step(60)
    sleepy.woken.set()
    await late
    await control.tick(queue)
    assert [known.name for known in await queue.runs()] == [run.name]
    assert await whole(queue, NOON + HOUR, 3)


async def test_a_mark_left_by_one_who_came_late_and_died_is_taken_away(
    queue: ModelQueue, clock: Clock
) -> None:
    await add(queue)
    clock.step(3600)
    (name,) = await control.tick(queue)
    await queue.swap(SEEDING, name, '{"schedule": "books"}', 0)
    other = await queue.swap(SEEDING, "another", '{"host": "producer"}', 0)
    await control.tick(queue)
    assert await queue.papers(SEEDING) == [other]


async def test_a_time_is_skipped_while_the_former_run_goes_on(queue: ModelQueue, clock: Clock) -> None:
    await add(queue, count=3)
    clock.step(3600)
    (name,) = await control.tick(queue)
    clock.step(3600)
    assert await control.tick(queue) == []
    clock.step(3600)
    (run,) = await queue.runs()
    await queue.set_run(run.id, "cancel")
    assert len(await control.tick(queue)) == 1
    found = await timetable.find(queue, "books")
    assert [it.why for it in found.history] == ["", f"run {name} was not finished", ""]
    assert (found.fired, found.skipped) == (2, 1)


async def test_a_former_run_can_be_made_to_give_way(queue: ModelQueue, clock: Clock) -> None:
    await add(queue, count=3, overlap="cancel-former")
    for _ in range(3):
        clock.step(3600)
        assert len(await control.tick(queue)) == 1
    assert [run.state for run in await queue.runs()] == ["running", "cancelled", "cancelled"]


async def test_a_time_waits_until_the_former_run_has_ended(queue: ModelQueue, clock: Clock) -> None:
    await add(queue, count=3, overlap="queue")
    clock.step(3600)
    await control.tick(queue)
    clock.step(3600)
    assert await control.tick(queue) == []
    (run,) = await queue.runs()
    await queue.set_run(run.id, "cancel")
    assert len(await control.tick(queue)) == 1
    assert (await queue.runs())[0].key == f"schedule/books/{NOON + 2 * HOUR}"


async def test_pausing_lets_times_pass_and_resuming_makes_up_for_none(
    queue: ModelQueue, clock: Clock
) -> None:
    await add(queue)
    await timetable.pause(queue, "books")
    clock.step(4 * 3600 + 60)
    assert await control.tick(queue) == []
    resumed = await timetable.resume(queue, "books")
    assert resumed.next == NOON + 5 * HOUR
    assert await control.tick(queue) == []


async def test_a_run_by_hand_is_a_firing_beside_the_times(queue: ModelQueue, clock: Clock) -> None:
    await add(queue, count=3)
    run = await timetable.run_now(queue, "books")
    assert (await queue.stats(run.id)).seen == 3
    with pytest.raises(Usage, match="still goes on"):
        await timetable.run_now(queue, "books")
    clock.step(1)
    assert (await timetable.run_now(queue, "books", anyway=True)).id != run.id
    found = await timetable.find(queue, "books")
    assert (found.next, found.fired, found.history[0].by_hand) == (NOON + HOUR, 2, True)


async def test_a_schedule_is_replaced_only_when_told_so_and_keeps_its_history(
    queue: ModelQueue, clock: Clock
) -> None:
    await add(queue, count=3)
    await timetable.run_now(queue, "books")
    with pytest.raises(Usage, match="there is a schedule books already"):
        await add(queue, count=4)
    new = Schedule("books", "@daily", Order("books"), 0, 0)
    changed = await timetable.add(queue, new, pages(4), {}, replace=True)
    assert (changed.fired, changed.cron, len(changed.history)) == (1, "@daily", 1)
    assert changed.next == following(changed, NOON)
    (start,) = await queue.papers(control.START)
    assert start.name.startswith(changed.order.start)


async def test_what_is_removed_is_gone_with_its_addresses_and_its_runs_go_on(queue: ModelQueue) -> None:
    await add(queue, count=3)
    run = await timetable.run_now(queue, "books")
    await timetable.remove(queue, "books")
    assert await timetable.schedules(queue) == [] and await queue.papers(control.START) == []
    assert (await queue.stats(run.id)).open == 3
    with pytest.raises(Usage, match="there is no schedule books here"):
        await timetable.remove(queue, "books")


async def test_a_firing_that_was_decided_is_carried_out_before_its_schedule_goes(
    queue: ModelQueue, clock: Clock
) -> None:
    await add(queue)
    clock.step(3600)
    with pytest.raises(Died):
        await control.tick(Mortal(queue, 5, after=True))  # type: ignore[arg-type]
    assert (await timetable.find(queue, "books")).pending
    await timetable.remove(queue, "books")
    (run,) = await queue.runs()
    assert (await queue.stats(run.id)).seen == ADDRESSES and not await queue.papers(SEEDING)


async def test_more_addresses_than_a_schedule_takes_are_refused(queue: ModelQueue) -> None:
    with pytest.raises(Usage, match="at most 100,000 addresses"):
        await timetable.add(queue, made(), pages(1) * (timetable.MOST + 1), {})


async def test_document_that_is_no_schedule_at_all_ends_nobody(
    queue: ModelQueue, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    await queue.swap(control.KIND, "odd", "not even JSON", 0)
    await add(queue, count=1)
    clock.step(3600)
    assert len(await control.tick(queue)) == 1
    assert [found.name for found in await timetable.schedules(queue)] == ["books"]
    assert "schedule_failing" in [record.message for record in caplog.records]


@pytest.mark.parametrize("strange", [{"cron": 7}, {"zone": "Mars/Base"}, {"cron": "every other day"}])
async def test_a_schedule_that_is_not_understood_here_is_left_to_others(
    queue: ModelQueue, clock: Clock, strange: dict[str, object], caplog: pytest.LogCaptureFixture
) -> None:
    known = msgspec.to_builtins(made())
    text = msgspec.json.encode(known | {"name": f"atom-{strange}"} | strange).decode()
    await queue.swap(control.KIND, f"atom-{strange}", text, 0)
    await add(queue, count=1)
    clock.step(3600)
    assert len(await control.tick(queue)) == 1
    assert await control.tick(queue) == []
    assert [record.message for record in caplog.records] == ["schedule_failing"]
