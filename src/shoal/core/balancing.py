"""Balancing: which of several workers the next task goes to, from what they say of themselves."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar, get_args

import msgspec

Strategy = Literal["least_loaded", "round_robin", "random"]
STRATEGIES: tuple[str, ...] = get_args(Strategy)
PACE_WINDOW = 30  # tasks that the measured pace looks back on
T = TypeVar("T")


class LoadReport(msgspec.Struct, frozen=True, kw_only=True):
    """How busy a worker is, as it says itself."""

    in_flight: int = 0  # tasks that it has and has not settled
    places: int = 0  # how many it may work on at once; 0: it takes nothing now
    seconds_per_task: float = 0.0  # measured over its last tasks; 0: it has done none yet

    @property
    def has_room(self) -> bool:
        return self.in_flight < self.places


def least_loaded(workers: Sequence[T], load_of: Callable[[T], LoadReport], turn: int = 0) -> T:
    """The one with the least work before it, one more task included, for its measured speed; among equals the next."""
    loads = [load_of(worker) for worker in workers]
    known = [load.seconds_per_task for load in loads if load.seconds_per_task]
    usual = sum(known) / len(known) if known else 1.0

    def cost(position: int) -> tuple[float, int]:
        load = loads[position]
        seconds = load.seconds_per_task or usual
        return (load.in_flight + 1) * seconds / max(load.places, 1), (position - turn) % len(workers)

    return workers[min(range(len(workers)), key=cost)]


def choose(strategy: str, workers: Sequence[T], load_of: Callable[[T], LoadReport], turn: int, rng: random.Random) -> T:
    """The next of the workers; `turn` counts how often one was chosen."""
    if strategy == "round_robin":
        return workers[turn % len(workers)]
    if strategy == "random":
        return rng.choice(workers)
    return least_loaded(workers, load_of, turn)


class PaceMeter:
    """Seconds per task over the last tasks, from sums that only grow."""

    def __init__(self) -> None:
        self._tasks_before, self._seconds_before = 0, 0.0
        self._tasks = self._seconds = 0.0

    def observe(self, tasks: int, seconds: float) -> float:
        new, took = tasks - self._tasks_before, seconds - self._seconds_before
        if new < 0:  # another process counts now
            self._tasks = self._seconds = 0.0
            new, took = tasks, seconds
        self._tasks_before, self._seconds_before = tasks, seconds
        kept = max(0.0, 1.0 - new / PACE_WINDOW)
        self._tasks, self._seconds = self._tasks * kept + new, self._seconds * kept + took
        return self._seconds / self._tasks if self._tasks else 0.0
