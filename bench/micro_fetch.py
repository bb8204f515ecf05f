"""Pages per CPU-second of the HTTP fetcher alone: 30 KB pages from a server in another process.

python bench/micro_fetch.py [pages] [concurrency]
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import sys
import time
from multiprocessing.connection import Connection

import uvloop

from shoal.core.page import Request
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher

BODY = (b"<p>All work and no play makes a dull page.</p>\n" * 700)[: 30 * 1024]
ANSWER = (
    b"HTTP/1.1 200 OK\r\nServer: bench\r\nDate: Mon, 02 Nov 2026 10:00:00 GMT\r\n"
    b"Content-Type: text/html; charset=utf-8\r\nCache-Control: max-age=60\r\nVary: Accept-Encoding\r\n"
    b'ETag: "abc"\r\nContent-Length: %d\r\n\r\n' % len(BODY)
) + BODY


class Site(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.transport.write(ANSWER * data.count(b"\r\n\r\n"))  # type: ignore[attr-defined]


def serve(pipe: Connection) -> None:
    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(Site, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    uvloop.run(main())


async def crawl(port: int, pages: int, concurrency: int) -> tuple[float, float]:
    fetcher = HttpFetcher(
        user_agent="shoal-bench", allow_private=PrivateNetworkPolicy.parse("1"), concurrency=concurrency
    )
    numbers = iter(range(pages))

    async def work() -> None:
        for number in numbers:
            response = await fetcher.fetch(Request(f"http://127.0.0.1:{port}/page/{number}"))
            assert len(response.body) == len(BODY)

    started, cpu = time.perf_counter(), cpu_seconds()
    await asyncio.gather(*(work() for _ in range(concurrency)))
    spent = time.perf_counter() - started, cpu_seconds() - cpu
    await fetcher.close()
    return spent


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    pages, concurrency = (int(text) for text in (*sys.argv[1:], *(5000, 32)[len(sys.argv) - 1 :])[:2])
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    port = ours.recv()
    for loop, run in (("asyncio", asyncio.run), ("uvloop", uvloop.run)) * 2:
        wall, cpu = run(crawl(port, pages, concurrency))
        print(
            f"{loop:8} {pages} pages, {concurrency} at a time: {pages / cpu:7.0f} pages per CPU-second,"
            f" {cpu / pages * 1e6:5.0f} µs CPU per page, {pages / wall:7.0f} pages per second"
        )
    server.terminate()
    server.join()


if __name__ == "__main__":
    main()
