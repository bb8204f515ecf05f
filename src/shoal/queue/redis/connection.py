"""One pipelined connection to the server: commands are sent as they come and replies arrive in order."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any, cast

import hiredis

CONNECT_TIMEOUT = 5.0  # seconds
SILENCE_TIMEOUT = 15.0  # seconds without a byte while answers are awaited: the other side is gone
_NOTHING = object()


class RedisConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._transport: asyncio.Transport | None = None
        self._silence_timer: asyncio.TimerHandle | None = None
        self._last_data_at = 0.0
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def open(cls, host: str, port: int, *, path: str = "", tls: ssl.SSLContext | None = None) -> RedisConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT):
            if path:
                _, connection = await loop.create_unix_connection(cls, path)
            else:
                _, connection = await loop.create_connection(cls, host, port, ssl=tls)
        return connection

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
                self._silence_timer = self._loop.call_later(SILENCE_TIMEOUT, self._check_silence)
        self._waiting.append(answer)
        self._transport.write(hiredis.pack_command(command))
        return answer

    def _check_silence(self) -> None:
        self._silence_timer = None
        if not self._waiting:
            return
        quiet = self._loop.time() - self._last_data_at
        if quiet >= SILENCE_TIMEOUT and self._transport is not None:
            self._transport.abort()
        else:
            self._silence_timer = self._loop.call_later(SILENCE_TIMEOUT - quiet, self._check_silence)

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
