"""Named seen-sets: bytes per URL with a million of them, on every backend, and how fast a second run is told."""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import sys
import time
from collections.abc import Awaitable, Callable

import harness
import queue_redis

sys.path.insert(0, str(harness.ROOT / "tests"))

from servers import postgres

from shoal.core.run import NewRun
from shoal.core.task import Task, digest
from shoal.queue.base import Queue
from shoal.queue.postgres import PostgresQueue
from shoal.queue.redis import RedisQueue
from shoal.queue.sqlite import SqliteQueue

ADD = 1_000
SIZE_POSTGRES = "SELECT pg_total_relation_size('{s}.seen_entries')"
SIZE_SQLITE = "SELECT sum(pgsize) FROM dbstat WHERE name = 'seen_entries'"


def tasks(first: int) -> list[Task]:
    return [Task(f"u{n}", f"h{n % 10}.example", digest(f"u{n}")) for n in range(first, first + ADD)]


async def fill(queue: Queue, name: str, count: int) -> tuple[float, int]:
    """Add so many to a new run of the set; the seconds it took, and how many were seen."""
    run = await queue.start_run(NewRun("bench", name, name, seen_set="bench"))
    began, seen = time.monotonic(), 0
    for first in range(0, count, ADD):
        seen += (await queue.add(run.id, tasks(first))).count("seen")
    return time.monotonic() - began, seen


async def report(kind: str, queue: Queue, count: int, size: Callable[[], Awaitable[int]]) -> None:
    adding, _ = await fill(queue, "first", count)
    bytes_ = await size()
    telling, seen = await fill(queue, "second", count)
    assert seen == count, "a URL was taken twice"
    print(
        f"{kind:11} {bytes_ / count:5.1f} bytes per URL, added {count / adding:,.0f}/s, told {count / telling:,.0f}/s",
        flush=True,
    )


async def measure(count: int) -> None:
    with harness.scratch() as folder:
        path = folder / "queue.db"
        queue = await SqliteQueue.open(str(path), synchronous="normal")

        async def of_sqlite() -> int:
            with sqlite3.connect(path) as db:
                return int(db.execute(SIZE_SQLITE).fetchone()[0])

        await report("SQLite", queue, count, of_sqlite)
        await queue.close()
        with queue_redis.server(folder) as url:
            redis = await RedisQueue.open(url)

            async def of_redis() -> int:
                """What the buckets of the set take, by a sample of them and the number there is."""
                engine = redis._engine
                level, split = (int(it or 0) for it in await engine.read("HMGET", "seen_set:1", "level", "split"))
                buckets = 2**level + split
                sample = range(0, buckets, max(1, buckets // 2_000))
                sizes = [await engine.plain("MEMORY", "USAGE", f"{engine.prefix}seen_set:1:{n}") for n in sample]
                return round(sum(size or 0 for size in sizes) / len(sizes) * buckets)

            await report("Redis", redis, count, of_redis)
            await redis.close()
    server = postgres.Server(durable=True)
    try:
        pg = await PostgresQueue.open(server.url("bench"))

        async def of_postgres() -> int:
            return int(await pg._engine.value(SIZE_POSTGRES))

        await report("PostgreSQL", pg, count, of_postgres)
        await pg.close()
    finally:
        server.remove()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=1_000_000)
    asyncio.run(measure(parser.parse_args().urls))
