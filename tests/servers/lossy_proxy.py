"""A proxy on unix sockets that can lose, cut or change replies, and can switch to another server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

ReplyFate = bytes | None  # the part of a reply that is forwarded; None: the connection is cut before it


class LossyProxy:
    """Between one client and a server, both on unix sockets; `decide` gets each reply and its number."""

    def __init__(self, to: str, decide: Callable[[int, bytes], ReplyFate] | None = None) -> None:
        self.to = to
        self.decide = decide or (lambda number, reply: reply)
        self.replies = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_unix_connection(self.to)
        except OSError:
            writer.close()
            return
        self._open |= {writer, server_writer}
        forwarding = asyncio.create_task(self._forward_requests(reader, server_writer))
        try:
            while reply := await server_reader.read(1 << 20):
                self.replies += 1
                forwarded = self.decide(self.replies, reply)
                if forwarded:
                    writer.write(forwarded)
                    await writer.drain()
                if forwarded is None or len(forwarded) < len(reply):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            forwarding.cancel()
            for end in (server_writer, writer):
                self._open.discard(end)
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()

    async def _forward_requests(self, reader: asyncio.StreamReader, server_writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while request := await reader.read(1 << 20):
                server_writer.write(request)
                await server_writer.drain()
            server_writer.close()

    def cut(self) -> None:
        """Every connection there is breaks off."""
        for end in list(self._open):
            end.transport.abort()


@asynccontextmanager
async def lossy_proxy(
    path: str, to: str, decide: Callable[[int, bytes], ReplyFate] | None = None
) -> AsyncIterator[LossyProxy]:
    made = LossyProxy(to, decide)
    server = await asyncio.start_unix_server(made.handle, path)
    try:
        yield made
    finally:
        made.cut()
        server.close()
        await asyncio.sleep(0)
