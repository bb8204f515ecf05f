"""BrowserWorkers: whether a worker of the fleet can take over pages that need a browser."""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.capability import BROWSER
from shoal.queue.base import Queue

ASK_EVERY = 5.0  # seconds
ALIVE_SECONDS = 60.0  # since the last sign of life


class BrowserWorkers:
    def __init__(self, queue: Queue, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._clock = clock
        self._asked_at = float("-inf")
        self._serves: list[frozenset[str]] = []  # what each of them works on; empty: anything

    async def can_serve(self, *names: str) -> bool:
        """names: what a run is served by, its own name and its scraper's."""
        if self._clock() >= self._asked_at + ASK_EVERY:
            self._asked_at = self._clock()
            statuses, now = await self._queue.workers(), await self._queue.now()
            self._serves = [
                frozenset(status.serves)
                for status in statuses
                if BROWSER in status.capabilities and status.seen_at > now - ALIVE_SECONDS * 1e6
            ]
        return any(not serves or serves.intersection(names) for serves in self._serves)
