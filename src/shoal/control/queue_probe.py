"""The queue probe: asks now and then whether the queue answers, and logs when it goes away and comes back."""

from __future__ import annotations

import asyncio
import logging

from shoal.errors import ActionRequired
from shoal.queue.base import Queue

log = logging.getLogger("shoal.queue")

INTERVAL = 1.0
TICK = 0.25
DOWN_AFTER = 5.0  # seconds of silence after which nothing is asked of it any more


class QueueProbe:
    """Silence is counted in turns of the event loop: one that was held up itself does not blame the queue."""

    def __init__(self, queue: Queue, *, interval: float | None = None) -> None:
        self._queue = queue
        self._interval = interval
        self.seconds_silent = 0.0  # since it last answered
        self.last_error = ""  # what it said last, if that was no answer
        self.away = asyncio.Event()  # set while it refuses to answer, or is down

    @property
    def is_down(self) -> bool:
        return self.seconds_silent > DOWN_AFTER

    async def run(self) -> None:
        while True:
            interval = INTERVAL if self._interval is None else self._interval
            try:
                await self._ask()
                self._note_answer()
            except ActionRequired as error:
                self.last_error = str(error)
                self._note_silence(min(interval, INTERVAL))
                self._note_away(self.last_error)
            await asyncio.sleep(min(interval, INTERVAL) if self.away.is_set() else interval)

    async def _ask(self) -> None:
        question = asyncio.ensure_future(self._queue.now())
        try:
            while not (await asyncio.wait([question], timeout=TICK))[0]:
                self._note_silence(TICK)
            await question
        finally:
            question.cancel()

    def _note_silence(self, seconds: float) -> None:
        self.seconds_silent += seconds
        if self.is_down:
            self._note_away(f"no answer for {self.seconds_silent:.0f} s")

    def _note_away(self, error: str) -> None:
        """Said once per outage."""
        if not self.away.is_set():
            self.away.set()
            log.warning("queue_down", extra={"error": error})

    def _note_answer(self) -> None:
        if self.away.is_set():
            log.warning("queue_back", extra={"after_s": round(self.seconds_silent, 1)})
        self.away.clear()
        self.seconds_silent, self.last_error = 0.0, ""
