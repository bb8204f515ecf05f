"""How long a task takes up its place: by that a worker knows how many slots it can use."""

from __future__ import annotations

import pytest
from fake_clock import FakeClock

from shoal.worker.places import FIRST_GUESS, Places


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(100.0)


@pytest.fixture
def places(clock: FakeClock) -> Places:
    return Places(clock, 60)


def test_it_is_a_guess_until_a_task_has_ended(clock: FakeClock, places: Places) -> None:
    assert places.task_seconds() == FIRST_GUESS
    clock.at += 10.0  # with nothing to do
    assert places.task_seconds() == FIRST_GUESS
    places.take(clock.at)
    clock.at += 0.4
    assert places.task_seconds() == FIRST_GUESS
    clock.at += 0.4
    assert places.task_seconds() == pytest.approx(0.8), "it has taken so long already"


def test_it_comes_to_what_tasks_take(clock: FakeClock, places: Places) -> None:
    for _ in range(200):
        places.take(clock.at)
        clock.at += 0.1
        places.free(1)
        seconds = places.task_seconds()
    assert seconds == pytest.approx(0.1, rel=0.01) and places.busy == 0


def test_the_first_that_end_of_many_do_not_stand_for_all_the_time_of_the_others(
    clock: FakeClock, places: Places
) -> None:
    for _ in range(60):
        places.take(clock.at)
    clock.at += 0.3
    places.free(1)
    assert places.task_seconds() <= 0.5 and places.busy == 59


def test_slow_ones_count_for_what_they_take_whoever_ends_first(clock: FakeClock, places: Places) -> None:
    """One in ten takes 1 s, the others 0.1 s: 0.19 s on average."""
    ends: list[float] = []
    for turn in range(2000):
        places.take(clock.at)
        ends.append(clock.at + (1.0 if turn % 10 == 0 else 0.1))
        clock.at += 0.05
        ended = [end for end in ends if end <= clock.at]
        ends = [end for end in ends if end > clock.at]
        places.free(len(ended))
        seconds = places.task_seconds()
    assert seconds == pytest.approx(0.19, rel=0.25)


def test_it_is_known_when_all_were_taken_last(clock: FakeClock, places: Places) -> None:
    for _ in range(59):
        places.take(clock.at)
    clock.at += 1.0
    places.free(1)
    assert places.full_until < 100.0
    for _ in range(2):
        places.take(clock.at)
    clock.at += 1.0
    places.free(2)
    assert places.full_until == clock.at
    clock.at += 1.0
    places.free(1)
    assert places.full_until == clock.at - 1.0
