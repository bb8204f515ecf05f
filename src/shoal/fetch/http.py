"""HttpFetcher: plain HTTP over libcurl, within every limit."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import ssl

import pycurl

from shoal.core.page import Request, Response
from shoal.errors import FetchRefused
from shoal.fetch.body import BodyPermits
from shoal.fetch.connections import KeepAliveConnections
from shoal.fetch.curl_loop_pool import CurlLoopPool
from shoal.fetch.decode import accept_encoding
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.limits import FetchLimits
from shoal.fetch.slow_transfers import SlowTransferWatch
from shoal.fetch.transfer import Transfer, TransferContext


class HttpFetcher:
    """A Fetcher for http and https with keep-alive; bound to the loop of its first fetch."""

    def __init__(
        self,
        *,
        user_agent: str,
        allow_private: PrivateNetworkPolicy = PrivateNetworkPolicy(),
        concurrency: int = 64,
        limits: FetchLimits = FetchLimits(),
        http2: bool = True,
        ca_file: str = "",
    ) -> None:
        self._context = TransferContext(
            limits=limits,
            private_policy=allow_private,
            user_agent=user_agent,
            ca_file=ca_file or _find_ca_file(),
            http2=http2,
            accept_encoding=accept_encoding(),
            permits=BodyPermits(limits, concurrency),
            connections=KeepAliveConnections(),
        )
        self._slots = asyncio.Semaphore(concurrency)
        self._drivers = CurlLoopPool(concurrency)
        self._active: set[Transfer] = set()
        self._idle: list[Transfer] = []
        self._watch = SlowTransferWatch(limits, self._active, _abort_slow)
        self._closed = False

    async def fetch(self, request: Request) -> Response:
        """One exchange. Causes beside those of the contract: bad_url, bad_request, stalled, closed."""
        if not request.url[:8].lower().startswith(("http://", "https://")):
            raise FetchRefused("blocked.scheme", f"only http and https are fetched: {request.url}")
        if request.exit:  # whoever has exits has put a proxy in its place
            raise FetchRefused("blocked.exit", f"this worker has no exit called {request.exit}")
        async with self._slots:
            driver = self._drivers.driver(request.proxy, request.connections)
            transfer = self._idle.pop() if self._idle else Transfer(self._context)
            self._active.add(transfer)
            if self._watch.is_idle:
                self._watch.schedule()
            try:
                transfer.prepare(request, driver)
                code, message = await driver.start(transfer.curl)
                if code and transfer.needs_fresh_connection(message):
                    code, message = await driver.start(transfer.curl)
                if transfer.body.waiting and not code:
                    await transfer.body.wait_for_permit()
                return transfer.result(code, message)
            finally:
                driver.stop(transfer.curl)  # it still runs if we were cancelled
                self._active.remove(transfer)
                self._recycle(transfer)

    def note_stall(self, seconds: float) -> None:
        """The loop was blocked for so long: timeouts of what is in flight now are not the servers' fault."""
        for transfer in self._active:
            transfer.extend_timeouts(seconds)

    async def close(self) -> None:
        """End everything: fetches in flight fail with cause "closed"."""
        self._closed = True
        self._watch.close()
        self._drivers.close()
        while self._idle:
            self._idle.pop().close()

    def _recycle(self, transfer: Transfer) -> None:
        if self._closed:
            transfer.close()
        else:
            transfer.recycle()
            self._idle.append(transfer)


def _abort_slow(transfer: Transfer) -> None:
    if transfer.driver is not None:
        transfer.driver.end(transfer.curl, (pycurl.E_OPERATION_TIMEDOUT, "the response came too slowly"))


def _find_ca_file() -> str:
    """The system's trusted certificates: the path built into a libcurl wheel is another system's."""
    found: str = ssl.get_default_verify_paths().cafile or ""
    if not found and importlib.util.find_spec("certifi"):
        found = importlib.import_module("certifi").where()
    return found
