"""WalledSite: the shop behind a server; a wall comes up and goes away, for all or for some visitors."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from walled.pages import ODD, WALLS, Answer, Wall, good

REASONS = {200: "OK", 302: "Found", 404: "Not Found"}


@dataclass(frozen=True)
class Visitor:
    path: str
    is_browser: bool
    is_by_proxy: bool


class WalledSite:
    """Pages `/product/N`, `/category/N`; odd ones by their own paths."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.address = address
        self.wall: Wall | None = None
        self._last_wall: Wall = WALLS["captcha"]
        self.is_walled: Callable[[Visitor], bool] = lambda visitor: True  # while there is a wall
        self.odd: dict[str, str] = {}  # by path: the name of what is there
        self.everywhere = ""  # what every page is
        self.hits: Counter[str] = Counter()  # by path
        self.walls = 0  # block pages given
        self.goods = 0
        self.on_page: Callable[[WalledSite], None] = lambda site: None  # before each answer
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    @property
    def host(self) -> str:
        return f"{self.address}:{self.port}"

    def url(self, path: str) -> str:
        return f"http://{self.host}{path}"

    def raise_wall(self, name: str) -> None:
        self.wall = self._last_wall = WALLS[name]

    def drop_wall(self) -> None:
        self.wall = None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._answer, self.address, self.port)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                path = head.split(" ")[1]
                is_browser = "sec-fetch-mode" in head or "sec-ch-ua" in head
                answer = self._page(path, Visitor(path.partition("?")[0], is_browser, "\r\nvia:" in head))
                lines = [f"HTTP/1.1 {answer.status} {REASONS[answer.status]}", f"content-length: {len(answer.body)}"]
                named = {"content-type": "text/html; charset=utf-8"} | answer.headers
                lines += [f"{name}: {value}" for name, value in named.items()]
                if close := "connection: close" in head:
                    lines.append("connection: close")
                writer.write("\r\n".join([*lines, "", ""]).encode() + answer.body)
                await writer.drain()
                if close:
                    break
        writer.close()

    def _page(self, path: str, visitor: Visitor) -> Answer:
        if not path.startswith(("/product/", "/category/", "/consent", "/account/", *self.odd)):
            return Answer(b"", 404)
        self.on_page(self)
        plain = visitor.path
        self.hits[plain] += 1
        wall = self.wall
        if wall is not None and self.is_walled(visitor):
            self.walls += 1
            return wall(plain, self.walls)
        if plain.startswith(("/consent", "/account")) and plain not in self.odd:  # the wall has gone meanwhile
            self.walls += 1
            return self._last_wall(plain, self.walls)
        self.goods += 1
        if name := self.odd.get(plain, self.everywhere):
            return ODD[name](plain)
        return good(plain)


@contextmanager
def walled_site(address: str = "127.0.0.1") -> Iterator[WalledSite]:
    site = WalledSite(address)
    try:
        yield site
    finally:
        site.close()
