"""HttpFetcher: plain HTTP over libcurl, within every limit."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import ssl

from shoal.core.page import Request, Response
from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.driver import Driver
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.transfer import Limits, Transfer


class HttpFetcher:
    """A Fetcher for http and https with keep-alive; bound to the loop of its first fetch."""

    def __init__(
        self,
        *,
        user_agent: str,
        allow_private: AllowPrivate = AllowPrivate(),
        concurrency: int = 64,
        connect_timeout: float = 10.0,
        max_body: int = 32 * 1024 * 1024,
        max_headers: int = 256 * 1024,
        min_speed: tuple[int, int] = (10, 20),
        ca_file: str = "",
    ) -> None:
        self._limits = Limits(connect_timeout, max_body, max_headers, min_speed)
        self._allow = allow_private
        self._user_agent = user_agent
        self._ca_file = ca_file or _find_ca_file()
        self._concurrency = concurrency
        self._slots = asyncio.Semaphore(concurrency)
        self._driver: Driver | None = None
        self._active: set[Transfer] = set()
        self._idle: list[Transfer] = []
        self._closed = False

    async def fetch(self, request: Request) -> Response:
        """One exchange. Causes beside those of the contract: bad_url, bad_request, stalled, closed."""
        if not request.url[:8].lower().startswith(("http://", "https://")):
            raise FetchRefused("blocked.scheme", f"only http and https are fetched: {request.url}")
        async with self._slots:
            driver = self._ready_driver()
            transfer = self._idle.pop() if self._idle else self._new_transfer()
            self._active.add(transfer)
            try:
                transfer.prepare(request)
                code, message = await driver.start(transfer.curl)
                if code and transfer.found_only_dead_connections(message):
                    code, message = await driver.start(transfer.curl)
                return transfer.result(code, message)
            finally:
                driver.stop(transfer.curl)  # it still runs if we were cancelled
                self._active.remove(transfer)
                self._take_back(transfer)

    def note_stall(self, seconds: float) -> None:
        """The loop was blocked for so long: timeouts of what is in flight now are not the servers' fault."""
        for transfer in self._active:
            transfer.stalled += seconds

    async def close(self) -> None:
        """End everything: fetches in flight fail with cause "closed"."""
        self._closed = True
        if self._driver is not None:
            self._driver.close()
            self._driver = None
        while self._idle:
            self._idle.pop().close()

    def _ready_driver(self) -> Driver:
        if self._closed:
            raise FetchFailed("closed", "the fetcher was closed")
        if self._driver is None:
            self._driver = Driver(idle_connections=2 * self._concurrency)
        return self._driver

    def _new_transfer(self) -> Transfer:
        return Transfer(self._limits, self._allow, self._user_agent, self._ca_file)

    def _take_back(self, transfer: Transfer) -> None:
        if self._closed:
            transfer.close()
        else:
            transfer.recycle()
            self._idle.append(transfer)


def _find_ca_file() -> str:
    """The system's trusted certificates: the path built into a libcurl wheel is another system's."""
    found: str = ssl.get_default_verify_paths().cafile or ""
    if not found and importlib.util.find_spec("certifi"):
        found = importlib.import_module("certifi").where()
    return found
