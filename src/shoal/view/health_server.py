"""A small HTTP server for health checks: is a process alive, is it ready, what are its metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from shoal.errors import UsageError

MAX_REQUEST_BYTES = 8_192  # bytes of a request
TIMEOUT = 5.0  # seconds for one request and its answer
MAX_CONNECTIONS = 64  # connections; for a further one, the one that has been silent for longest is closed

_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}
_JSON, _TEXT = "application/json", "text/plain; version=0.0.4; charset=utf-8"


class HealthSource(Protocol):
    """What is asked of whoever is watched."""

    def health(self) -> Mapping[str, object]:
        """Answers as long as the process does; nothing secret."""
        ...

    def ready(self) -> Mapping[str, object]:
        """With "ready": whether work is being done, and why not."""
        ...

    def metrics(self) -> str:
        """Figures in Prometheus' text format."""
        ...


def parse_listen_address(text: str) -> tuple[str, int]:
    """Where to listen: "8080" on this machine only, "0.0.0.0:8080" for others, too."""
    host, colon, port = text.rpartition(":")
    if not port.isdecimal() or int(port) > 65_535 or (colon and not host):
        raise UsageError(f"{text!r} is not a listen address", hint="--health 8080, or --health 0.0.0.0:8080")
    return host.strip("[]") or "127.0.0.1", int(port)


class HealthServer:
    def __init__(self, source: HealthSource) -> None:
        self._source = source
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_REQUEST_BYTES)
        except OSError as error:
            raise UsageError(
                f"Cannot listen on {host}:{port}: {error.strerror}",
                hint="choose another port, or stop the process that uses it",
            ) from error
        name, number = self._server.sockets[0].getsockname()[:2]
        self.url = f"http://{f'[{name}]' if ':' in name else name}:{number}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    async def __aenter__(self) -> HealthServer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections[writer] = None
        if len(self._connections) > MAX_CONNECTIONS:
            self._close_oldest()
        try:
            async with asyncio.timeout(TIMEOUT):
                await self._handle_request(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks so slowly or at such length gets no answer
        finally:
            await _close(writer)
            self._connections.pop(writer, None)

    def _close_oldest(self) -> None:
        """Whoever only holds connections loses them, and who asks is answered."""
        oldest = next(iter(self._connections))
        del self._connections[oldest]
        oldest.transport.abort()

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        status, kind, body = self._respond(head.split(b"\r\n", 1)[0].decode("latin-1"))
        data = body.encode()
        only_head = head.startswith(b"HEAD ")
        writer.write(
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(data)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        )
        if not only_head:
            writer.write(data)
        await writer.drain()

    def _respond(self, line: str) -> tuple[int, str, str]:
        words = line.split(" ")
        if len(words) != 3 or not words[2].startswith("HTTP/1."):
            return 400, _JSON, "{}"
        if words[0] not in ("GET", "HEAD"):
            return 405, _JSON, "{}"
        answers: dict[str, Callable[[], tuple[int, str, str]]] = {
            "/health": lambda: (200, _JSON, json.dumps(self._source.health())),
            "/ready": self._ready,
            "/metrics": lambda: (200, _TEXT, self._source.metrics()),
        }
        answer = answers.get(words[1].partition("?")[0])
        return answer() if answer is not None else (404, _JSON, json.dumps({"try": list(answers)}))

    def _ready(self) -> tuple[int, str, str]:
        found = self._source.ready()
        return (200 if found.get("ready") else 503), _JSON, json.dumps(found)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Let the answer be read, but not for as long as somebody likes."""
    writer.close()
    try:
        async with asyncio.timeout(TIMEOUT):
            await writer.wait_closed()
    except (TimeoutError, OSError):
        writer.transport.abort()
