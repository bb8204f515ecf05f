"""HandlerClients: what handlers of typed tasks keep open while their worker lives, one per scraper."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

from shoal.errors import Retry
from shoal.extract.scraper import Scraper
from shoal.worker.task.threads import HandlerThreads

log = logging.getLogger("shoal.worker")

OPEN_TIMEOUT, CLOSE_TIMEOUT = 60.0, 5.0  # seconds
REOPEN_DELAY = 2.0  # seconds after a failure in which it is not tried again
CAUSE = "client"


class OpenClient:
    def __init__(self, scraper: Scraper) -> None:
        self.scraper = scraper
        self.lock = asyncio.Lock()
        self.client: Any = None
        self.is_open = False
        self.failed_at = float("-inf")
        self.error = ""


class HandlerClients:
    def __init__(self) -> None:
        self.threads = HandlerThreads()
        self.progress: dict[int, str] = {}  # by task, what its handler says it is doing
        self._entries: dict[int, OpenClient] = {}

    async def client_for(self, scraper: Scraper) -> Any:
        """The scraper's client. One that cannot be opened now may be later: raises Retry."""
        if scraper.open_client is None:
            return None
        entry = self._entries.get(id(scraper))
        if entry is None:
            entry = self._entries[id(scraper)] = OpenClient(scraper)
        if not entry.is_open:
            await self._open(entry, scraper.open_client)
        return entry.client

    async def _open(self, entry: OpenClient, opening: Callable[[], Any]) -> None:
        async with entry.lock:
            if entry.is_open:
                return
            loop = asyncio.get_running_loop()
            if loop.time() - entry.failed_at > REOPEN_DELAY:
                try:
                    async with asyncio.timeout(OPEN_TIMEOUT):
                        entry.client = await self.call(opening)
                    entry.is_open = True
                    return
                except Exception as error:  # the user's code; said to everybody who asks
                    entry.failed_at, entry.error = loop.time(), f"{type(error).__name__}: {error}"[:300]
                    details = {"scraper": entry.scraper.name, "error": entry.error}
                    log.error("client_not_opened", extra=details, exc_info=error)
            raise Retry(CAUSE, f"the client of {entry.scraper.name} cannot be opened: {entry.error}")

    async def call(self, func: Callable[..., Any], *args: Any) -> Any:
        """Call what a user wrote, async or not."""
        if inspect.iscoroutinefunction(func):
            return await func(*args)
        result = await self.threads.call(lambda: func(*args))
        return await result if inspect.isawaitable(result) else result

    async def close(self) -> None:
        for entry in reversed(self._entries.values()):
            closing = entry.scraper.close_client
            if not entry.is_open or closing is None:
                continue
            entry.is_open = False
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT):
                    await self.call(closing, entry.client)
            except Exception as error:  # noqa: BLE001 - the others are closed all the same
                details = {"scraper": entry.scraper.name, "error": f"{type(error).__name__}: {error}"}
                log.error("client_not_closed", extra=details)
        self.threads.close()
