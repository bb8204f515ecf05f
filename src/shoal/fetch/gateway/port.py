"""GatewayPort: a loopback port for one browser context; what goes through it is guarded, counted and bounded."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections import Counter
from collections.abc import Coroutine
from typing import Any

from shoal.errors import FetchFailed, FetchRefused
from shoal.fetch.gateway.exit import Exit, Forwarding
from shoal.fetch.gateway.request_head import MAX_HEAD, BadRequest, RequestHead, read_request_head
from shoal.files.peer_user import peer_uid

log = logging.getLogger("shoal.fetch")

HEAD_TIMEOUT = 10.0  # seconds for the first lines of a request
MAX_CONNECTIONS = 200  # at once, of one context
MAX_HOSTS = 500  # that are counted apart for one page; the rest is counted together
OTHER_HOSTS = "…"
CHUNK = 64 * 1024

Refusal = FetchRefused | FetchFailed
Way = Coroutine[Any, Any, None]


class GatewayPort:
    """A proxy server of its own. `begin` starts a page's budget; beyond it everything is cut off."""

    def __init__(self) -> None:
        self._exit: Exit | None = None  # of the page
        self._server: asyncio.Server | None = None
        self._transfers: set[asyncio.Task[None]] = set()
        self._max_bytes = 0  # before the first page nothing may pass
        self._address = ("", 0)
        self.bytes = 0
        self.bytes_by_host: Counter[str] = Counter()
        self.refusals: dict[tuple[str, int], Refusal] = {}

    @classmethod
    async def open(cls) -> GatewayPort:
        port = cls()
        port._server = await asyncio.start_server(port._accept, "127.0.0.1", 0, limit=MAX_HEAD)
        host, number = port._server.sockets[0].getsockname()
        port._address = host, number
        return port

    @property
    def url(self) -> str:
        return f"http://{self._address[0]}:{self._address[1]}"

    @property
    def is_exceeded(self) -> bool:
        return self.bytes > self._max_bytes

    def begin(self, max_bytes: int, exit: Exit) -> None:
        """A new page, which leaves by this exit with all that it loads: counts begin at zero."""
        self._max_bytes = max_bytes
        self._exit = exit
        self.bytes = 0
        self.bytes_by_host.clear()
        self.refusals.clear()

    def end(self) -> None:
        """The page is over: what it still loads is cut off, and nothing passes until the next begins."""
        self._max_bytes = 0
        self._cut_off()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        transfers = list(self._transfers)
        self._cut_off()
        await asyncio.gather(*transfers, return_exceptions=True)

    def _cut_off(self) -> None:
        for transfer in self._transfers:
            transfer.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transfer = asyncio.current_task()
        assert transfer is not None
        self._transfers.add(transfer)
        try:
            if len(self._transfers) <= MAX_CONNECTIONS and self._max_bytes and self._is_ours(writer):
                await self._serve(reader, writer)
                writer.close()  # what is still in its buffer is sent
        except (OSError, BadRequest, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            pass  # the browser sees a connection that was closed
        except asyncio.CancelledError:
            pass  # cut off by us
        finally:
            self._transfers.discard(transfer)
            _abort(writer)

    def _is_ours(self, writer: asyncio.StreamWriter) -> bool:
        """Whether it is a process of the user who runs this one that asks: the port is for nobody else."""
        uid = peer_uid(writer.get_extra_info("peername")[:2], self._address)
        if uid is None or uid == os.getuid():
            return True
        log.warning("gateway_stranger", extra={"uid": uid})
        return False

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(HEAD_TIMEOUT):
            head = read_request_head(await reader.readuntil(b"\r\n\r\n"))
        assert self._exit is not None
        try:
            if head.is_tunnel:
                await self._tunnel(self._exit, head, reader, writer)
            else:
                await self._forward(await self._exit.open_forwarding(head), head, reader, writer)
        except (FetchRefused, FetchFailed) as error:
            if len(self.refusals) < MAX_HOSTS:
                self.refusals[(head.host, head.port)] = error
            status = "403 Forbidden" if isinstance(error, FetchRefused) else "502 Bad Gateway"
            writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()

    async def _tunnel(
        self, exit: Exit, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        theirs, server = await exit.open_connection(head.host, head.port)
        host = self._counted_host(head.host)
        try:
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await self._both_ways(self._copy(reader, server, host), self._copy(theirs, writer, host))
        finally:
            _abort(server)

    async def _forward(
        self, way: Forwarding, head: RequestHead, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        theirs, server = way.connection
        host = self._counted_host(head.host)

        async def answer() -> None:
            """A proxy that refuses us is not the site: its words never reach the page."""
            first = await theirs.read(CHUNK)
            way.check(first)
            self._count(host, len(first))
            writer.write(first)
            await self._copy(theirs, writer, host)

        try:
            server.write(way.head)
            self._count(host, len(way.head))
            await self._both_ways(self._send_body(reader, server, head.length, host), answer())
        finally:
            _abort(server)

    def _counted_host(self, host: str) -> str:
        return host if host in self.bytes_by_host or len(self.bytes_by_host) < MAX_HOSTS else OTHER_HOSTS

    async def _both_ways(self, upload: Way, download: Way) -> None:
        """Until one side has closed: neither a browser nor a server goes on alone."""
        ways = [asyncio.create_task(upload), asyncio.create_task(download)]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            ends = await asyncio.gather(*ways, return_exceptions=True)
        for end in ends:
            if isinstance(end, FetchFailed):
                raise end

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        while data := await reader.read(CHUNK):
            self._count(host, len(data))
            writer.write(data)
            await writer.drain()

    async def _send_body(
        self, reader: asyncio.StreamReader, server: asyncio.StreamWriter, length: int, host: str
    ) -> None:
        """The body of a request, and not a byte more: another request on this connection may be for another host."""
        while length > 0 and (data := await reader.read(min(CHUNK, length))):
            length -= len(data)
            self._count(host, len(data))
            server.write(data)
            await server.drain()
        await reader.read(1)  # ends when the browser has gone, or asks for something else

    def _count(self, host: str, size: int) -> None:
        self.bytes += size
        self.bytes_by_host[host] += size
        if self.is_exceeded:
            self._cut_off()


def _abort(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, RuntimeError):
        if not writer.transport.is_closing():
            writer.transport.abort()
