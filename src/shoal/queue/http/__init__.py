"""A queue behind a shoal server: every verb is one request to its API; nobody else needs the database."""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Any

import msgspec

from shoal.errors import QueueRefused, QueueUnavailable
from shoal.queue.base import Finding
from shoal.queue.http.failure import (
    TOO_MANY_GUESSES,
    not_a_shoal_server,
    problem_details,
    translate_connection_error,
    translate_response,
)
from shoal.queue.http.server_url import HttpServerUrl, parse_server_url
from shoal.queue.http_connection import HttpConnection, ServerResponse
from shoal.queue.remote import RemoteQueue
from shoal.queue.tls import tls_context
from shoal.queue.wire import MAX_WAIT, MEDIA_TYPE, PATH, VERBS
from shoal.version import __version__

CONNECTIONS = 8  # at most; so many verbs may be in progress at once
RETRY_BUDGET = {429: 30.0, 503: 5.0}  # seconds in all that a server may ask us to come back later
MAX_PAUSE = 5.0


class HttpQueue(RemoteQueue):
    """A client of a queue behind a shoal server."""

    def __init__(self, server_url: HttpServerUrl, tls: ssl.SSLContext | None) -> None:
        self._server_url = server_url
        self._tls = tls
        self._idle: deque[HttpConnection] = deque()
        self._connection_slots = asyncio.Semaphore(CONNECTIONS)
        self._closed = False
        token = f"Authorization: Bearer {server_url.token}\r\n" if server_url.token else ""
        self._common_headers = (
            f"Host: {server_url.authority}\r\n{token}User-Agent: shoal/{__version__}\r\n"
            f"Accept: {MEDIA_TYPE}, application/problem+json\r\n"
        )

    @classmethod
    async def open(cls, url: str, *, token: str = "", ca_file: str = "") -> HttpQueue:
        server_url = parse_server_url(url, token)
        return await cls(server_url, tls_context(ca_file) if server_url.tls else None).handshake()

    async def close(self) -> None:
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    # verbs that are not just asked

    async def wait(self, seconds: float) -> None:
        """Asked there in short pieces, so that neither side holds a request for long."""
        asked = min(seconds, MAX_WAIT)
        await self._request("POST", f"{PATH}/wait", VERBS["wait"].pack((asked,), {}), at_most=asked)

    async def diagnose(self) -> list[Finding]:
        found: list[Finding] = await self.call("diagnose")
        if self._server_url.is_unencrypted:
            words = "the token and all records travel unencrypted"
            found.append(Finding("way", "warning", words, "put nginx with TLS in front of it"))
        return found

    async def call(self, name: str, /, *args: Any, **named: Any) -> Any:
        """One verb, asked there."""
        verb = VERBS[name]
        response = await self._request("POST", f"{PATH}/{name}", verb.pack(args, named))
        try:
            return verb.unpack_answer(response.body)
        except msgspec.DecodeError as error:
            raise self.not_understood(f"its answer to {name} is not understood: {error}") from error

    async def hello(self) -> bytes:
        return (await self._request("GET", PATH, b"")).body

    def not_understood(self, why: str) -> QueueRefused:
        return not_a_shoal_server(self._server_url, why)

    # one request

    async def _request(self, method: str, path: str, body: bytes, at_most: float = 60.0) -> ServerResponse:
        request = (
            f"{method} {self._server_url.prefix}{path} HTTP/1.1\r\n{self._common_headers}"
            f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode("latin-1") + body
        waited = 0.0
        while True:
            response = await self._exchange(request)
            if response.status == 200 and response.kind == MEDIA_TYPE:
                return response
            pause = max(0.1, min(response.retry_after, MAX_PAUSE))
            waited += pause
            if waited > min(at_most, _retry_budget(response)):
                raise translate_response(self._server_url, response)
            await asyncio.sleep(pause)

    async def _exchange(self, request: bytes) -> ServerResponse:
        async with self._connection_slots:
            try:
                connection, fresh = await self._acquire()
                try:
                    return await self._send_on(connection, request)
                except ConnectionError:
                    # A kept connection may have been closed while nobody used it: the verb is asked
                    # again on a new one, which every verb allows.
                    if fresh:
                        raise
                    return await self._send_on(await self._connect(), request)
            except OSError as error:
                raise translate_connection_error(self._server_url, error) from error

    async def _send_on(self, connection: HttpConnection, request: bytes) -> ServerResponse:
        try:
            response = await connection.request(request)
        except BaseException:
            connection.close()
            raise
        if connection.is_usable and not self._closed:
            self._idle.append(connection)
        else:
            connection.close()
        return response

    async def _acquire(self) -> tuple[HttpConnection, bool]:
        if self._closed:
            raise QueueUnavailable("this queue was closed")
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                return connection, False
            connection.close()
        return await self._connect(), True

    async def _connect(self) -> HttpConnection:
        return await HttpConnection.open(self._server_url.host, self._server_url.port, self._tls)


def _retry_budget(response: ServerResponse) -> float:
    """Seconds for which it is asked again; a server that says nothing of later is not."""
    if response.status == 503 and not response.retry_after:
        return 0.0
    if response.status == 429 and problem_details(response).get("type") == TOO_MANY_GUESSES:
        return 0.0  # the token is wrong, now as later
    return RETRY_BUDGET.get(response.status, 0.0)
