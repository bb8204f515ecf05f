"""An index of many sitemaps into each queue: URLs per second beside bare adding, memory, and peers that only read them.

Pages are on a host that does not exist, at the usual pace of one a second, so that next to nothing is fetched of them.
Scrapy and Crawlee keep no queue here: what they do is fetch, unpack and parse. They are given ten of the files at
most, for Crawlee does not read all of them within eight minutes: URLs per CPU second compare all the same, and so does
memory.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TypeVar

import harness
import psutil

sys.path.insert(0, str(harness.ROOT / "tests"))

from servers import postgres
from servers.redis import own_server

from shoal import app
from shoal.config.load import load
from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.queue.base import Queue
from shoal.sources.start_task import start_task

T = TypeVar("T")

PAGES_AT = "http://pages.invalid"
NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'
BATCH = 1_000
PEER_FILES = 10  # of the index, at most
MEMORY_LIMIT, RATE_LIMIT = 150_000_000, 0.7  # what is claimed
CONTENDERS = harness.BENCH / "contenders" / "sitemaps"


def url_of(file: int, entry: int) -> str:
    return f"{PAGES_AT}/catalogue/section-{file}/product-{entry}.html"


@cache
def first_sitemap(entries: int) -> bytes:
    body = "".join(f"<url><loc>{url_of(0, n)}</loc><lastmod>2024-05-31</lastmod></url>\n" for n in range(entries))
    return f"<?xml version='1.0' encoding='UTF-8'?>\n<urlset {NAMESPACE}>\n{body}</urlset>\n".encode()


def sitemap(file: int, entries: int) -> bytes:
    return first_sitemap(entries).replace(b"/section-0/", b"/section-%d/" % file)


@contextlib.contextmanager
def served(files: int, entries: int) -> Iterator[str]:
    """The URL of the index, for as long as the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            name = self.path.strip("/")
            if name == "sitemap.xml":
                place = f"http://{self.headers['host']}"
                listed = "".join(f"<sitemap><loc>{place}/{n}.xml</loc></sitemap>" for n in range(files))
                body = f"<sitemapindex {NAMESPACE}>{listed}</sitemapindex>".encode()
            else:
                body = sitemap(int(name.removesuffix(".xml")), entries) if name.endswith(".xml") else b""
            self.send_response(200 if body else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *about: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/sitemap.xml"
    finally:
        server.shutdown()


async def bare_rate(queue: Queue, files: int, entries: int) -> float:
    """URLs per second that a program adds which has them already."""
    run = (await queue.start_run(NewRun("bare", "bare", name="bare"))).id
    seconds = 0.0
    for file in range(files):
        for first in range(0, entries, BATCH):
            tasks = [start_task(url_of(file, n)) for n in range(first, min(first + BATCH, entries))]
            began = time.perf_counter()
            await queue.add(run, tasks, {tasks[0].lane: Pace(1.0, 2)})
            seconds += time.perf_counter() - began
    return files * entries / seconds


async def crawl(queue: Queue, url: str, place: str, total: int, folder: Path) -> tuple[float, int, float]:
    """Seconds until all are in the queue, the highest memory of a worker, and processor seconds of all of them."""
    argv = [str(harness.SHOAL), "run", url, "-f", "title=h1::text", "-o", "out.csv", "--allow-private"]
    argv += ["--scope", "any", "--workers", "1", "--queue", place]
    log = (folder / "log.txt").open("wb")
    process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log, start_new_session=True)
    began, first, peak, cpu = time.perf_counter(), 0.0, 0, 0.0
    try:
        while True:
            await asyncio.sleep(0.2)
            if process.poll() is not None:
                raise SystemExit((folder / "log.txt").read_text()[-2000:])
            for child in psutil.Process(process.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    peak = max(peak, child.memory_info().rss)
                    cpu = max(cpu, sum(child.cpu_times()[:2]))
            runs = await queue.runs(states=("running",), limit=1)
            seen = (await queue.stats(runs[0].id)).seen if runs else 0
            first = first or (time.perf_counter() if seen > 1 else 0.0)
            if seen >= total:
                return time.perf_counter() - (first or began), peak, cpu
    finally:
        harness.kill_group(process.pid)
        process.wait()
        log.close()


@contextlib.contextmanager
def new_queue(name: str) -> Iterator[str]:
    """The URL of a queue that nobody has used: what one measurement leaves behind is no burden to the other."""
    if name == "sqlite":
        with harness.scratch() as folder:
            yield f"sqlite:///{folder}/queue.db"
    elif name == "redis":
        with own_server() as redis:
            yield redis.url("bench")
    else:
        server = postgres.Server(durable=True)
        try:
            yield server.url("bench")
        finally:
            server.remove()


async def with_queue(name: str, act: Callable[[Queue, str], Awaitable[T]]) -> T:
    with new_queue(name) as place:
        queue = await app.open_queue(load({"queue": place}))
        try:
            return await act(queue, place)
        finally:
            await queue.close()


async def measure(name: str, files: int, entries: int) -> bool:
    async def read(queue: Queue, place: str) -> tuple[float, int, float]:
        with served(files, entries) as url, harness.scratch() as folder:
            return await crawl(queue, url, place, files * entries + files + 1, folder)

    bare = await with_queue(name, lambda queue, _: bare_rate(queue, files, entries))
    seconds, peak, cpu = await with_queue(name, read)
    rate, urls = files * entries / seconds, files * entries
    kept = rate >= RATE_LIMIT * bare and peak < MEMORY_LIMIT
    print(
        f"{name:9} {urls:>10,} URLs in {seconds:6.1f} s: {rate:8,.0f}/s, {rate / bare:4.0%} of bare adding"
        f" ({bare:,.0f}/s); {urls / max(cpu, 0.01):8,.0f} per CPU second; worker at most {peak / 1e6:.0f} MB"
        f"  {'ok' if kept else 'MISSED'}",
        flush=True,
    )
    return kept


def measure_peer(name: str, files: int, entries: int) -> None:
    python = Path(os.environ.get("BENCH_PEERS", harness.PEERS))
    if not python.exists():
        print(f"{name}: bench/.peers is not there; bench/peers.sh makes it")
        return
    with served(files, entries) as url, harness.scratch() as folder:
        cost = harness.measured([str(python), str(CONTENDERS / f"{name}_sitemaps.py"), url], cwd=folder, timeout=240)
    urls = files * entries
    if cost.code or f"{urls}" not in cost.words.replace(",", ""):
        print(f"{name:9} did not read all: {cost.words[-500:]}")
        return
    print(
        f"{name:9} {urls:>10,} URLs in {cost.wall:6.1f} s: {urls / cost.wall:8,.0f}/s, read only, {files} files;"
        f" {urls / cost.cpu:8,.0f} per CPU second; at most {cost.rss / 1e6:.0f} MB",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100)
    parser.add_argument("--entries", type=int, default=50_000, help="URLs of each file")
    parser.add_argument("--only", choices=("sqlite", "redis", "postgres", "peers"))
    given = parser.parse_args()
    kept = True
    for name in ("sqlite", "redis", "postgres"):
        if given.only in (None, name):
            kept &= asyncio.run(measure(name, given.files, given.entries))
    if given.only in (None, "peers"):
        for name in ("scrapy", "crawlee"):
            measure_peer(name, min(given.files, PEER_FILES), given.entries)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
