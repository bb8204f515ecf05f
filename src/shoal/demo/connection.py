"""Connection: one client of the demo server, as a protocol that never blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

from shoal.demo import wire
from shoal.demo.messages import SiteResponse, text_response


class Connection(asyncio.Protocol):
    """Requests are answered strictly in order, one at a time, however they arrive."""

    def __init__(
        self,
        answer: Callable[[wire.WireRequest], SiteResponse],
        open_connections: set[Connection],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.lost = asyncio.Event()
        self._handle = answer
        self._open_connections = open_connections
        self._loop = loop
        self._buffer = b""
        self._transport: asyncio.Transport
        self._request: wire.WireRequest | None = None  # being answered
        self._chunks: Iterator[bytes] | None = None
        self._answer: SiteResponse | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reading_paused = False  # it sends more than we can answer, so we stopped listening
        self._writing_paused = False  # it reads more slowly than we write
        self._active = loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._open_connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.discard(self)
        self.lost.set()
        if self._timer:
            self._timer.cancel()
        self._chunks = None

    def data_received(self, data: bytes) -> None:
        self._active = self._loop.time()
        self._buffer = self._buffer + data if self._buffer else data
        self._process_buffer()
        if (self._request or self._writing_paused) and len(self._buffer) > wire.MAX_HEAD and not self._reading_paused:
            self._reading_paused = True
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._chunks is not None and self._timer is None:
            self._send_chunks()
        else:
            self._resume()

    def close_if_idle(self, since: float) -> None:
        if self._request is None and self._active < since:
            self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def _process_buffer(self) -> None:
        """Answer what is complete in the buffer, until one answer takes time."""
        while self._request is None and not self._writing_paused and not self._transport.is_closing():
            try:
                request = self._next()
            except wire.BadRequest as error:
                self._refuse(error.status)
                return
            if request is None:
                return
            self._begin(request)

    def _resume(self) -> None:
        """Go on with what arrived while an answer took its time."""
        self._process_buffer()
        if (
            self._reading_paused
            and self._request is None
            and not self._writing_paused
            and not self._transport.is_closing()
        ):
            self._reading_paused = False
            self._transport.resume_reading()

    def _next(self) -> wire.WireRequest | None:
        """Take one whole request off the buffer; its body is skipped."""
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            if len(self._buffer) > wire.MAX_HEAD:
                raise wire.BadRequest(431)
            return None
        if end > wire.MAX_HEAD:
            raise wire.BadRequest(431)
        request = wire.parse(self._buffer[:end].lstrip(b"\r\n"))
        if len(self._buffer) < end + 4 + request.length:
            if "expect" in request.headers:  # the body is not coming before we say so, and we never do
                raise wire.BadRequest(417)
            return None
        self._buffer = self._buffer[end + 4 + request.length :]
        return request

    def _begin(self, request: wire.WireRequest) -> None:
        self._request = request
        self._answer = self._handle(request)
        if self._answer.delay > 0:
            self._timer = self._loop.call_later(self._answer.delay, self._send)
        else:
            self._send()

    def _send(self) -> None:
        self._timer = None
        request, answer = self._request, self._answer
        assert request is not None and answer is not None
        # Without chunks an old client knows the end only by the end of the connection.
        keep = request.keep_alive and (answer.chunks is None or request.chunked)
        head = wire.head(answer, keep_alive=keep, chunked=request.chunked)
        if request.method == "HEAD":
            self._transport.write(head)
        elif answer.chunks is None:
            self._transport.write(head + answer.body)
        else:
            self._transport.write(head)
            self._chunks = answer.chunks()
            self._send_chunks()
            return
        self._finish(keep)

    def _send_chunks(self) -> None:
        """Write chunks while the client keeps up."""
        self._timer = None
        request, answer, chunks = self._request, self._answer, self._chunks
        assert request is not None and answer is not None
        while chunks is not None and not self._writing_paused:
            data = next(chunks, None)
            if data is None:
                self._chunks = None
                if request.chunked:
                    self._transport.write(wire.LAST_CHUNK)
                self._finish(request.keep_alive and request.chunked)
                return
            self._transport.write(wire.chunk(data) if request.chunked else data)
            if answer.pause:
                self._timer = self._loop.call_later(answer.pause, self._send_chunks)
                return

    def _finish(self, keep_alive: bool) -> None:
        """Ready for the next request; `_work` is what looks for it, never this method by recursion."""
        late = self._answer is not None and (self._answer.delay > 0 or self._answer.chunks is not None)
        self._request = self._answer = None
        self._active = self._loop.time()
        if not keep_alive:
            self._transport.close()
        elif late:
            self._loop.call_soon(self._resume)

    def _refuse(self, status: int) -> None:
        answer = text_response("The request could not be understood.\n", status)
        self._transport.write(wire.head(answer, keep_alive=False, chunked=False) + answer.body)
        self._transport.close()
