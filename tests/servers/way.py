"""Way: a way to a server that can lose, cut or change what it brings, and can lead elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

Fate = bytes | None  # what is brought of a reply; None: the connection breaks off before it


class Way:
    """Between one client and a server, both on unix sockets; `fate` decides on each reply by its number."""

    def __init__(self, to: str, fate: Callable[[int, bytes], Fate] | None = None) -> None:
        self.to = to
        self.fate = fate or (lambda number, reply: reply)
        self.replies = 0
        self._open: set[asyncio.StreamWriter] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            theirs, ours = await asyncio.open_unix_connection(self.to)
        except OSError:
            writer.close()
            return
        self._open |= {writer, ours}
        asking = asyncio.create_task(self._ask(reader, ours))
        try:
            while reply := await theirs.read(1 << 20):
                self.replies += 1
                brought = self.fate(self.replies, reply)
                if brought:
                    writer.write(brought)
                    await writer.drain()
                if brought is None or len(brought) < len(reply):
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            asking.cancel()
            for end in (ours, writer):
                self._open.discard(end)
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()

    async def _ask(self, reader: asyncio.StreamReader, ours: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while words := await reader.read(1 << 20):
                ours.write(words)
                await ours.drain()
            ours.close()

    def cut(self) -> None:
        """Every connection there is breaks off."""
        for end in list(self._open):
            end.transport.abort()


@asynccontextmanager
async def way(path: str, to: str, fate: Callable[[int, bytes], Fate] | None = None) -> AsyncIterator[Way]:
    made = Way(to, fate)
    server = await asyncio.start_unix_server(made.handle, path)
    try:
        yield made
    finally:
        made.cut()
        server.close()
        await asyncio.sleep(0)
