"""Duties of a relay: each goes on for itself. One that fails is logged, shown by the doctor, and begun again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from shoal.errors import QueueRefused
from shoal.logs import redact
from shoal.queue.base import Finding

log = logging.getLogger("shoal.relay")

FIRST_DELAY, LONGEST_DELAY = 0.2, 10.0  # seconds before a duty that failed is begun again
WORKED_FOR = 10.0  # seconds after which it counts as sound
SHOWN_FOR = 60.0  # seconds for which the doctor speaks of a failure
MAX_TEXT = 300


class DutyFailures:
    """Which duties of this relay failed of late, and why."""

    def __init__(self) -> None:
        self._latest: dict[str, tuple[float, str, str]] = {}  # when, why, and what to do

    def note(self, duty: str, error: BaseException) -> None:
        text = str(redact(f"{type(error).__name__}: {error}"))[:MAX_TEXT]
        if self._latest.get(duty, (0.0, "", ""))[1] != text:
            log.error("duty_failed", extra={"duty": duty, "error": text}, exc_info=error)
        else:
            log.error("duty_failed", extra={"duty": duty, "error": text})  # where, has been said
        self._latest[duty] = asyncio.get_running_loop().time(), text, "it is begun again; see the relay's log"

    def note_refusal(self, duty: str, error: QueueRefused) -> None:
        """One that cannot work until a person has changed something; whoever began it logs that, once."""
        self._latest[duty] = asyncio.get_running_loop().time(), str(redact(str(error)))[:MAX_TEXT], error.hint

    def findings(self) -> list[Finding]:
        now = asyncio.get_running_loop().time()
        return [
            Finding("relay", "warning", f"its duty “{duty}” failed: {text}", fix)
            for duty, (at, text, fix) in self._latest.items()
            if now - at < SHOWN_FOR
        ]


async def keep_doing(
    name: str, do: Callable[[], Awaitable[None]], failures: DutyFailures, passing: tuple[type[Exception], ...]
) -> None:
    """Until an error of `passing`, which is the same for all duties; any other ends this one only, and not for long."""
    loop = asyncio.get_running_loop()
    delay = FIRST_DELAY
    while True:
        began = loop.time()
        try:
            return await do()
        except passing:
            raise
        except Exception as error:  # noqa: BLE001 - the other duties go on
            failures.note(name, error)
        if loop.time() - began > WORKED_FOR:
            delay = FIRST_DELAY
        await asyncio.sleep(delay * random.uniform(0.5, 1.0))
        delay = min(LONGEST_DELAY, 2 * delay)
