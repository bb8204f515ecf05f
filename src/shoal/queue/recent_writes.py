"""Recent writes: what this process was last told is done, to repeat it should a fail-over undo it."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from shoal.core.lane import Pace
from shoal.core.task import Admission, Outcome, Task, Verdict

SECONDS = 10.0  # before the last write: a replica that is further behind has a problem of its own
MAX_AGE = 60.0  # seconds; a fail-over may take a while to begin, and later the queue does not know old leases any more
MAX_BYTES = 8_000_000
_TASK_BYTES = 300  # of a task or an outcome, about
_ENDS = ("done", "dead", "cancelled", "part")  # of others, the task comes back by itself when its lease ends

Paces = Mapping[str, Pace] | None


class RecentAdd(msgspec.Struct, frozen=True):
    at: float
    size: int
    run: int
    tasks: tuple[Task, ...]
    paces: Paces


class RecentSettle(msgspec.Struct, frozen=True):
    at: float
    size: int
    outcomes: tuple[Outcome, ...]
    paces: Paces


class RecentWrites:
    """Bounded by time and by size; the oldest go first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._writes: deque[RecentAdd | RecentSettle] = deque()
        self._size = 0

    def added(self, answers: Sequence[Admission], run: int, tasks: Sequence[Task], paces: Paces = None) -> None:
        new = tuple(task for task, answer in zip(tasks, answers, strict=True) if answer == "added")
        if new:
            self._append(RecentAdd(self._clock(), _TASK_BYTES * len(new), run, new, paces))

    def settled(self, verdicts: Sequence[Verdict], outcomes: Sequence[Outcome], paces: Paces = None) -> None:
        ended = tuple(
            _repeatable(outcome)
            for outcome, verdict in zip(outcomes, verdicts, strict=True)
            if verdict != "stale" and outcome.result in _ENDS
        )
        if ended:
            self._append(RecentSettle(self._clock(), sum(map(_size, ended)), ended, paces))

    def take(self) -> list[RecentAdd | RecentSettle]:
        """All of them, in their order; they are kept until they are too old."""
        oldest = self._clock() - MAX_AGE
        return [write for write in self._writes if write.at >= oldest]

    def _append(self, write: RecentAdd | RecentSettle) -> None:
        self._writes.append(write)
        self._size += write.size
        self._forget()

    def _forget(self) -> None:
        oldest = self._writes[-1].at - SECONDS
        while self._writes and (self._size > MAX_BYTES or self._writes[0].at < oldest):
            self._size -= self._writes.popleft().size


def _repeatable(outcome: Outcome) -> Outcome:
    """A part answers `ok` each time it is repeated, and would count its skipped links again."""
    return msgspec.structs.replace(outcome, skipped=(), counters={}) if outcome.result == "part" else outcome


def _size(outcome: Outcome) -> int:
    payload = sum(map(len, outcome.records)) + sum(len(entry.data) for entry in outcome.outbox)
    return payload + _TASK_BYTES * (1 + len(outcome.found))
