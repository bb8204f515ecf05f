"""Which worker the next task goes to, counted in turns on a virtual clock."""

from __future__ import annotations

import heapq
import random
from collections import Counter

import pytest

from shoal.core.balancing import LoadReport, PaceMeter, choose

PLACES = 4


def split(strategy: str, seconds: dict[str, float], tasks: int, every: float) -> Counter[str]:
    """How many of the tasks, one every so often, each worker gets; figures are those of the moment."""
    rng, meters = random.Random(7), {name: PaceMeter() for name in seconds}
    running: list[tuple[float, str]] = []
    free_at: dict[str, list[float]] = {name: [0.0] * PLACES for name in seconds}
    done, got = Counter[str](), Counter[str]()
    for turn in range(tasks):
        now = turn * every
        while running and running[0][0] <= now:
            done[heapq.heappop(running)[1]] += 1
        loads = {
            name: LoadReport(
                in_flight=got[name] - done[name],
                places=PLACES,
                seconds_per_task=meters[name].observe(done[name], done[name] * seconds[name]),
            )
            for name in seconds
        }
        chosen = choose(strategy, list(seconds), loads.__getitem__, turn, rng)
        places = free_at[chosen]
        start = max(now, heapq.heappop(places))
        heapq.heappush(places, start + seconds[chosen])
        heapq.heappush(running, (start + seconds[chosen], chosen))
        got[chosen] += 1
    return got


@pytest.mark.parametrize("busy", [0.5, 0.9, 1.0, 1.5])
def test_least_loaded_gives_a_worker_that_is_twice_as_slow_half_as_much(busy: float) -> None:
    """Whatever share of what all can do together comes in, within 1.15 of the ideal split."""
    seconds = {"a": 1.0, "b": 1.0, "c": 1.0, "slow": 2.0}
    capacity = sum(PLACES / it for it in seconds.values())
    tasks = 1400
    got = split("least_loaded", seconds, tasks, 1 / (capacity * busy))
    ideal = {name: tasks * (PLACES / it) / capacity for name, it in seconds.items()}
    assert max(got[name] / ideal[name] for name in seconds) <= 1.15, got


def test_round_robin_takes_turns_and_random_gives_everybody_something() -> None:
    seconds = dict.fromkeys("abcd", 1.0)
    assert set(split("round_robin", seconds, 400, 0.1).values()) == {100}
    assert all(70 < count < 130 for count in split("random", seconds, 400, 0.1).values())


def test_worker_whose_pace_is_not_known_yet_counts_as_one_of_the_usual_pace() -> None:
    loads = {
        "new": LoadReport(in_flight=1, places=4),
        "slow": LoadReport(in_flight=1, places=4, seconds_per_task=3.0),
        "quick": LoadReport(in_flight=3, places=4, seconds_per_task=1.0),
    }
    assert choose("least_loaded", list(loads), loads.__getitem__, 0, random.Random()) in ("new", "quick")
    assert choose("least_loaded", ["new", "slow"], loads.__getitem__, 0, random.Random()) == "new"


def test_pace_is_that_of_the_last_tasks_and_starts_anew_with_another_process() -> None:
    meter = PaceMeter()
    assert meter.observe(0, 0.0) == 0.0
    assert meter.observe(100, 100.0) == pytest.approx(1.0)
    assert meter.observe(200, 400.0) == pytest.approx(3.0)
    assert 2.0 < meter.observe(210, 405.0) < 3.0
    assert meter.observe(2, 1.0) == pytest.approx(0.5)
