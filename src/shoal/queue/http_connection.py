"""One keep-alive connection to an HTTP/1.1 server, for one request at a time."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

import httptools
import msgspec

CONNECT_TIMEOUT = 5.0  # seconds
SILENCE_TIMEOUT = 30.0  # seconds without a byte while an answer is awaited: the other side is gone
RESPONSE_TIMEOUT = 300.0  # seconds for a whole answer, however it trickles
MAX_RESPONSE_BYTES = 256_000_000  # bytes of one answer


class NotHttpError(ConnectionError):
    """Whatever answers there, it does not speak HTTP."""


class ServerResponse(msgspec.Struct):
    status: int = 0
    kind: str = ""  # its media type
    retry_after: float = 0.0
    location: str = ""
    body: bytes = b""


class HttpConnection(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._pending: asyncio.Future[ServerResponse] | None = None
        self._response = ServerResponse()
        self._parts: list[bytes] = []
        self._size = 0
        self._keep_alive = True
        self._started_at = self._last_data_at = 0.0
        self._unsent = 0
        self._silence_timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext | None) -> HttpConnection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, connection = await loop.create_connection(cls, host, port, ssl=tls)
        return connection

    @property
    def is_usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._keep_alive

    async def request(self, message: bytes) -> ServerResponse:
        """Send a request and wait for its whole answer; OSError if the connection breaks before."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        self._response, self._parts, self._size = ServerResponse(), [], 0
        self._pending = self._loop.create_future()
        self._started_at = self._last_data_at = self._loop.time()
        self._silence_timer = self._loop.call_later(SILENCE_TIMEOUT, self._check_silence)
        try:
            self._transport.write(message)
            self._unsent = self._transport.get_write_buffer_size()
            return await self._pending
        except asyncio.CancelledError:
            self.close()  # what comes now is an answer to nobody
            raise
        finally:
            self._pending = None
            self._silence_timer.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _check_silence(self) -> None:
        """Give up on a server from which nothing comes, and to which nothing goes."""
        now = self._loop.time()
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if unsent < self._unsent:
            self._unsent, self._last_data_at = unsent, now
        if now - self._last_data_at >= SILENCE_TIMEOUT or now - self._started_at >= RESPONSE_TIMEOUT:
            self._fail(TimeoutError(f"no answer within {now - self._started_at:.0f} seconds"))
            self.close()
        else:
            self._silence_timer = self._loop.call_later(
                SILENCE_TIMEOUT - (now - self._last_data_at), self._check_silence
            )

    # what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it

    def data_received(self, data: bytes) -> None:
        if self._pending is None or self._pending.done():
            self.close()  # nobody asked: whatever it is, it must not be taken for the next answer
            return
        self._last_data_at = self._loop.time()
        self._size += len(data)
        if self._size > MAX_RESPONSE_BYTES:
            self._fail(ConnectionAbortedError("the answer is too large"))
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(NotHttpError(f"what came is not HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(error or ConnectionResetError("the connection was closed"))

    def _fail(self, error: Exception) -> None:
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(error if isinstance(error, OSError) else ConnectionError(str(error)))

    # what the parser says

    def on_header(self, name: bytes, value: bytes) -> None:
        word = name.lower()
        if word == b"content-type":
            self._response.kind = value.decode("latin-1").partition(";")[0].strip().lower()
        elif word == b"retry-after" and value.strip().isdigit():
            self._response.retry_after = float(value[:9])
        elif word == b"location":
            self._response.location = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_begin(self) -> None:
        if self._pending is None or self._pending.done():
            self._keep_alive = False  # more than was asked for: nothing on this connection can be trusted

    def on_message_complete(self) -> None:
        response, parts = self._response, self._parts
        self._response, self._parts = ServerResponse(), []
        response.status = self._parser.get_status_code()
        if response.status < 200 or self._pending is None or self._pending.done():
            return  # a word before the answer, or one too many
        self._keep_alive = self._keep_alive and self._parser.should_keep_alive()
        response.body = b"".join(parts)
        self._pending.set_result(response)
