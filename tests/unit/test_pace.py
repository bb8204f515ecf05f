"""The pace of a host: rules as tables, and fleets of workers against hosts that can take only so much."""

from __future__ import annotations

import heapq
import random
import time
import timeit
from collections.abc import Callable
from itertools import pairwise

import pytest

from shoal.core.task import LaneChange
from shoal.politeness import pace as module
from shoal.politeness.pace import MAX_SPACING, MIN_CHANGE_INTERVAL, AdaptivePace, spacing_change


class Host:
    """One lane seen by one worker, with the queue doing at once what it is told."""

    def __init__(self, spacing: float = 1.0, floor: float = 0.0, asked: float = 1.0) -> None:
        self.adaptive = AdaptivePace()
        self.learned = spacing if spacing > asked else 0.0
        self.floor = floor
        self.asked = asked
        self.now = 100.0
        self.told: list[float] = []

    @property
    def spacing(self) -> float:
        return max(self.learned, self.asked)

    def answers(self, count: int, seconds: float = 0.1, status: int = 200) -> list[float]:
        """What the queue was told during so many answers."""
        before = len(self.told)
        for _ in range(count):
            self.now += max(self.spacing, 0.01)
            told = self.adaptive.observe(
                "h",
                seconds=seconds,
                status=status,
                spacing=self.spacing,
                now=self.now,
                floor=self.floor,
                asked=self.asked,
            )
            if told is not None:
                self.told.append(told)
                self.learned = told
        return self.told[before:]


@pytest.mark.parametrize("spacing", [0.0, 0.2, 1.0, 10.0])
@pytest.mark.parametrize("seconds", [0.001, 0.1, 0.4, 3.0])
def test_a_host_that_answers_as_it_always_did_is_left_as_it_is(spacing: float, seconds: float) -> None:
    assert Host(spacing, asked=spacing).answers(500, seconds) == []


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    ("asked", "floor", "told"),
    [
        (0.0, 0.0, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_SPACING]),
        (0.1, 0.0, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, MAX_SPACING]),
        (3.0, 0.0, [6.0, 12.0, 24.0, 48.0, MAX_SPACING]),
        (0.0, 5.0, [5.0, 10.0, 20.0, 40.0, MAX_SPACING]),
        (45.0, 0.0, [MAX_SPACING]),
        (90.0, 0.0, []),
        (0.0, 200.0, [200.0]),
    ],
)
def test_a_refusal_doubles_the_spacing_up_to_a_minute(
    status: int, asked: float, floor: float, told: list[float]
) -> None:
    assert Host(asked, floor, asked).answers(400, status=status) == told


@pytest.mark.parametrize("status", [301, 404, 403, 500, 502])
def test_other_answers_say_nothing_about_the_pace(status: int) -> None:
    host = Host(4.0)
    assert host.answers(100, 9.0, status) == []


def test_a_refused_host_gets_faster_with_success_and_is_forgotten_at_the_pace_asked_for() -> None:
    host = Host()
    host.answers(20)
    assert host.answers(1, status=429) == [2.0]
    host.now += module.REFUSED_SPACING_TTL
    assert host.answers(100) == [1.6, 1.28, 1.024, 0.0]
    assert host.answers(100) == []


def test_a_spacing_that_was_refused_is_not_tried_again_for_a_while() -> None:
    host = Host(0.2, asked=0.2)
    host.answers(20)
    host.answers(1, status=429)
    assert host.spacing == 1.0
    while host.spacing > 0.5:
        host.answers(1)
    refused = host.spacing
    host.now += MIN_CHANGE_INTERVAL
    assert host.answers(1, status=429) == [1.0]
    until = host.now + module.REFUSED_SPACING_TTL
    while host.now < until - 1:
        host.answers(1)
    assert host.spacing == pytest.approx(refused * 1.25, rel=0.01)
    host.answers(200)
    assert host.spacing < refused


def test_it_never_gets_faster_than_the_crawl_delay() -> None:
    host = Host(2.0, floor=2.0, asked=1.0)
    host.answers(10)
    host.answers(1, status=503)
    host.now += module.REFUSED_SPACING_TTL
    assert host.answers(200)[-1] == 2.0
    assert min(host.told) == 2.0


def test_a_pace_kept_from_before_a_restart_gets_faster_too() -> None:
    host = Host(8.0, asked=1.0)
    told = host.answers(300)
    assert told[0] == 6.4
    assert told[-1] == 0.0
    assert host.spacing == 1.0


def test_a_pace_that_another_run_asks_for_is_left_alone() -> None:
    adaptive, told = AdaptivePace(), []
    for second in range(0, 2000, 2):
        told.append(adaptive.observe("h", seconds=0.1, status=200, spacing=2.0, now=float(second), asked=1.0))
    assert [spacing for spacing in told if spacing is not None] == [1.6, 0.0]


def test_rising_latency_slows_down_and_the_usual_one_speeds_up_again() -> None:
    host = Host(0.2, asked=0.2)
    host.answers(50, 0.1)
    assert host.answers(3, 0.9) == []  # may be an accident
    host.answers(10, 0.1)
    assert host.answers(12, 0.9) == [0.3]
    host.answers(300, 0.1)
    assert host.told[-1] == 0.0
    assert host.spacing == 0.2


def test_one_answer_that_hangs_is_an_accident() -> None:
    host = Host(0.2, asked=0.2)
    for _ in range(50):
        assert host.answers(10, 0.1) == []
        assert host.answers(1, 30.0) == []


def test_a_host_that_is_slow_by_nature_is_not_slowed_down_without_end() -> None:
    host = Host(0.2, asked=0.2)
    host.answers(20, 0.02)  # a few quick pages first
    host.answers(1000, 1.0)  # and then the real ones, whatever the pace
    assert max(host.told) <= 1.0
    assert host.answers(1000, 1.0)[-1:] in ([], [0.0])
    assert host.spacing == 0.2


def test_beyond_twice_the_time_of_an_answer_slower_does_not_help() -> None:
    host = Host(1.0)
    host.answers(20, 0.1)
    host.answers(200, 0.6)
    assert max(host.told, default=0) <= 1.2


def test_without_any_spacing_it_takes_a_strong_rise() -> None:
    mild, strong = Host(0.0, asked=0.0), Host(0.0, asked=0.0)
    for host in (mild, strong):
        host.answers(50, 0.3)
    assert mild.answers(500, 0.9) == []
    told = strong.answers(1000, 3.0)
    assert told
    assert 0.05 <= told[0] <= 1.0
    strong.now += module.SLOW_SPACING_TTL
    strong.answers(3000, 0.3)
    assert strong.told[-1] == 0.0


def test_an_answer_to_a_request_from_before_the_change_is_not_counted_twice() -> None:
    adaptive = AdaptivePace()

    def refused(spacing: float, now: float) -> float | None:
        return adaptive.observe("h", seconds=1.0, status=429, spacing=spacing, now=now, asked=1.0)

    assert refused(1.0, 10.0) == 2.0
    assert [refused(1.0, 10.0 + n / 10) for n in range(100)] == [None] * 100  # still under way
    assert refused(2.0, 20.0) == 4.0
    assert refused(1.0, 19.0) is None  # a straggler


def test_a_straggler_does_not_undo_what_others_have_done_since() -> None:
    adaptive = AdaptivePace()
    adaptive.observe("h", seconds=0.1, status=200, spacing=1.0, now=10.0, asked=1.0)
    adaptive.observe("h", seconds=0.1, status=200, spacing=4.0, now=30.0, asked=1.0)
    assert adaptive.observe("h", seconds=20.0, status=429, spacing=1.0, now=31.0, asked=1.0) is None
    assert adaptive.observe("h", seconds=0.1, status=429, spacing=4.0, now=34.0, asked=1.0) == 8.0


def test_two_changes_of_a_lane_are_two_seconds_apart() -> None:
    adaptive = AdaptivePace()

    def refused(spacing: float, now: float) -> float | None:
        return adaptive.observe("h", seconds=0.1, status=429, spacing=spacing, now=now, asked=1.0)

    assert refused(1.0, 10.0) == 2.0
    assert refused(2.0, 10.0 + MIN_CHANGE_INTERVAL - 0.1) is None
    assert refused(2.0, 10.0 + MIN_CHANGE_INTERVAL) == 4.0


def test_lanes_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_LANES", 10)
    adaptive = AdaptivePace()
    for number in range(100):
        adaptive.observe(f"h{number}", seconds=0.1, status=200, spacing=1.0, now=0.0)
    assert len(adaptive._lanes) == 10


@pytest.mark.parametrize(
    ("told", "spacing", "status", "floor", "change"),
    [
        (2.0, 1.0, 429, 0.0, LaneChange("h", spacing=2.0, reason="429")),
        (1.5, 1.0, 200, 0.0, LaneChange("h", spacing=1.5, reason="slow answers")),
        (0.8, 1.0, 200, 0.0, LaneChange("h", spacing=0.8, reason="speeding up again")),
        (0.0, 1.0, 200, 0.0, LaneChange("h", spacing=0.0)),
        (2.0, 4.0, 200, 2.0, LaneChange("h", spacing=2.0, reason="crawl-delay")),
    ],
)
def test_people_hear_why(told: float, spacing: float, status: int, floor: float, change: LaneChange) -> None:
    assert spacing_change("h", told, spacing=spacing, status=status, floor=floor) == change


def test_a_host_that_recovers_says_what_it_recovers_from() -> None:
    host = Host(1.0)
    host.answers(20)
    assert host.adaptive.recovery_reason("h") == ""
    assert host.answers(1, status=429) == [2.0]
    assert len(host.answers(7)) == 1
    assert host.adaptive.recovery_reason("h") == "speeding up again after 429"
    change = spacing_change("h", 1.6, spacing=2.0, status=200, recovery=host.adaptive.recovery_reason("h"))
    assert change.reason == "speeding up again after 429"
    host.answers(100)
    assert host.spacing == 1.25  # 1.0 was refused, and is not tried again so soon
    assert host.adaptive.recovery_reason("h") == "429 when it was asked faster"


def test_a_pace_that_another_run_insisted_on_is_forgotten_when_that_run_is_gone() -> None:
    host = Host(1.0, asked=0.05)
    host.adaptive.observe("h", seconds=0.1, status=200, spacing=1.0, now=host.now, asked=0.05)
    told = []
    for _ in range(60):  # whatever is told to the queue, the other run's second between requests stays
        host.now += 1.0
        told.append(host.adaptive.observe("h", seconds=0.1, status=200, spacing=1.0, now=host.now, asked=0.05))
    assert [it for it in told if it is not None] == [0.8, 0.0]
    host.learned = 0.0
    host.answers(20)
    assert host.answers(1, status=429) == [1.0]
    host.now += 301.0
    assert host.answers(60)[:3] == [0.8, 0.64, 0.512]


def test_a_good_answer_costs_next_to_nothing() -> None:
    adaptive = AdaptivePace()

    def usual() -> None:
        adaptive.observe("h", seconds=0.02, status=200, spacing=1.0, now=1.0, floor=0.0, asked=1.0)

    # Of this process alone, and with slack: others may be busy. It takes about a microsecond.
    assert min(timeit.repeat(usual, number=10_000, repeat=5, timer=time.process_time)) / 10_000 < 10e-6


class Fleet:
    """Workers that share a queue which hands out slots ahead of time, and a host with its own mind."""

    AHEAD = 1.5  # seconds

    def __init__(self, host: Callable[[float, float], tuple[int, float]], asked: float, workers: int = 4):
        self.host = host
        self.asked = asked
        self.learned = 0.0
        self.workers = [AdaptivePace() for _ in range(workers)]
        self.dice = random.Random(3)
        self.now = 0.0
        self.next_at = 0.0
        self.rate = 0.0  # requests per second, lately
        self.sent_at = 0.0
        self.held_until = 0.0
        self.log: list[tuple[float, int, float, float]] = []  # when, status, seconds, spacing
        self.changes: list[tuple[float, int, float]] = []  # when, by whom, to what

    def run(self, seconds: float) -> None:
        """Slots are given out in order; answers come when they come."""
        end = self.now + seconds
        events: list[tuple[float, int, int, int, float, float]] = []
        number = 0
        while True:
            claimed_at = max(self.next_at - self.AHEAD, self.now)
            if claimed_at < end and (not events or claimed_at <= events[0][0]):
                spacing = max(self.asked, self.learned)
                slot = max(self.next_at, claimed_at, self.held_until)
                self.next_at = slot + spacing
                status, took = self._ask(slot)
                number += 1
                heapq.heappush(events, (slot + took, number, number % len(self.workers), status, took, spacing))
            elif events:
                self._answer(*heapq.heappop(events))
            else:
                self.now = end
                return

    def _ask(self, at: float) -> tuple[int, float]:
        gap = max(at - self.sent_at, 1e-3)
        share = min(1.0, gap / 2.0)
        self.rate += share * (1 / gap - self.rate)
        self.sent_at = at
        status, took = self.host(self.rate, at)
        return status, took * self.dice.uniform(0.8, 1.3)

    def _answer(self, at: float, number: int, by: int, status: int, took: float, spacing: float) -> None:
        self.now = max(self.now, at)
        self.log.append((at, status, took, spacing))
        told = self.workers[by].observe("h", seconds=took, status=status, spacing=spacing, now=at, asked=self.asked)
        if told is not None:
            self.changes.append((at, by, told))
            self.learned = told
        if status == 429:
            self.held_until = max(self.held_until, at + 5.0)

    def lately(self, seconds: float) -> list[tuple[float, int, float, float]]:
        return [entry for entry in self.log if entry[0] > self.now - seconds]


def crowded(capacity: float) -> Callable[[float, float], tuple[int, float]]:
    """A host that takes 0.1 s, and ever more when asked more often than it can bear."""
    return lambda rate, at: (200, 0.1 * max(1.0, rate / capacity) ** 3)


def rationed(limit: float) -> Callable[[float, float], tuple[int, float]]:
    return lambda rate, at: (429, 0.05) if rate > limit else (200, 0.1)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_crowded_host_is_relieved_and_no_more_than_needed(workers: int) -> None:
    fleet = Fleet(crowded(8.0), asked=0.05, workers=workers)  # asked for 20 a second, bears 8
    fleet.run(600)
    last = fleet.lately(200)
    assert sum(took for _, _, took, _ in last) / len(last) < 0.5  # 1.5 s without mercy
    assert 6.0 < len(last) / 200 < 14.0
    assert max(spacing for *_, spacing in fleet.log) < 1.0


@pytest.mark.parametrize("workers", [1, 4])
def test_relieved_of_its_crowd_the_host_gets_the_pace_asked_for_again(workers: int) -> None:
    fleet = Fleet(crowded(5.0), asked=0.05, workers=workers)
    fleet.run(300)
    assert max(spacing for *_, spacing in fleet.log) > 0.08
    fleet.host = crowded(1000.0)
    fleet.run(300)
    assert fleet.learned == 0.0
    assert fleet.lately(60)[-1][3] == 0.05


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("asked", [0.0001, 0.1])
def test_a_host_that_rations_is_kept_just_below_its_limit(workers: int, asked: float) -> None:
    fleet = Fleet(rationed(2.0), asked=asked, workers=workers)
    fleet.run(1800)
    last = fleet.lately(900)
    refused = sum(status == 429 for _, status, _, _ in last)
    assert refused / len(last) < 0.10
    assert len(last) / 900 > 0.5


def test_workers_that_all_see_the_same_do_not_add_up() -> None:
    fleet = Fleet(lambda rate, at: (429, 0.05) if at < 1.0 else (200, 0.05), asked=0.1, workers=4)
    fleet.run(3)
    assert {told for _, _, told in fleet.changes} == {1.0}


def test_changes_are_rare() -> None:
    fleet = Fleet(crowded(3.0), asked=0.01, workers=4)
    fleet.run(300)
    for worker in range(4):
        times = [at for at, by, _ in fleet.changes if by == worker]
        assert all(later - sooner >= MIN_CHANGE_INTERVAL for sooner, later in pairwise(times))
    assert len(fleet.changes) < 300


def test_what_was_learned_survives_a_restart_of_all_workers() -> None:
    fleet = Fleet(rationed(2.0), asked=0.1)
    fleet.run(300)
    kept = fleet.learned
    assert kept > 0.1
    fleet.workers = [AdaptivePace() for _ in fleet.workers]
    fleet.run(5)
    assert fleet.learned >= kept * 0.8
    fleet.host = rationed(1000.0)
    fleet.run(600)
    assert fleet.learned == 0.0


def test_slow_answers_make_no_spacing_longer_than_the_longest() -> None:
    host = Host(50.0, asked=50.0)
    host.answers(6, seconds=10.0)
    assert host.answers(60, seconds=200.0)[0] == MAX_SPACING
    assert max(host.told) == MAX_SPACING
