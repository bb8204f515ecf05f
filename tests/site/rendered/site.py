"""RenderedSite: a server of tricks and of pages made by scripts, and the canary beside it."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from html import escape
from urllib.parse import unquote, urlsplit

from rendered.tricks import TRICKS, Trick

SITE_ADDRESS = "127.0.5.1"
ITEMS = 60
# Each page has a heading of its own: crawlers do not follow the links of pages that are all the same.
_CATALOGUE = """<!doctype html><title>catalogue</title><h1>PATH</h1><ul id=list></ul><button id=more>more</button>
<a href=/page/2>next</a>
<script>
  let page = 0;
  const load = async () => {
    const items = await (await fetch(`/api/items?page=${page++}`)).json();
    for (const item of items) {
      const node = document.createElement("li"); node.className = "item"; node.id = `item-${item}`;
      node.style.height = "200px"; node.textContent = `item ${item}`; list.append(node);
    }
    if (!items.length) more.remove();
  };
  more.onclick = load; load();
  if (location.pathname.startsWith("/page/")) addEventListener("scroll", () =>
    { if (innerHeight + scrollY >= document.body.scrollHeight - 5) load(); });
  document.cookie = "seen=1"; console.error("a mistake of the page");
</script>"""
_ODD: dict[str, tuple[str, ...]] = {  # text, kind, status, headers
    "/moved": ("", "text/html", "302 Found", "Location: /page/1", "Set-Cookie: moved=yes; Path=/"),
    "/nothing": ("", "text/html", "204 No Content"),
    "/to-ftp": ("", "text/html", "302 Found", "Location: ftp://files.example/"),
    "/pictures": (
        "<style>@font-face {font-family: f; src: url(/font.woff2)} h1 {font-family: f; background: url(/back.png)}"
        "</style><h1>pictures</h1><img src=/image.png><video src=/film.mp4 autoplay></video>"
        "<script src=/last.js></script>",
        "text/html",
    ),
    "/form": ("<form method=post action=/to-posted><input id=q name=q></form>", "text/html"),
    "/to-posted": ("", "text/html", "303 See Other", "Location: /posted"),
    "/links": ("<a id=private href=/private/1>private</a> <a id=silent href=/silent>silent</a>", "text/html"),
    "/refreshed": ("<meta http-equiv=refresh content=0><h1>again</h1>", "text/html"),
}
_SEARCH = """<!doctype html><form onsubmit="result.textContent = q.value; return false">
<input id=q name=q></form><p id=result></p>"""


class RenderedSite:
    def __init__(self, address: str = SITE_ADDRESS) -> None:
        self.address = address
        self.port = self.canary_port = self.udp_port = 0
        self.requests: list[tuple[str, str]] = []  # path, and the headers as they came
        self.reached: Counter[str] = Counter()  # what came to the canary: paths, "connection", "datagram"
        self._resolved: Counter[str] = Counter()

    @property
    def origin(self) -> str:
        return f"http://{self.address}:{self.port}"

    @property
    def canary(self) -> str:
        return f"http://127.0.0.1:{self.canary_port}"

    def url(self, trick: Trick) -> str:
        return f"{self.origin}/trick/{TRICKS.index(trick)}"

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """Names of this test, some of which lie; numbers are themselves."""
        self._resolved[host] += 1
        if host == "rebound.example":  # public when it is first asked for, and never again
            return ["192.88.98.1"] if self._resolved[host] == 1 else ["127.0.0.1"]
        if host.endswith((".example", "localhost")):
            return ["127.0.0.1"]
        return [host]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            path = head.split(" ")[1]
            length = next((line[16:] for line in head.lower().splitlines() if line.startswith("content-length: ")), "0")
            self.requests.append((path, head + (await reader.readexactly(int(length))).decode()))
            await self._send(path, writer)
        writer.close()

    async def _send(self, path: str, writer: asyncio.StreamWriter) -> None:
        bare = urlsplit(path).path
        if bare.startswith("/trick/"):
            trick = TRICKS[int(bare.removeprefix("/trick/"))]
            headers = [self._filled(header) for header in trick.headers]
            await _reply(writer, self._filled(trick.html), "text/html; charset=utf-8", trick.status, *headers)
        elif bare == "/api/items":
            first = int(path.partition("page=")[2] or 0) * 20
            await _reply(writer, json.dumps(list(range(first, min(first + 20, ITEMS)))), "application/json")
        elif bare == "/service-worker.js":
            worker = self._filled(
                "fetch('CANARY/service', {mode: 'no-cors'}); onfetch = (e) => fetch('CANARY/caught');"
            )
            await _reply(writer, worker, "text/javascript")
        elif bare == "/endless":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\n\r\n")
            await asyncio.sleep(600)
        elif bare == "/flood":
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/javascript\r\n\r\n")
            while True:
                writer.write(b"/" * 65_536)
                await writer.drain()
        elif bare == "/silent":
            return
        elif bare in _ODD:
            await _reply(writer, *_ODD[bare])
        elif bare == "/search":
            await _reply(writer, _SEARCH, "text/html")
        elif bare == "/data.json":
            await _reply(writer, '{"a": 1}', "application/json")
        elif bare == "/gone":
            await _reply(writer, "<h1>gone</h1>", "text/html", "404 Not Found")
        elif bare == "/robots.txt":
            await _reply(writer, "User-agent: *\nDisallow: /private/\n", "text/plain")
        elif bare == "/to-private":
            await _reply(writer, "<script>location = '/private/1'</script>", "text/html")
        else:
            await _reply(writer, _CATALOGUE.replace("PATH", escape(path)), "text/html; charset=utf-8")

    def _filled(self, text: str) -> str:
        text = text.replace("CANARY_HOST", f"127.0.0.1:{self.canary_port}")
        text = text.replace("CANARY_UDP", f"127.0.0.1:{self.udp_port}").replace("CANARY", self.canary)
        return text.replace("PORT", str(self.canary_port))

    async def watch(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached["connection"] += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b"\r\n\r\n")
            self.reached[unquote(head.decode("latin-1").split(" ")[1])] += 1
            writer.write(b"HTTP/1.1 200 OK\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 0\r\n\r\n")
            await writer.drain()
        writer.close()


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, site: RenderedSite) -> None:
        self._site = site

    def datagram_received(self, data: bytes, addr: object) -> None:
        self._site.reached["datagram"] += 1


@asynccontextmanager
async def rendered_site(address: str = SITE_ADDRESS) -> AsyncIterator[RenderedSite]:
    site, loop = RenderedSite(address), asyncio.get_running_loop()
    own = await asyncio.start_server(site.answer, address, 0)
    canary = await asyncio.start_server(site.watch, "127.0.0.1", 0)
    datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(site), ("127.0.0.1", 0))
    site.port = own.sockets[0].getsockname()[1]
    site.canary_port = canary.sockets[0].getsockname()[1]
    site.udp_port = datagrams.get_extra_info("sockname")[1]
    try:
        yield site
    finally:
        own.close()
        canary.close()
        datagrams.close()


async def _reply(writer: asyncio.StreamWriter, text: str, kind: str, status: str = "200 OK", *headers: str) -> None:
    body = text.encode()
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *headers,
    ]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()
