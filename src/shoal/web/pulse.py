"""Pulse: whether the queue answers, asked every second, so that nobody waits to hear that it does not."""

from __future__ import annotations

import asyncio
import logging
import time

from shoal.errors import Act
from shoal.queue.base import Queue

log = logging.getLogger("shoal.web")

EVERY = 1.0
AWAY = 5.0  # seconds of silence after which nothing is asked of it any more


class Pulse:
    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._answered_at = time.monotonic()
        self.why = ""  # what it said last, if that was no answer

    @property
    def silence(self) -> float:
        """Seconds since it last answered."""
        return time.monotonic() - self._answered_at

    @property
    def away(self) -> bool:
        return self.silence > AWAY

    async def run(self) -> None:
        while True:
            try:
                await self._queue.now()
                if self.away:
                    log.warning("queue_back", extra={"after_s": round(self.silence, 1)})
                self._answered_at, self.why = time.monotonic(), ""
            except Act as error:
                if not self.why:
                    log.warning("queue_away", extra={"error": str(error)})
                self.why = str(error)
            await asyncio.sleep(EVERY)
