"""Connections that may be neither slow nor huge nor endless; one sweep a second checks all of them."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from shoal.web.auth.peer_user import CONNECTION_KEY
from shoal.web.http.connection_transport import ConnectionTransport
from shoal.web.http.problem import MEDIA_TYPE, Problem

SWEEP_INTERVAL = 1.0
HEAD_TIMEOUT = 10.0  # seconds for the head of a request, from its first byte or from connecting
HEAD_LIMIT = 16_384  # bytes of it
BODY_WINDOW, MIN_BODY_BYTES = 10.0, 5_000  # of a body, so many bytes have to come in so many seconds
WRITE_TIMEOUT = 20.0  # seconds for which somebody may read nothing of what we send
MAX_CONNECTIONS = 16_384  # fewer where the system allows fewer open files
RESERVED_FILES = 128  # for everything but connections


def connection_limit(wanted: int = MAX_CONNECTIONS) -> int:
    """How many connections there may be; as many files as the system lets us have are asked for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    max_connections = wanted + RESERVED_FILES if hard == resource.RLIM_INFINITY else min(wanted + RESERVED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < max_connections:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max_connections, hard))
        soft = max_connections
    return wanted if soft == resource.RLIM_INFINITY else max(16, min(wanted, soft - RESERVED_FILES))


class GuardedConnection(HttpToolsProtocol):
    """A connection that knows since when it waits for what."""

    max_connections = MAX_CONNECTIONS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_since: float | None = None  # None: no head is in progress
        self._head_bytes = 0
        self._body_bytes = 0
        self._body_window: tuple[float, int] | None = None  # None: no body is in progress
        self._write_blocked_since: float | None = None
        self._refused = False
        self._known: dict[str, Any] = {}  # what was found out about it, for all its requests

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(ConnectionTransport(transport, lambda: self._client_is_sending))  # type: ignore[arg-type]
        self._head_since = self.loop.time()
        if len(self.connections) > self.max_connections:
            self.refuse(503, "too-many-connections", "there are too many connections to this server")

    @property
    def _client_is_sending(self) -> bool:
        """Whether the client may be in the middle of a request."""
        return self._refused or self._body_window is not None

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return
        for_head = self._head_since is not None or self._is_idle()
        super().data_received(data)
        if not for_head:
            self._after_body()
            return
        if self._has_no_timer():
            self._head_since = self.loop.time()  # something came that is no request yet
        if self._head_since is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self._refuse_long_head()

    def _after_body(self) -> None:
        """The rest of a body may come after its answer; whoever is idle then is given an end again."""
        if self._has_no_timer():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _has_no_timer(self) -> bool:
        """Whether nothing goes on and nobody would ever end it."""
        return self._head_since is None and self.timeout_keep_alive_task is None and self._is_idle()

    def _is_idle(self) -> bool:
        return self._body_window is None and (self.cycle is None or self.cycle.response_complete)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[CONNECTION_KEY] = self._known  # type: ignore[literal-required]
        self._head_since = self.loop.time()
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        length = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if self._refused or length > HEAD_LIMIT:
            self._refuse_long_head()
            return
        self._head_since = None
        self._body_bytes, self._body_window = 0, (self.loop.time(), 0)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._refused:
            self._body_bytes += len(body)
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_window = None
        if not self._refused:
            super().on_message_complete()

    def pause_writing(self) -> None:
        self._write_blocked_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._write_blocked_since = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        self.refuse(400, "bad-request", "this is not a valid HTTP request")

    def _refuse_long_head(self) -> None:
        self.refuse(431, "headers-too-large", f"request headers may have {HEAD_LIMIT:,} bytes")

    def check(self, now: float) -> None:
        """Close it if whoever is at the other end is too slow."""
        if self._write_blocked_since is not None and now - self._write_blocked_since > WRITE_TIMEOUT:
            self.transport.abort()
        elif self._head_since is not None and now - self._head_since > HEAD_TIMEOUT:
            self.refuse(408, "request-timeout", "the request headers did not arrive in time")
        elif self._body_window is not None:
            self._check_body(now, *self._body_window)

    def extend_deadlines(self, seconds: float) -> None:
        """We were held up: what came meanwhile could not be seen."""
        if self._head_since is not None:
            self._head_since += seconds
        if self._write_blocked_since is not None:
            self._write_blocked_since += seconds
        if self._body_window is not None:
            self._body_window = self._body_window[0] + seconds, self._body_window[1]

    def _check_body(self, now: float, since: float, received: int) -> None:
        if self.flow.read_paused:  # we are the slow ones
            self._body_window = now, self._body_bytes
        elif now - since > BODY_WINDOW:
            if self._body_bytes - received < MIN_BODY_BYTES:
                self.refuse(408, "request-timeout", "the request body did not arrive in time")
            self._body_window = now, self._body_bytes

    def refuse(self, status: int, kind: str, detail: str) -> None:
        """Say why, unless an answer is in progress, and close the connection."""
        self._refused = True
        self._head_since = None
        if self.transport.is_closing():
            return
        if self.cycle is not None and not self.cycle.response_complete and self.cycle.response_started:
            self.transport.abort()
            return
        body = json.dumps(Problem(status, kind, detail).document()).encode()
        content = [STATUS_LINE[status]]
        for name, value in self.server_state.default_headers:
            content += [name, b": ", value, b"\r\n"]
        content += [b"content-type: ", MEDIA_TYPE.encode(), b"\r\n"]
        content += [b"content-length: ", str(len(body)).encode(), b"\r\n", b"connection: close\r\n\r\n", body]
        self.transport.write(b"".join(content))
        self.transport.close()


async def sweep(connections: Iterable[object]) -> None:
    """Look after all connections for as long as the server lives; for its own delays nobody is blamed."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(SWEEP_INTERVAL)
        now = loop.time()
        late = now - before - SWEEP_INTERVAL
        for connection in [it for it in connections if isinstance(it, GuardedConnection)]:
            if late > SWEEP_INTERVAL / 2:
                connection.extend_deadlines(late)
            connection.check(now)
