"""The bench web site: deterministic, in its own process, far faster than any crawler measured on it.

Page i (address `/` for 0, else `/p/i`) is about 30 KB of HTML with 60 links to pages of the same
host: its children in a tree of fan-out 8 (so that a crawl from `/` reaches every page), the rest
spread over the site. `/robots.txt` allows all. With --hosts K there are K such sites on 127.0.0.1
to 127.0.0.K (250 in a row), each with pages/K pages; links stay on their host.

With --etags pages have an ETag, and whoever sends it back is answered 304; --cards makes them smaller or larger.

    /__count   {"pages": distinct pages served, "hits": …, "robots": …, "bytes": …, "first_at": …, "last_at": …,
               "open": requests that wait for their answer}
    /__hits    {"http://127.0.0.1:port": [hits of page 0, of page 1, …], …}
    /__times   {"http://127.0.0.1:port": [when each page was asked for], …}
    /__reset   forgets all counts         /__mark   forgets first_at only
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import socket
import sys
import time
from pathlib import Path

FAN = 8
CARDS = 56  # plus 4 links of the navigation
WORDS = [
    *("light", "copper", "harbour", "window", "basket", "silver", "morning", "lantern", "meadow"),
    *("engine", "paper", "violet", "anchor", "timber", "market", "saddle", "winter", "candle"),
    *("garden", "pocket", "river", "marble", "button", "thread", "falcon", "signal"),
]


def phrase(rng: random.Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)).capitalize()


def address(page: int) -> str:
    return f"/p/{page}" if page else "/"


class Host:
    """The pages of one host, put together from parts made once per page."""

    def __init__(self, origin: str, pages: int, etags: bool = False, cards: int = CARDS) -> None:
        self.etags = etags
        self.linked = cards  # on every page, its children among them
        self.origin = origin
        self.pages = pages
        self.hits = [0] * pages
        self.times: list[float] = []
        rng = random.Random(pages)
        order = list(range(pages))
        rng.shuffle(order)
        self.offsets = [rng.randrange(pages) for _ in range(pages)]
        self.names = [phrase(rng, 3) for _ in range(pages)]
        self.cards = [self.card(page, rng) for page in range(pages)]
        mixed = [self.cards[page] for page in order]
        while len(mixed) < pages + cards:  # so that a slice never runs over the end
            mixed += mixed
        self.mixed = mixed[: pages + cards]
        self.nav = "".join(f'<li><a href="{address(n % pages)}">Section {n}</a></li>' for n in range(4))
        self.foot = b"</ul></main><footer><p>Bench site, all prices are made up.</p></footer></body></html>"

    def card(self, page: int, rng: random.Random) -> bytes:
        """A link to a page as other pages show it: mostly rooted, some absolute, some relative."""
        href = address(page)
        if page and page % 16 == 0:
            href = self.origin + href
        elif page and page % 16 == 1:
            href = ".." + href
        return (
            f'<li class="card" data-id="{page}"><div class="card-body"><h3 class="name">'
            f'<a class="card-link" href="{href}" title="{self.names[page]}">{self.names[page]}</a></h3>'
            f'<p class="text">{phrase(rng, 26)}.</p><span class="price">£{price(page)}</span>'
            f'<ul class="tags"><li>{rng.choice(WORDS)}</li><li>{rng.choice(WORDS)}</li></ul>'
            f'<img src="/img/{page}.jpg" alt="{self.names[page]}" width="120" height="90"></div></li>\n'
        ).encode()

    def response(self, page: int) -> bytes:
        head = (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{self.names[page]} '
            f'– bench</title><link rel="stylesheet" href="/style.css"></head><body><nav><ul>{self.nav}</ul>'
            f'</nav><main><div class="detail" id="item-{page}"><h1>{self.names[page]} no. {page}</h1>'
            f'<span class="price">£{price(page)}</span><p class="sku">SKU-{page:07d}</p></div>'
            f'<ul class="cards">\n'
        ).encode()
        first = FAN * page + 1
        children = self.cards[first : first + FAN]
        start = self.offsets[page]
        body = b"".join((head, *children, *self.mixed[start : start + self.linked - len(children)], self.foot))
        tag = b"ETag: %b\r\n" % etag(page) if self.etags else b""
        return b"HTTP/1.1 200 OK\r\n%b%bContent-Length: %d\r\n\r\n%b" % (HTML, tag, len(body), body)


HTML = b"Server: bench\r\nContent-Type: text/html; charset=utf-8\r\nConnection: keep-alive\r\n"


def etag(page: int) -> bytes:
    """Pages never change, so their number will do."""
    return b'"page-%d"' % page


def price(page: int) -> str:
    return f"{page * 37 % 9000 / 100 + 5:.2f}"


def plain(body: bytes, status: bytes = b"200 OK", kind: bytes = b"text/plain") -> bytes:
    head = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (status, kind, len(body))
    return head + body


def as_json(value: object) -> bytes:
    return plain(json.dumps(value).encode(), kind=b"application/json")


ROBOTS = plain(b"User-agent: *\nDisallow: /private/\nAllow: /\n")
MISSING = plain(b"not here\n", b"404 Not Found")


class Site:
    """All hosts and what was asked of them."""

    def __init__(self, hosts: list[Host], latency: float) -> None:
        self.hosts = hosts
        self.latency = latency
        self.robots = 0
        self.bytes = 0  # sent
        self.open = 0  # requests that wait for their answer
        self.first_at = 0.0
        self.last_at = 0.0

    def answer(self, host: Host, path: bytes, request: bytes = b"") -> bytes:
        page = 0 if path == b"/" else int(path[3:]) if path[:3] == b"/p/" and path[3:].isdigit() else -1
        if 0 <= page < host.pages:
            host.hits[page] += 1
            self.last_at = time.time()
            self.first_at = self.first_at or self.last_at
            host.times.append(self.last_at)
            if host.etags and etag(page) in request:
                return b"HTTP/1.1 304 Not Modified\r\nETag: %b\r\n\r\n" % etag(page)
            return host.response(page)
        if path == b"/robots.txt":
            self.robots += 1
            return ROBOTS
        return self.control(path)

    def control(self, path: bytes) -> bytes:
        if path == b"/__count":
            return as_json(self.count())
        if path == b"/__hits":
            return as_json({host.origin: host.hits for host in self.hosts})
        if path == b"/__times":
            return as_json({host.origin: host.times for host in self.hosts})
        if path == b"/__mark":
            self.first_at = 0.0
            return plain(b"ok\n")
        if path == b"/__reset":
            self.robots, self.bytes, self.first_at, self.last_at = 0, 0, 0.0, 0.0
            for host in self.hosts:
                host.hits, host.times = [0] * host.pages, []
            return plain(b"ok\n")
        return MISSING

    def count(self) -> dict[str, float]:
        return {
            "pages": sum(n > 0 for host in self.hosts for n in host.hits),
            "hits": sum(sum(host.hits) for host in self.hosts),
            "robots": self.robots,
            "bytes": self.bytes,
            "first_at": self.first_at,
            "last_at": self.last_at,
            "open": self.open,
        }


class Connection(asyncio.Protocol):
    def __init__(self, site: Site, host: Host) -> None:
        self.site = site
        self.host = host
        self.rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        while True:
            request, end, rest = data.partition(b"\r\n\r\n")
            if not end:
                self.rest = data
                return
            self.reply(request.split(b" ", 2)[1], request)
            data = rest

    def reply(self, path: bytes, request: bytes) -> None:
        answer = self.site.answer(self.host, path, request)
        if not path.startswith(b"/__"):
            self.site.bytes += len(answer)
        if self.site.latency and not path.startswith(b"/__"):
            self.site.open += 1
            asyncio.get_running_loop().call_later(self.site.latency, self.write_late, answer)
        else:
            self.write(answer)

    def write_late(self, answer: bytes) -> None:
        self.site.open -= 1
        self.write(answer)

    def write(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)


def listen(address: str, port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((address, port))
    sock.listen(1024)
    return sock


async def serve(
    pages: int, hosts: int, latency: float, port: int, parent: bool, etags: bool, cards: int = CARDS
) -> None:
    loop = asyncio.get_running_loop()
    site = Site([], latency)
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stop.set)
    for number in range(hosts):
        address = f"127.0.{number // 250}.{number % 250 + 1}"
        sock = listen(address, port)
        port = sock.getsockname()[1]
        host = Host(f"http://{address}:{port}", -(-pages // hosts), etags, cards)
        site.hosts.append(host)
        await loop.create_server(lambda host=host: Connection(site, host), sock=sock)
    print(" ".join(host.origin + "/" for host in site.hosts), flush=True)
    if parent:  # whoever started the site keeps its standard input open for as long as it lives
        loop.add_reader(sys.stdin.fileno(), lambda: os.read(0, 65536) or stop.set())
    await stop.wait()


async def fetch_for(url: str, pages: int, seconds: float) -> int:
    """A bare client: how many pages one connection gets in so many seconds."""
    host, port = url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 20)
    count, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        writer.write(b"GET %b HTTP/1.1\r\nHost: bench\r\n\r\n" % address(random.randrange(pages)).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(int(head.rpartition(b"Content-Length: ")[2].split(b"\r\n", 1)[0]))
        count += 1
    writer.close()
    return count


async def measure(pages: int) -> None:
    site = await asyncio.create_subprocess_exec(
        sys.executable, __file__, "--pages", str(pages), "--with-parent", stdin=-1, stdout=-1
    )
    assert site.stdout and site.stdin
    url = (await site.stdout.readline()).decode().split()[0]
    before = cpu_of(site.pid)
    fetched = sum(await asyncio.gather(*(fetch_for(url, pages, 3.0) for _ in range(16))))
    spent = cpu_of(site.pid) - before
    site.stdin.close()
    await site.wait()
    print(f"{fetched / 3.0:,.0f} pages/s to a bare client, {fetched / spent:,.0f} per CPU-second of the site")


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--latency", type=float, default=0.0, metavar="MS", help="before every answer")
    parser.add_argument("--etags", action="store_true", help="answer 304 to whoever has the page")
    parser.add_argument("--cards", type=int, default=CARDS, help="links on a page beside its navigation; from 8 on")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--with-parent", action="store_true", help="end when standard input is closed")
    parser.add_argument("--measure", action="store_true", help="how fast is the site itself?")
    args = parser.parse_args()
    with contextlib.suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    if args.measure:
        asyncio.run(measure(args.pages))
    else:
        latency = args.latency / 1000
        asyncio.run(serve(args.pages, args.hosts, latency, args.port, args.with_parent, args.etags, args.cards))


if __name__ == "__main__":
    main()
