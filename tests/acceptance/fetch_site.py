"""A server whose answers are written byte by byte, and a fetcher to send there."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from servers import certificate

from shoal.core.page import Request, Response
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher
from shoal.fetch.limits import FetchLimits

Reader, Writer = asyncio.StreamReader, asyncio.StreamWriter
Answer = Callable[[Writer], Awaitable[None]]
Served = TypeVar("Served", bound=Any)
EVERYTHING = PrivateNetworkPolicy.parse("1")


def plain(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Site:
    """A server whose answers are written byte by byte in the test."""

    def __init__(self, answer: bytes | Answer, *, close: bool = False) -> None:
        self.answer, self.close = answer, close
        self.requests: list[bytes] = []
        self.connections = 0
        self.asked = asyncio.Event()  # a request has come in
        self.gone = asyncio.Event()  # a client has closed its connection
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()

    def url(self, path: str = "/", host: str = "127.0.0.1", scheme: str = "http") -> str:
        return f"{scheme}://{host}:{self.port}{path}"

    def accept(self, reader: Reader, writer: Writer) -> None:
        self.connections += 1
        self.tasks.add(asyncio.ensure_future(self.serve(reader, writer)))

    async def serve(self, reader: Reader, writer: Writer) -> None:
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
                self.requests.append(head + body)
                self.asked.set()
                if isinstance(self.answer, bytes):
                    writer.write(self.answer)
                    await writer.drain()
                else:
                    await self.answer(writer)
                if self.close:
                    break
        self.gone.set()
        writer.close()
        with suppress(OSError, asyncio.CancelledError):
            await writer.wait_closed()


@asynccontextmanager
async def serving(site: Served, context: ssl.SSLContext | None = None) -> AsyncIterator[Served]:
    """Whatever has `accept`, `port` and `tasks`: a site, or a proxy."""
    server = await asyncio.start_server(site.accept, "127.0.0.1", 0, ssl=context)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()
        for task in site.tasks:
            task.cancel()
        await asyncio.gather(*site.tasks, return_exceptions=True)


@asynccontextmanager
async def fetching(**changes: object) -> AsyncIterator[HttpFetcher]:
    options: dict[str, object] = {"user_agent": "shoal-test/1", "allow_private": EVERYTHING} | changes
    limits = {name: options.pop(name) for name in FetchLimits.__struct_fields__ if name in options}
    fetcher = HttpFetcher(limits=FetchLimits(**limits), **options)  # type: ignore[arg-type]
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def exchange(answer: bytes | Answer, *, close: bool = False, **changes: object) -> Response:
    timeout = float(changes.pop("timeout", 10.0))  # type: ignore[arg-type]
    async with serving(Site(answer, close=close)) as site, fetching(**changes) as fetcher:
        return await fetcher.fetch(Request(site.url(), timeout=timeout))


def writes(*parts: bytes | float) -> Answer:
    """An answer in pieces; a number is a pause, and the end is silence."""

    async def answer(writer: Writer) -> None:
        for part in parts:
            if isinstance(part, bytes):
                writer.write(part)
                await writer.drain()
            else:
                await asyncio.sleep(part)

    return answer


async def endlessly(writer: Writer, piece: bytes, first: bytes = b"") -> None:
    writer.write(first)
    while True:
        writer.write(piece)
        await writer.drain()


def make_certificate(place: Path) -> Path:
    """A folder with cert.pem and key.pem for localhost and 127.0.0.1."""
    if not certificate.can_make():
        pytest.skip("needs the openssl command to make a certificate")
    return certificate.make(place)


def tls(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context
