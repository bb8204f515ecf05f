"""A TCP proxy of our own between workers and a server: it swallows answers and cuts connections."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable

from wait import HANG


class Proxy:
    """loss_rate: the share of exchanges whose request goes through and whose answer does not come back."""

    def __init__(self, host: str, port: int, *, loss_rate: float = 0.0, seed: int = 5) -> None:
        self._target = host, port
        self.loss_rate = loss_rate
        self.lost = self.cut = 0
        self._dice = random.Random(seed)
        self._links: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._server: asyncio.Server | None = None
        self.port = 0

    def start(self) -> None:
        """In a thread of its own: whoever uses it may stand still meanwhile."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def stop(self) -> None:
        async def end() -> None:
            assert self._server is not None
            self._server.close()
            self._cut()
            await asyncio.sleep(0.05)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG)
        self._loop.close()

    def cut_all(self) -> None:
        """Every connection ends at once, wherever it was."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for link in list(self._links):
            link.transport.abort()
            self.cut += 1

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, out = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        self._links |= {writer, out}

        def lose() -> bool:
            if self._dice.random() >= self.loss_rate:
                return False
            self.lost += 1
            writer.transport.abort()
            return True

        directions = [
            asyncio.create_task(self._forward(reader, out, lambda: False)),
            asyncio.create_task(self._forward(there, writer, lose)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            self._links -= {writer, out}
            for end in (writer, out):
                end.transport.abort()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, lose: Callable[[], bool]
    ) -> None:
        try:
            while data := await source.read(65536):
                if lose():
                    return
                target.write(data)
                await target.drain()
        except (OSError, asyncio.CancelledError):
            return
