"""MessageGate: a process of Celery claims tasks only while it has a message to work on, and no more than its rate."""

from __future__ import annotations

from shoal.worker.start_rate import StartLimit

CLOSED_WAIT = 1.0  # seconds between two looks while it is closed; opening it wakes the worker


class MessageGate:
    def __init__(self, rate: StartLimit | None) -> None:
        self._rate = rate
        self._messages = 0

    def open(self) -> None:
        self._messages += 1

    def close(self) -> None:
        self._messages -= 1

    def take(self, wanted: int) -> int:
        if self._messages <= 0:
            return 0
        return wanted if self._rate is None else self._rate.take(wanted)

    def give_back(self, count: int) -> None:
        if self._rate is not None:
            self._rate.give_back(count)

    def wait_seconds(self) -> float:
        return CLOSED_WAIT if self._messages <= 0 or self._rate is None else self._rate.wait_seconds()
