"""The response cache: what a hit and a miss cost per page, and a cache of a million entries within its bound."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import harness
import queue_redis

sys.path.insert(0, str(harness.ROOT / "tests"))

from servers import postgres

from shoal.config.load import load
from shoal.core.page import Request, Response
from shoal.launch.response_cache import ResponseCache
from shoal.queue.base import NewCacheEntry, Queue
from shoal.queue.postgres import PostgresQueue
from shoal.queue.redis import RedisQueue
from shoal.queue.sqlite import SqliteQueue

BODY = ("<html><body>" + "".join(f'<p class="c{n % 7}">Item {n} costs {n * 37 % 991}</p>' for n in range(600))).encode()
DATA = os.urandom(200)
BATCH = 50_000


class Site:
    """Answers at once: what is measured is the cache alone."""

    async def fetch(self, request: Request) -> Response:
        return Response(request.url, 200, (("content-type", "text/html"),), BODY)

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


@contextlib.asynccontextmanager
async def opened(kind: str, folder: Path) -> AsyncIterator[Queue]:
    if kind == "sqlite":
        queue: Queue = await SqliteQueue.open(str(folder / "queue.db"))
        yield queue
        await queue.close()
    elif kind == "redis":
        with queue_redis.server(folder) as url:
            queue = await RedisQueue.open(url)
            yield queue
            await queue.close()
    else:
        server = postgres.Server(durable=True)
        try:
            queue = await PostgresQueue.open(server.url("bench"))
            yield queue
            await queue.close()
        finally:
            server.remove()


async def per_page(kind: str, queue: Queue, folder: Path, pages: int) -> None:
    settings = load({"queue": str(folder / "queue.db"), "cache": "1h"}, env={})
    fetcher = ResponseCache(queue, settings).around(Site(), settings)
    for name, asked in (("no cache", 0.0), ("miss", 3600.0), ("hit", 3600.0)):
        began, cpu = time.monotonic(), time.process_time()
        for number in range(pages):
            response = await fetcher.fetch(Request(f"http://bench.test/{number}", cache=asked))
            assert response.cache == ("" if name == "no cache" else name)
        took, cpu = time.monotonic() - began, time.process_time() - cpu
        print(
            f"{kind:9} {name:9} {took / pages * 1e6:7.0f} µs a page, {cpu / pages * 1e6:6.0f} µs of CPU here"
            f" (pages of {len(BODY) / 1000:.0f} kB)",
            flush=True,
        )


async def many(kind: str, queue: Queue, folder: Path, entries: int) -> None:
    """Put more than there is room for: the rate must not fall as it fills, nor the size grow beyond its bound."""
    await queue.cache_clear()
    bound = int(entries * 0.75) * 600  # some of them push others out
    rates: list[float] = []
    for first in range(0, entries, BATCH):
        began = time.monotonic()
        for number in range(first, min(first + BATCH, entries)):
            host = f"h{number % 100}.test"
            entry = NewCacheEntry(number.to_bytes(16, "big"), host, f"http://{host}/page/{number}", DATA)
            await queue.cache_put(entry, bound)
        rates.append(min(BATCH, entries - first) / (time.monotonic() - began))
    stats = await queue.cache_stats()
    assert stats.bytes <= bound, "it has outgrown its bound"
    on_disk = sum(it.stat().st_size for it in folder.glob("queue.db-cache*"))
    disk = f", {on_disk / 1e6:,.0f} MB on disk" if on_disk else ""
    print(
        f"{kind:9} {entries:,} puts: {rates[0]:,.0f}/s at first, {rates[-1]:,.0f}/s at last; {stats.entries:,} entries,"
        f" {stats.bytes / 1e6:,.0f} of {bound / 1e6:,.0f} MB{disk}",
        flush=True,
    )


async def measure(kinds: list[str], pages: int, entries: int) -> None:
    for kind in kinds:
        with harness.scratch() as folder:
            async with opened(kind, folder) as queue:
                await per_page(kind, queue, folder, pages)
                await many(kind, queue, folder, entries)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", choices=("sqlite", "redis", "postgres"), action="append", default=[])
    parser.add_argument("--pages", type=int, default=3_000)
    parser.add_argument("--entries", type=int, default=1_400_000, help="puts; some push others out")
    given = parser.parse_args()
    asyncio.run(measure(given.queue or ["sqlite"], given.pages, given.entries))
