"""Claims with many running runs on the same lanes beside claims with one: SQLite, PostgreSQL and Redis.

Both queues are on the same server and are asked in turn, so that whatever else the machine does meets both.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import harness
from queue_redis import server as redis_server

from shoal import app
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.core.task import Outcome, Task, digest
from shoal.queue.base import Queue

sys.path.insert(0, str(harness.ROOT / "tests"))

from servers import postgres

MANY = 300
LANES = 20
BATCH = 100
MAX_RATIO = 5.0
PACES = {"no limits": UNLIMITED_PACE, "with spacing": Pace(0.0001, 0)}


@asynccontextmanager
async def filled(url: str, runs: int, tasks: int, pace: Pace) -> AsyncIterator[Queue]:
    """A queue with so many running runs that share the tasks, all on the same lanes."""
    queue = await app.open_queue(load({"queue": url}))
    lanes = [f"h{n}.example" for n in range(LANES)]
    for number in range(runs):
        run = await queue.start_run(NewRun(scraper="bench", key=f"k{number}", name=f"r{number}"))
        urls = [f"http://{lanes[n % LANES]}/{number}/{n}" for n in range(max(LANES, tasks // runs))]
        added = [Task(url, lanes[n % LANES], digest(url)) for n, url in enumerate(urls)]
        await queue.add(run.id, added, dict.fromkeys(lanes, pace))
    try:
        yield queue
    finally:
        await queue.close()


async def claim_once(queue: Queue) -> float:
    """Seconds of one claim; what it got is given back to the account at once."""
    began = time.perf_counter()
    claim = await queue.claim("bench", BATCH)
    seconds = time.perf_counter() - began
    await queue.settle([Outcome(task=task.id, lease=task.lease, result="done") for task in claim.tasks])
    return seconds


async def compare(one_url: str, many_url: str, claims: int, pace: Pace) -> tuple[list[float], list[float]]:
    tasks = claims * BATCH * 2
    async with filled(one_url, 1, tasks, pace) as one, filled(many_url, MANY, tasks, pace) as many:
        # As workers do (launch/worker_process.py): the collector's look through the modules would be the slowest claim.
        gc.collect()
        gc.freeze()
        gc.set_threshold(200_000, 20, 100)
        pairs = [(await claim_once(one), await claim_once(many)) for _ in range(claims)]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--claims", type=int, default=200)
    parser.add_argument("--backends", default="sqlite,postgres,redis")
    args = parser.parse_args()
    rows = []
    with harness.scratch() as folder, ExitStack() as stack:
        for backend in args.backends.split(","):
            urls = backend_urls(backend, folder, stack)
            for words, pace in PACES.items():
                one, many = asyncio.run(compare(*[f"{url}" for url in urls(words)], args.claims, pace))
                ratio = percentile(many, 0.99) / percentile(one, 0.99)
                verdict = f"≤ {MAX_RATIO:g} ×" + ("" if ratio <= MAX_RATIO else " (missed)")
                rows.append([f"{backend}, {words}", shown(one), shown(many), f"{ratio:.1f} ×", verdict])
                print(rows[-1], flush=True)
    text = harness.table(["claim of 100, p50 / p99", "1 run", f"{MANY} runs", "p99", "target"], rows)
    print(f"\n{text}")
    harness.save("many_runs", {"machine": harness.machine(), "rows": rows}, text)
    return 0


def shown(values: list[float]) -> str:
    return f"{percentile(values, 0.5) * 1e3:.1f} / {percentile(values, 0.99) * 1e3:.1f} ms"


def backend_urls(backend: str, folder: Path, stack: ExitStack):  # type: ignore[no-untyped-def]
    """Two fresh queues for each kind of pace."""
    if backend == "sqlite":
        return lambda words: [str(folder / f"{words}-{runs}".replace(" ", "-")) for runs in (1, MANY)]
    if backend == "redis":
        socket = stack.enter_context(redis_server(folder, "--appendonly", "yes"))
        return lambda words: [f"{socket}?namespace=n{len(words)}x{runs}" for runs in (1, MANY)]
    server = postgres.Server(durable=True)
    stack.callback(server.remove)
    return lambda words: [server.url(f"n{len(words)}x{runs}") for runs in (1, MANY)]


if __name__ == "__main__":
    sys.exit(main())
