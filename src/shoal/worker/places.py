"""Places of a worker: a task takes one up from its start until its outcome is settled."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable

MEASURE_SECONDS = 0.25  # of each measurement
FIRST_GUESS = 0.5  # seconds that a task takes up its place, before anything is known


class Places:
    def __init__(self, clock: Callable[[], float], most: int) -> None:
        self.full_until = -math.inf  # the last moment at which all were taken
        self._clock = clock
        self._most = most
        self._seconds = FIRST_GUESS
        # When those that are taken were taken. Whoever frees one frees the oldest: the sum is the same in the end, and
        # while many are in progress and the first of them end, none counts for longer than it can have taken.
        self._taken_at: deque[float] = deque()
        self._taken_seconds = 0.0  # by those that were freed since the last measurement
        self._freed = 0
        self._measured_at = clock()

    @property
    def busy(self) -> int:
        return len(self._taken_at)

    def take(self, now: float) -> None:
        self._taken_at.append(now)

    def free(self, count: int) -> None:
        now = self._clock()
        if self.busy >= self._most:
            self.full_until = now
        for _ in range(count):
            self._taken_seconds += now - self._taken_at.popleft()
        self._freed += count

    def task_seconds(self) -> float:
        """How long a task takes up its place, smoothed."""
        now = self._clock()
        if now - self._measured_at >= MEASURE_SECONDS:
            if self._freed:
                self._seconds = (self._seconds + self._taken_seconds / self._freed) / 2
                self._taken_seconds, self._freed, self._measured_at = 0.0, 0, now
            elif self._taken_at:  # none has ended yet: they take at least as long as they have taken so far
                self._seconds = max(self._seconds, now - self._taken_at[0])
        return self._seconds
