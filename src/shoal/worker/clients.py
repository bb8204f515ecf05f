"""Clients: what handlers of typed tasks keep open as long as their worker lives, one for each scraper."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, Protocol

from shoal.errors import Retry
from shoal.queue.base import Queue
from shoal.queue.standing import Standing
from shoal.worker.threads import Threads

log = logging.getLogger("shoal.worker")

OPENING, CLOSING = 60.0, 5.0  # seconds
QUIET = 2.0  # seconds after a failure in which it is not tried again
CAUSE = "client"


class Scraper(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def opening(self) -> Callable[[], Any] | None: ...
    @property
    def closing(self) -> Callable[[Any], Any] | None: ...


class Opened:
    def __init__(self, scraper: Scraper) -> None:
        self.scraper = scraper
        self.lock = asyncio.Lock()
        self.client: Any = None
        self.is_open = False
        self.failed_at = float("-inf")
        self.why = ""


class Clients:
    def __init__(self) -> None:
        self.threads = Threads()
        self.progress: dict[int, str] = {}  # by task, what its handler says it is doing
        self._known: dict[int, Opened] = {}
        self._standing: Standing | None = None

    def standing(self, queue: Queue) -> Standing:
        """Where tasks of other types go."""
        if self._standing is None:
            self._standing = Standing(queue)
        return self._standing

    async def of(self, scraper: Scraper) -> Any:
        """The scraper's client. One that cannot be opened now may be later: raises Retry."""
        if scraper.opening is None:
            return None
        known = self._known.get(id(scraper))
        if known is None:
            known = self._known[id(scraper)] = Opened(scraper)
        if not known.is_open:
            await self._open(known, scraper.opening)
        return known.client

    async def _open(self, known: Opened, opening: Callable[[], Any]) -> None:
        async with known.lock:
            if known.is_open:
                return
            loop = asyncio.get_running_loop()
            if loop.time() - known.failed_at > QUIET:
                try:
                    async with asyncio.timeout(OPENING):
                        known.client = await self.run(opening)
                    known.is_open = True
                    return
                except Exception as error:  # the user's code; said to everybody who asks
                    known.failed_at, known.why = loop.time(), f"{type(error).__name__}: {error}"[:300]
                    told = {"scraper": known.scraper.name, "error": known.why}
                    log.error("client_not_opened", extra=told, exc_info=error)
            raise Retry(CAUSE, f"the client of {known.scraper.name} cannot be opened: {known.why}")

    async def run(self, func: Callable[..., Any], *given: Any) -> Any:
        """Call what a user wrote, async or not."""
        if inspect.iscoroutinefunction(func):
            return await func(*given)
        made = await self.threads.call(lambda: func(*given))
        return await made if inspect.isawaitable(made) else made

    async def close(self) -> None:
        for known in reversed(self._known.values()):
            closing = known.scraper.closing
            if not known.is_open or closing is None:
                continue
            known.is_open = False
            try:
                async with asyncio.timeout(CLOSING):
                    await self.run(closing, known.client)
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                told = {"scraper": known.scraper.name, "error": f"{type(error).__name__}: {error}"}
                log.error("client_not_closed", extra=told)
        self.threads.close()
