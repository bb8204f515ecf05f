"""The queue probe: asks every second whether the queue answers, so that no request waits to find out."""

from __future__ import annotations

import asyncio
import logging

from shoal.errors import ActionRequired
from shoal.queue.base import Queue

log = logging.getLogger("shoal.web")

INTERVAL = 1.0
TICK = 0.25
DOWN_AFTER = 5.0  # seconds of silence after which nothing is asked of it any more


class QueueProbe:
    """Silence is counted in turns of the event loop: one that was held up itself does not blame the queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.seconds_silent = 0.0  # since it last answered
        self.last_error = ""  # what it said last, if that was no answer

    @property
    def is_down(self) -> bool:
        return self.seconds_silent > DOWN_AFTER

    async def run(self) -> None:
        while True:
            try:
                await self._ask()
                if self.is_down:
                    log.warning("queue_back", extra={"after_s": round(self.seconds_silent, 1)})
                self.seconds_silent, self.last_error = 0.0, ""
            except ActionRequired as error:
                if not self.last_error:
                    log.warning("queue_down", extra={"error": str(error)})
                self.last_error = str(error)
                self.seconds_silent += INTERVAL
            await asyncio.sleep(INTERVAL)

    async def _ask(self) -> None:
        question = asyncio.ensure_future(self._queue.now())
        try:
            while not (await asyncio.wait([question], timeout=TICK))[0]:
                self.seconds_silent += TICK
            await question
        finally:
            question.cancel()
