"""One pipelined connection to the server: commands are sent as they come and replies arrive in order."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, cast

import hiredis

from shoal.queue.redis.server_url import Address

CONNECT_TIMEOUT = 5.0  # seconds
SILENCE_TIMEOUT = 15.0  # seconds without a byte while answers are awaited: the other side is gone
QUICK_TIMEOUT = 3.0  # seconds for both, where there are others to be asked
_NOTHING = object()


def forget(answer: asyncio.Future[Any]) -> None:
    """Nobody need await this answer: should it be lost, that is no error of its own."""
    answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())


class RedisConnection(asyncio.Protocol):
    def __init__(self, silence: float = SILENCE_TIMEOUT) -> None:
        self._silence = silence
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._silence_timer: asyncio.TimerHandle | None = None
        self._last_data_at = 0.0
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, to: Address | str, *, tls: bool = False, silence: float = SILENCE_TIMEOUT) -> RedisConnection:
        """Connect to an address, or to the path of a socket."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(min(CONNECT_TIMEOUT, silence)):
            if isinstance(to, str):
                _, connection = await loop.create_unix_connection(lambda: cls(silence), to)
            else:
                context = ssl.create_default_context() if tls else None
                _, connection = await loop.create_connection(lambda: cls(silence), to.host, to.port, ssl=context)
        return connection

    @property
    def host(self) -> str:
        """Of the other side; empty for a socket."""
        peer = self._transport.get_extra_info("peername") if self._transport is not None else None
        return str(peer[0]) if isinstance(peer, tuple) else ""

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, *command: Any) -> asyncio.Future[Any]:
        """The answer to come. A server's refusal is a value (hiredis.ReplyError), a lost answer OSError."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        answer: asyncio.Future[Any] = self._loop.create_future()
        if not self._waiting:
            self._last_data_at = self._loop.time()
            if self._silence_timer is None:
                self._silence_timer = self._loop.call_later(self._silence, self._check_silence)
        self._waiting.append(answer)
        self._transport.write(hiredis.pack_command(command))
        return answer

    def _check_silence(self) -> None:
        self._silence_timer = None
        if not self._waiting:
            return
        quiet = self._loop.time() - self._last_data_at
        if quiet >= self._silence and self._transport is not None:
            self._transport.abort()
        else:
            self._silence_timer = self._loop.call_later(self._silence - quiet, self._check_silence)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it

    def data_received(self, data: bytes) -> None:
        self._last_data_at = self._loop.time()
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not _NOTHING:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_result(reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._silence_timer is not None:
            self._silence_timer.cancel()
            self._silence_timer = None
        while self._waiting:
            answer = self._waiting.popleft()
            if not answer.done():
                answer.set_exception(ConnectionResetError("the connection was lost"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None
