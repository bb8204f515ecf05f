"""HttpFetcher: plain HTTP over libcurl, within every limit."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import ssl

import pycurl

from shoal.core.page import Request, Response
from shoal.errors import FetchRefused
from shoal.fetch.body import Permits
from shoal.fetch.connections import Connections
from shoal.fetch.decode import accepted
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.limits import Limits
from shoal.fetch.pools import Pools
from shoal.fetch.transfer import Common, Transfer
from shoal.fetch.watch import Watch


class HttpFetcher:
    """A Fetcher for http and https with keep-alive; bound to the loop of its first fetch."""

    def __init__(
        self,
        *,
        user_agent: str,
        allow_private: AllowPrivate = AllowPrivate(),
        concurrency: int = 64,
        limits: Limits = Limits(),
        http2: bool = True,
        ca_file: str = "",
    ) -> None:
        self._common = Common(
            limits=limits,
            allow=allow_private,
            user_agent=user_agent,
            ca_file=ca_file or _find_ca_file(),
            http2=http2,
            accepted=accepted(),
            permits=Permits(limits, concurrency),
            connections=Connections(),
        )
        self._slots = asyncio.Semaphore(concurrency)
        self._pools = Pools(concurrency)
        self._active: set[Transfer] = set()
        self._idle: list[Transfer] = []
        self._watch = Watch(limits, self._active, _give_up)
        self._closed = False

    async def fetch(self, request: Request) -> Response:
        """One exchange. Causes beside those of the contract: bad_url, bad_request, stalled, closed."""
        if not request.url[:8].lower().startswith(("http://", "https://")):
            raise FetchRefused("blocked.scheme", f"only http and https are fetched: {request.url}")
        async with self._slots:
            driver = self._pools.driver(request.proxy)
            transfer = self._idle.pop() if self._idle else Transfer(self._common)
            self._active.add(transfer)
            if self._watch.asleep:
                self._watch.wake()
            try:
                transfer.prepare(request, driver)
                code, message = await driver.start(transfer.curl)
                if code and transfer.needs_fresh_connection(message):
                    code, message = await driver.start(transfer.curl)
                if transfer.body.waiting and not code:
                    await transfer.body.room()
                return transfer.result(code, message)
            finally:
                driver.stop(transfer.curl)  # it still runs if we were cancelled
                self._active.remove(transfer)
                self._take_back(transfer)

    def note_stall(self, seconds: float) -> None:
        """The loop was blocked for so long: timeouts of what is in flight now are not the servers' fault."""
        for transfer in self._active:
            transfer.excuse(seconds)

    async def close(self) -> None:
        """End everything: fetches in flight fail with cause "closed"."""
        self._closed = True
        self._watch.close()
        self._pools.close()
        while self._idle:
            self._idle.pop().close()

    def _take_back(self, transfer: Transfer) -> None:
        if self._closed:
            transfer.close()
        else:
            transfer.recycle()
            self._idle.append(transfer)


def _give_up(transfer: Transfer) -> None:
    if transfer.driver is not None:
        transfer.driver.end(transfer.curl, (pycurl.E_OPERATION_TIMEDOUT, "the answer came too slowly"))


def _find_ca_file() -> str:
    """The system's trusted certificates: the path built into a libcurl wheel is another system's."""
    found: str = ssl.get_default_verify_paths().cafile or ""
    if not found and importlib.util.find_spec("certifi"):
        found = importlib.import_module("certifi").where()
    return found
