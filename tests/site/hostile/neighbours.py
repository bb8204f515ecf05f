"""Neighbours: well-behaved hosts, crawled beside the hostile ones to see whether they suffer.

    python -m hostile.neighbours HOSTS PAGES LATENCY

speaks with whoever started it as the server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time

from hostile.client_connection import answer, html, links
from hostile.site import listening

FAN = 8
FILL = "<p>" + "The tide comes in and the tide goes out again. " * 12 + "</p>"


def path_of(page: int) -> str:
    """In letters: addresses that differ in a number only would look like a trap."""
    return "/" + str(page).translate(str.maketrans("0123456789", "abcdefghij"))


def page_of(path: str) -> int:
    return int(path[1:].translate(str.maketrans("abcdefghij", "0123456789")) or 0)


class RequestCounts:
    def __init__(self) -> None:
        self.pages = 0
        self.with_cookies = 0
        self.first = self.last = 0.0

    def page(self, request: bytes) -> None:
        self.pages += 1
        self.with_cookies += b"\r\ncookie:" in request.lower()
        self.last = time.monotonic()
        self.first = self.first or self.last


class Neighbour(asyncio.Protocol):
    def __init__(self, seen: RequestCounts, pages: int, latency: float) -> None:
        self._counts = seen
        self._pages = pages
        self._latency = latency
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._rest = (self._rest + data).split(b"\r\n\r\n")
        loop = asyncio.get_running_loop()
        for request in requests:
            loop.call_later(self._latency, self._reply, request)

    def _reply(self, request: bytes) -> None:
        path = request.split(b" ", 2)[1].decode()
        if path == "/robots.txt":
            said = answer("", status="404 Not Found")
        else:
            self._counts.page(request)
            said = self._page(page_of(path))
        if not self._transport.is_closing():
            self._transport.write(said)  # type: ignore[attr-defined]

    def _page(self, page: int) -> bytes:
        first = page * FAN + 1
        below = (path_of(n) for n in range(first, min(first + FAN, self._pages)))
        return answer(html(f"neighbour {page}", FILL, links("/", *below)))


async def main(hosts: int, pages: int, latency: float) -> None:
    seen, loop, port = RequestCounts(), asyncio.get_running_loop(), 0
    urls = []
    for number in range(1, hosts + 1):
        sock = listening(f"127.0.2.{number}", port)
        port = sock.getsockname()[1]
        await loop.create_server(lambda: Neighbour(seen, pages, latency), sock=sock)
        urls.append(f"http://127.0.2.{number}:{port}/")
    print(json.dumps({"urls": urls}), flush=True)
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while await commands.readline():
        print(json.dumps(vars(seen)), flush=True)
        seen.__init__()  # type: ignore[misc]


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
