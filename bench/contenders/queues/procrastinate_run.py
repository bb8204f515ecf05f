"""Procrastinate: add N jobs in batches of 1,000, then one worker; its result is the status."""

from __future__ import annotations

import asyncio
import os
import sys
import time

import procrastinate
from report import report

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_POSTGRES"], max_size=10))


@app.task(name="page", queue="bench")
async def page(n: int, url: str) -> None:
    return None


async def main() -> None:
    count, concurrency = int(sys.argv[1]), int(sys.argv[2])
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        adding = 0.0
        for first in range(0, count, 1000):
            jobs = [{"n": n, "url": f"http://host/p/{n}"} for n in range(first, min(first + 1000, count))]
            start = time.perf_counter()
            await page.batch_defer_async(*jobs)
            adding += time.perf_counter() - start
        start, cpu = time.perf_counter(), time.process_time()
        await app.run_worker_async(
            wait=False, concurrency=concurrency, install_signal_handlers=False, listen_notify=False
        )
        seconds = time.perf_counter() - start
        report(count, adding, count / seconds, (time.process_time() - cpu) / count)


asyncio.run(main())
