"""MixedSite: a site of which one half is written by the server and the other by scripts; the halves can be swapped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

HALVES = ("left", "right")
ITEMS = 5  # records of a page
_SCRIPT = """<script>
fetch("/api" + location.pathname).then((it) => it.json()).then((page) => {
  for (const name of page.items) { const li = document.createElement("li"); li.className = "item";
    li.textContent = name; document.querySelector("ul").append(li); }
  for (const url of page.next) { const a = document.createElement("a"); a.href = url; a.textContent = url;
    document.querySelector("nav").append(a); }
  document.body.dataset.ready = "yes";
});
</script>"""


class MixedSite:
    """Pages `/left/N` and `/right/N`, N from 1 to `pages`; each links to the next two of its half."""

    def __init__(self, pages: int) -> None:
        self.pages = pages
        self.rendered = "right"  # the half that scripts write
        self.failing = ""  # a half whose plain answers are errors
        self.by_http: Counter[str] = Counter()  # by path: what programs that are no browser asked for
        self.by_browser: Counter[str] = Counter()
        self.order: list[str] = []  # paths, as they were first asked for
        self.port = 0
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def urls(self) -> list[str]:
        return [f"{self.origin}/{half}/{number}" for number in range(1, self.pages + 1) for half in HALVES]

    def swap(self) -> None:
        self.rendered = next(half for half in HALVES if half != self.rendered)
        self.forget_requests()

    def forget_requests(self) -> None:
        self.by_http.clear()
        self.by_browser.clear()
        self.order.clear()

    def pages_until_right(self, half: str) -> int:
        """The number of the last page of a half, in their order, that was fetched in the wrong way alone."""
        right, wrong = (self.by_browser, self.by_http) if half == self.rendered else (self.by_http, self.by_browser)
        paths = [path for path in self.order if path.startswith(f"/{half}/")]
        return max((n for n, path in enumerate(paths, 1) if wrong[path] and not right[path]), default=0)

    def items(self, half: str, number: int) -> list[str]:
        return [f"{half} {number} item {item}" for item in range(ITEMS)]

    def all_items(self) -> list[str]:
        return sorted(item for half in HALVES for n in range(1, self.pages + 1) for item in self.items(half, n))

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):  # the site ends
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                path = head.split(" ")[1]
                status, kind, body = self._page(path, is_browser="sec-fetch-mode" in head or "sec-ch-ua" in head)
                close = "connection: close" in head
                lines = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
                writer.write((lines + ("Connection: close\r\n" if close else "") + "\r\n").encode() + body)
                await writer.drain()
                if close:
                    break
        writer.close()

    def _page(self, path: str, *, is_browser: bool) -> tuple[str, str, bytes]:
        names = path.strip("/").split("/")
        is_api = names[0] == "api"
        half, number = names[-2:] if len(names) >= 2 else ("", "")
        if half not in HALVES or not number.isdecimal():
            return "404 Not Found", "text/plain", b""
        items, following = self.items(half, int(number)), self._next(half, int(number))
        if is_api:
            return "200 OK", "application/json", json.dumps({"items": items, "next": following}).encode()
        if not (self.by_browser[path] or self.by_http[path]):
            self.order.append(path)
        (self.by_browser if is_browser else self.by_http)[path] += 1
        if half == self.failing and not is_browser:
            return "503 Service Unavailable", "text/html", b"<ul></ul>"
        if half == self.rendered:
            return "200 OK", "text/html", _html(path, [], [], _SCRIPT)
        return "200 OK", "text/html", _html(path, items, following, "<script>document.body.dataset.ready = 1</script>")

    def _next(self, half: str, number: int) -> list[str]:
        return [f"/{half}/{n}" for n in (2 * number, 2 * number + 1) if n <= self.pages]


def _html(path: str, items: list[str], following: list[str], script: str) -> bytes:
    listed = "".join(f"<li class=item>{item}" for item in items)
    links = "".join(f"<a href={url}>{url}</a>" for url in following)
    filler = "<p>the same words on every page</p>" * 20
    html = f"<!doctype html><title>{path}</title><h1>{path}</h1>{filler}<ul>{listed}</ul><nav>{links}</nav>{script}"
    return html.encode()


@contextmanager
def mixed_site(pages: int) -> Iterator[MixedSite]:
    site = MixedSite(pages)
    try:
        yield site
    finally:
        site.close()
