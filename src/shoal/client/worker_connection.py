"""WorkerConnection: asks the port of one worker, with its token."""

from __future__ import annotations

import asyncio
import ssl
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from shoal.errors import UsageError
from shoal.queue.http_connection import HttpConnection
from shoal.version import __version__
from shoal.web.push.port import LOAD_PATH, TASKS_PATH
from shoal.web.push.request import PushAnswer, PushRequest, WorkerReport

LOAD_TIMEOUT = 5.0  # seconds for a worker to say how it is
SUBMIT_TIMEOUT = 5.0  # seconds for it to take a task; then another is asked
T = TypeVar("T")


class WorkerUnreachable(Exception):
    """It did not answer, or not as a worker does; whether it has taken the task is not known."""


class WorkerConnection:
    def __init__(self, url: str, token: str) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host = None
        if host is None or parts.scheme not in ("http", "https") or parts.path.strip("/") or parts.query or "@" in url:
            raise UsageError(f"{url!r:.200} is not the URL of a worker", hint="http://10.0.0.5:9470, as it says itself")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._host, self._port = host, port or (443 if self._tls else 80)
        self.url = url.rstrip("/")
        self._headers = f"Host: {parts.netloc}\r\nAuthorization: Bearer {token}\r\nUser-Agent: shoal/{__version__}\r\n"

    async def load(self) -> WorkerReport:
        status, body = await self._ask("GET", LOAD_PATH, b"", LOAD_TIMEOUT)
        if status != 200:
            raise WorkerUnreachable(f"{self.url} answered {status}")
        return self._decode(body, WorkerReport)

    async def push(self, request: PushRequest) -> PushAnswer:
        """Raises UsageError for what no worker takes, WorkerUnreachable where nothing is known."""
        status, body = await self._ask("POST", TASKS_PATH, msgspec.json.encode(request), SUBMIT_TIMEOUT)
        if status in (202, 503):
            return self._decode(body, PushAnswer)
        if status in (400, 413):
            answer = self._decode(body, PushAnswer)
            raise UsageError(answer.error or "the task is too large", hint=answer.hint or "store it, and pass its name")
        raise WorkerUnreachable(f"{self.url} answered {status}")

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise WorkerUnreachable(f"{self.url} does not answer as a worker does") from error

    async def _ask(self, method: str, path: str, body: bytes, timeout: float) -> tuple[int, bytes]:
        request = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n".encode() + body
        try:
            async with asyncio.timeout(timeout):
                connection = await HttpConnection.open(self._host, self._port, self._tls)
                try:
                    response = await connection.request(request)
                finally:
                    connection.close()
        except (OSError, TimeoutError) as error:
            raise WorkerUnreachable(f"{self.url} does not answer: {error or 'no answer in time'}") from error
        if response.status == 401:
            raise WorkerUnreachable(f"{self.url} refuses the token: SHOAL_ACCEPT_TOKEN must be that of its worker")
        return response.status, response.body
