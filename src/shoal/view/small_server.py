"""SmallServer: an HTTP port of a worker, one request per connection, that nobody can hold up."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

import msgspec

from shoal.errors import UsageError

MAX_HEAD_BYTES = 8_192  # bytes of a request without its body
TIMEOUT = 5.0  # seconds for a request to arrive, and for its answer to be read
MAX_CONNECTIONS = 64  # connections; for a further one, the oldest that has not said who it is goes

JSON = "application/json"
_SINGLE = frozenset(("content-length", "transfer-encoding", "authorization"))
_REASONS = {
    200: "OK", 202: "Accepted", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 405: "Method Not Allowed",
    409: "Conflict", 411: "Length Required", 413: "Content Too Large", 503: "Service Unavailable",
}  # fmt: skip


class RequestHead(msgspec.Struct, frozen=True):
    line: str
    headers: dict[str, str]  # names in small letters

    @property
    def method(self) -> str:
        return self.line.partition(" ")[0]

    @property
    def path(self) -> str:
        """Without what follows a question mark; empty where the line is not that of a request."""
        words = self.line.split(" ")
        return words[1].partition("?")[0] if len(words) == 3 and words[2].startswith("HTTP/1.") else ""


class Answer(msgspec.Struct, frozen=True):
    status: int
    body: bytes = b"{}"
    kind: str = JSON


class Exchange:
    """One request, whose body is read only when it is asked for."""

    def __init__(self, head: RequestHead, reader: asyncio.StreamReader, trust: Callable[[], bool]) -> None:
        self.head = head
        self._reader = reader
        self.trust = trust  # whoever asks may stay; False: there are too many such already

    async def body(self, limit: int) -> bytes | Answer:
        """The whole body, or the answer to one that cannot be taken; raises TimeoutError."""
        length = self.head.headers.get("content-length", "")
        if "transfer-encoding" in self.head.headers or not length.isdecimal():
            return Answer(411)
        if len(length) > 12 or int(length) > limit:
            return Answer(413)
        async with asyncio.timeout(TIMEOUT):
            return await self._reader.readexactly(int(length))


Respond = Callable[[Exchange], Awaitable[Answer]]


class SmallServer:
    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._server: asyncio.Server | None = None
        self._strangers: dict[asyncio.StreamWriter, None] = {}  # oldest first
        self._trusted: set[asyncio.StreamWriter] = set()
        self.url = ""

    async def start(self, host: str, port: int) -> None:
        try:
            self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_HEAD_BYTES)
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

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def connections(self) -> int:
        return len(self._strangers) + len(self._trusted)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._strangers[writer] = None
        if len(self._strangers) > MAX_CONNECTIONS:
            self._close_oldest()
        try:
            await self._handle_request(reader, writer)
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever asks so slowly or at such length gets no answer
        finally:
            await _close(writer)
            self._strangers.pop(writer, None)
            self._trusted.discard(writer)

    def _close_oldest(self) -> None:
        """Whoever only holds connections loses them, and who asks is answered."""
        oldest = next(iter(self._strangers))
        del self._strangers[oldest]
        oldest.transport.abort()

    def _trust(self, writer: asyncio.StreamWriter) -> bool:
        if len(self._trusted) >= MAX_CONNECTIONS:
            return False
        self._strangers.pop(writer, None)
        self._trusted.add(writer)
        return True

    async def _handle_request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(TIMEOUT):
            head = _parse_head(await reader.readuntil(b"\r\n\r\n"))
        answer = Answer(400)
        if head is not None:
            answer = await self._respond(Exchange(head, reader, lambda: self._trust(writer)))
        writer.write(
            f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.kind}\r\n"
            f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
        )
        if head is None or head.method != "HEAD":
            writer.write(answer.body)
        async with asyncio.timeout(TIMEOUT):
            await writer.drain()


def _parse_head(data: bytes) -> RequestHead | None:
    """None where a header could be read in two ways."""
    line, *lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    headers: dict[str, str] = {}
    for text in lines:
        name, colon, value = text.partition(":")
        word = name.lower()
        if not colon or not name or name != name.strip() or (word in headers and word in _SINGLE):
            return None
        headers[word] = value.strip()
    return RequestHead(line, headers)


async def _close(writer: asyncio.StreamWriter) -> None:
    """Let the answer be read, but not for as long as somebody likes."""
    writer.close()
    try:
        async with asyncio.timeout(TIMEOUT):
            await writer.wait_closed()
    except (TimeoutError, OSError):
        writer.transport.abort()
