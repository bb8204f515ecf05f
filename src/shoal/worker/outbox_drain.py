"""OutboxDrain: what a worker's own tasks left in the outbox is drained at once, beside its other work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from shoal.errors import ShoalError

log = logging.getLogger("shoal.worker")

CLOSE_TIMEOUT = 2.0  # seconds for what is being drained when the worker ends; maintenance does the rest


class OutboxDrain:
    def __init__(self, drain: Callable[[], Awaitable[object]]) -> None:
        self._drain = drain
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def wake(self) -> None:
        """There is something new; one drain at a time."""
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="outbox")

    async def _run(self) -> None:
        while self._again:
            self._again = False
            try:
                await self._drain()
            except ShoalError as error:
                log.warning("outbox_not_drained", extra={"error": str(error)})
                return  # it stays until maintenance, or the next of ours, can

    async def close(self) -> None:
        if self._task is not None and not self._task.done():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self._task
