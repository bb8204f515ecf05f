"""Places of a worker: a task takes one up from its start until its outcome is settled."""

from __future__ import annotations

from collections.abc import Callable

MEASURE_SECONDS = 0.25  # of each measurement
FIRST_GUESS = 0.5  # seconds that a task takes up its place, before anything is known


class Places:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.busy = 0
        self._clock = clock
        self._seconds = FIRST_GUESS
        self._taken_seconds = 0.0  # by all tasks together, since the last measurement
        self._freed = 0  # likewise
        self._changed_at = self._measured_at = clock()

    def take(self, now: float) -> None:
        self._add_up(now)
        self.busy += 1

    def free(self, count: int) -> None:
        self._add_up(self._clock())
        self.busy -= count
        self._freed += count

    def task_seconds(self) -> float:
        """How long a task takes up its place, smoothed."""
        now = self._clock()
        if now - self._measured_at >= MEASURE_SECONDS and (self._freed or self.busy):
            self._add_up(now)
            # Where none has ended yet, they take at least as long as they have taken so far.
            measured = self._taken_seconds / self._freed if self._freed else now - self._measured_at
            self._seconds = (self._seconds + measured) / 2 if self._freed else max(self._seconds, measured)
            if self._freed:
                self._taken_seconds, self._freed, self._measured_at = 0.0, 0, now
        return self._seconds

    def _add_up(self, now: float) -> None:
        self._taken_seconds += self.busy * (now - self._changed_at)
        self._changed_at = now
