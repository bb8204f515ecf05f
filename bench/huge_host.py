"""A host that holds half of five million URLs: what workers and the other hosts notice of it.

A run is filled with the URLs of many hosts and worked on for a while; then as many URLs of one huge host are added to
it, and the same is measured again, with a pace for the huge host and without one. Any queue will do (--queue URL);
without one a file is made and thrown away. Exit code 1 if a worker's memory grows, or claims become slower.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import harness
import psutil

from shoal.app import open_queue
from shoal.config.load import Settings
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.core.task import Outcome, Task, digest
from shoal.queue.base import Queue

HUGE = "huge.example"
PACED = Pace(0.05, 2)  # of the huge host; the others have no limits
BATCH = 1_000
LIMIT = 100  # tasks per claim
WARM_UP = 20  # claims before anything is measured
MEMORY = 8_000_000  # bytes that a worker may grow by
SLOWER = 1.5  # times the median claim without the huge host


def page(lane: str, number: int) -> Task:
    url = f"https://{lane}/catalogue/products/item-{number:09d}"
    return Task(url=url, lane=lane, digest=digest(url))


async def fill(queue: Queue, run: int, pages: range, hosts: int, pace: Pace) -> tuple[float, float]:
    """Add pages, of the huge host if there are no others; how many a second at the beginning and at the end."""
    marks, count = [(time.monotonic(), pages.start)], len(pages)
    for first in range(pages.start, pages.stop, BATCH):
        numbers = range(first, min(first + BATCH, pages.stop))
        tasks = [page(f"h{number % hosts}.example" if hosts else HUGE, number) for number in numbers]
        await queue.add(run, tasks, {task.lane: pace for task in tasks})
        if numbers[-1] % (count // 10 or 1) < BATCH:
            marks.append((time.monotonic(), numbers[-1] + 1))
    rates = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(marks) if b[1] > a[1]]
    return rates[0], rates[-1]


async def work(url: str, others: int) -> None:
    """Claim and settle until so many tasks of other hosts are done; says what that cost."""
    queue = await open_queue(Settings(queue=url))
    this = psutil.Process()
    waits, counts = list[float](), {True: 0, False: 0}
    begin_memory, began, cpu = 0, 0.0, 0.0
    while len(waits) <= WARM_UP or counts[False] < others:
        if len(waits) == WARM_UP:
            begin_memory, began, cpu = this.memory_info().rss, time.monotonic(), time.process_time()
            counts = {True: 0, False: 0}
        before = time.monotonic()
        claim = await queue.claim("bench", LIMIT)
        waits.append(time.monotonic() - before)
        for task in claim.tasks:
            counts[task.lane == HUGE] += 1
        await queue.settle([Outcome(task.id, task.lease, "done", records=(b"{}",)) for task in claim.tasks])
    told = {
        "seconds": time.monotonic() - began,
        "cpu": time.process_time() - cpu,
        "huge": counts[True],
        "others": counts[False],
        "median": harness.quantile(waits[WARM_UP:], 0.5),
        "p99": harness.quantile(waits[WARM_UP:], 0.99),
        "begin_memory": begin_memory,
        "end_memory": this.memory_info().rss,
    }
    await queue.close()
    print(json.dumps(told))


def worked(url: str, others: int) -> dict[str, Any]:
    argv = [sys.executable, __file__, "--queue", url, "--work", str(others)]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


async def measure(url: str, given: argparse.Namespace) -> list[dict[str, Any]]:
    queue = await open_queue(Settings(queue=url))
    run = (await queue.start_run(NewRun(scraper="huge", key="huge", name="huge"))).id
    half = given.urls // 2
    filled = await fill(queue, run, range(half), given.hosts, UNLIMITED_PACE)
    rows = [{"queue": "without it", "added": filled, **worked(url, given.tasks), "stored": stored(url, given.server)}]
    if given.spread:
        filled = await fill(queue, run, range(half, 2 * half), given.hosts, UNLIMITED_PACE)
        row = {"queue": "spread over others", "added": filled, **worked(url, given.tasks)}
        return [*rows, {**row, "stored": stored(url, given.server)}]
    filled = await fill(queue, run, range(half), 0, PACED)
    for name, pace in (("with it, paced", PACED), ("with it, no pace", UNLIMITED_PACE)):
        await queue.add(run, [page(HUGE, half + len(rows))], {HUGE: pace})  # the last pace that is given counts
        rows.append({"queue": name, "added": filled, **worked(url, given.tasks), "stored": stored(url, given.server)})
    await queue.close()
    return rows


def stored(url: str, server: int) -> int:
    """The memory of the server, or the size of the file."""
    if server:
        return harness.tree(server)[0]
    path = Path(url.removeprefix("sqlite:///"))
    return path.stat().st_size if path.exists() else 0


def line(row: dict[str, Any]) -> list[str]:
    total = row["huge"] + row["others"]
    return [
        row["queue"],
        f"{row['added'][0]:,.0f} → {row['added'][1]:,.0f}",
        f"{row['median'] * 1000:.2f}",
        f"{row['p99'] * 1000:.2f}",
        f"{row['others'] / row['seconds']:,.0f}",
        f"{row['cpu'] / total * 1e6:.0f}",
        f"{row['huge'] / total:.1%}",
        f"{row['begin_memory'] / 1e6:.1f} → {row['end_memory'] / 1e6:.1f}",
        f"{row['stored'] / 1e6:,.0f}",
    ]


HEAD = [
    "", "added per s, first → last", "claim, median (ms)", "99 % (ms)", "other hosts' tasks per s", "CPU per task (µs)",
    "of the huge host", "worker (MB)", "server or file (MB)",
]  # fmt: skip


def problems(rows: list[dict[str, Any]]) -> list[str]:
    grown = [row["queue"] for row in rows if row["end_memory"] - row["begin_memory"] > MEMORY]
    slower = [row["queue"] for row in rows if row["median"] > SLOWER * rows[0]["median"]]
    return [f"a worker's memory grows {name}" for name in grown] + [f"claims are slower {name}" for name in slower]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queue", default="", help="any queue without a run `huge`; it is left there")
    options.add_argument("--server", type=int, default=0, help="process id of the queue's server, for its memory")
    options.add_argument("--urls", type=int, default=5_000_000)
    options.add_argument("--hosts", type=int, default=10_000, help="other hosts, which hold the other half")
    options.add_argument("--tasks", type=int, default=100_000, help="of other hosts that are worked on each time")
    options.add_argument("--spread", action="store_true", help="to compare: as many URLs, and no huge host")
    options.add_argument("--work", type=int, default=0, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        asyncio.run(work(given.queue, given.work))
        return
    if 3 * (given.tasks + WARM_UP * LIMIT) > given.urls // 2:
        options.error("--urls must be more than six times --tasks: the other hosts would run out of work")
    with harness.scratch() as folder:
        url = given.queue or f"sqlite:///{folder / 'queue.db'}"
        rows = asyncio.run(measure(url, given))
    text = harness.table(HEAD, [line(row) for row in rows])
    print(text)
    harness.save("huge_host", {"urls": given.urls, "queue": url.partition(":")[0], "rows": rows}, text)
    if found := problems(rows):
        raise SystemExit("; ".join(found))


if __name__ == "__main__":
    main()
