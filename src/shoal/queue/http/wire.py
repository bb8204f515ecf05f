"""Wire: one kept connection to a server that speaks HTTP/1.1, for one request at a time."""

from __future__ import annotations

import asyncio
import ssl
from typing import cast

import httptools
import msgspec

CONNECT_PATIENCE = 5.0  # seconds
SILENCE = 30.0  # seconds without a byte while an answer is awaited: the other side is gone
LONGEST = 300.0  # seconds for a whole answer, however it trickles
LARGEST = 256_000_000  # bytes of one answer


class NotHttp(ConnectionError):
    """Whatever answers there, it does not speak HTTP."""


class Answer(msgspec.Struct):
    status: int = 0
    kind: str = ""  # its media type
    retry_after: float = 0.0
    location: str = ""
    body: bytes = b""


class Wire(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._awaited: asyncio.Future[Answer] | None = None
        self._answer = Answer()
        self._parts: list[bytes] = []
        self._size = 0
        self._keep = True
        self._began = self._heard = 0.0
        self._unsent = 0
        self._watch: asyncio.TimerHandle | None = None

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext | None) -> Wire:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_PATIENCE):
            _, wire = await loop.create_connection(cls, host, port, ssl=tls)
        return wire

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing() and self._keep

    async def ask(self, request: bytes) -> Answer:
        """Send a request and wait for its whole answer; OSError if the connection breaks before."""
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection was closed")
        self._answer, self._parts, self._size = Answer(), [], 0
        self._awaited = self._loop.create_future()
        self._began = self._heard = self._loop.time()
        self._watch = self._loop.call_later(SILENCE, self._look)
        try:
            self._transport.write(request)
            self._unsent = self._transport.get_write_buffer_size()
            return await self._awaited
        except asyncio.CancelledError:
            self.close()  # what comes now is an answer to nobody
            raise
        finally:
            self._awaited = None
            self._watch.cancel()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _look(self) -> None:
        """Give up on a server from which nothing comes, and to which nothing goes."""
        now = self._loop.time()
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if unsent < self._unsent:
            self._unsent, self._heard = unsent, now
        if now - self._heard >= SILENCE or now - self._began >= LONGEST:
            self._fail(TimeoutError(f"no answer within {now - self._began:.0f} seconds"))
            self.close()
        else:
            self._watch = self._loop.call_later(SILENCE - (now - self._heard), self._look)

    # what the transport says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it

    def data_received(self, data: bytes) -> None:
        if self._awaited is None or self._awaited.done():
            self.close()  # nobody asked: whatever it is, it must not be taken for the next answer
            return
        self._heard = self._loop.time()
        self._size += len(data)
        if self._size > LARGEST:
            self._fail(ConnectionAbortedError("the answer is too large"))
            self.close()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(NotHttp(f"what came is not HTTP: {error}"))
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._fail(error or ConnectionResetError("the connection was closed"))

    def _fail(self, error: Exception) -> None:
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_exception(error if isinstance(error, OSError) else ConnectionError(str(error)))

    # what the parser says

    def on_header(self, name: bytes, value: bytes) -> None:
        word = name.lower()
        if word == b"content-type":
            self._answer.kind = value.decode("latin-1").partition(";")[0].strip().lower()
        elif word == b"retry-after" and value.strip().isdigit():
            self._answer.retry_after = float(value[:9])
        elif word == b"location":
            self._answer.location = value.decode("latin-1")

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_begin(self) -> None:
        if self._awaited is None or self._awaited.done():
            self._keep = False  # more than was asked for: nothing on this connection can be trusted

    def on_message_complete(self) -> None:
        made, parts = self._answer, self._parts
        self._answer, self._parts = Answer(), []
        made.status = self._parser.get_status_code()
        if made.status < 200 or self._awaited is None or self._awaited.done():
            return  # a word before the answer, or one too many
        self._keep = self._keep and self._parser.should_keep_alive()
        made.body = b"".join(parts)
        self._awaited.set_result(made)
