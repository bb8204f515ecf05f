"""ClientConnection: one connection to a client, written byte by byte."""

from __future__ import annotations

import asyncio
import socket
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostile.site import HostileSite

PIECE = 64 * 1024
PAUSE = 0.002  # between two pieces of something endless: 32 MB a second, or the machine has no time for others
MOST_ENDLESS = 400_000_000  # bytes; by then a client has shown that it knows no end


class Ended(Exception):
    """The connection is over."""


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")


class ClientConnection:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, site: HostileSite, home: str
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.site = site
        self.home = home  # host:port of the behaviour

    async def request(self) -> Request:
        """The next request of the client."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError) as error:
            raise Ended from error
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        method, target, _ = first.split(" ", 2)
        pairs = (line.partition(":") for line in lines)
        return Request(method, target, tuple((name.lower(), value.strip()) for name, _, value in pairs))

    async def send(self, *parts: bytes) -> None:
        try:
            for part in parts:
                self._writer.write(part)
                await self._writer.drain()
        except (OSError, RuntimeError) as error:
            raise Ended from error

    async def send_endlessly(self, piece: bytes, most: int = MOST_ENDLESS) -> None:
        """The same again and again, until the client has had enough of it."""
        for _ in range(most // len(piece)):
            await self.send(piece)
            await asyncio.sleep(PAUSE)
        self.end()

    async def send_slowly(self, piece: bytes, every: float = 1.0) -> None:
        """One piece at a time, slowly and without end."""
        while not self._reader.at_eof():
            await self.send(piece)
            await asyncio.sleep(every)

    async def wait_silently(self) -> None:
        """Say nothing until the client goes away."""
        try:
            while await self._reader.read(PIECE):
                pass
        except OSError:
            pass
        raise Ended

    def end(self) -> None:
        raise Ended

    def reset(self) -> None:
        """Break the connection off, so that the client sees a reset and not an end."""
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()
        raise Ended

    def finish(self) -> None:
        """Say that nothing more will be sent, but stay."""
        self._writer.write_eof()


def head(*lines: str, status: str = "200 OK") -> bytes:
    """A status line and headers; text/html unless told otherwise."""
    if not any(line.lower().startswith("content-type") for line in lines):
        lines = ("Content-Type: text/html; charset=utf-8", *lines)
    return "\r\n".join([f"HTTP/1.1 {status}", *lines]).encode() + b"\r\n\r\n"


def answer(body: bytes | str, *lines: str, status: str = "200 OK") -> bytes:
    """A complete answer, as it should be."""
    body = body.encode() if isinstance(body, str) else body
    return head(*lines, f"Content-Length: {len(body)}", status=status) + body


def html(title: str, *parts: str) -> str:
    return f"<!doctype html><html><head><title>{title}</title></head><body>{''.join(parts)}</body></html>"


def links(*targets: str) -> str:
    return "".join(f'<a href="{target}">x</a>\n' for target in targets)


CHUNKED = "Transfer-Encoding: chunked"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
