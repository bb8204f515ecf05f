"""A run of 100,000 hosts is cancelled, brought back, cancelled and removed: how long others wait for that.

Another process claims and settles pages of a run of its own all the while, some of them on the same hosts. Any
queue will do (--queue URL); without one a file is made and thrown away. Exit code 1 if somebody waited too long.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import harness

from shoal.app import open_queue
from shoal.config.load import Settings
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Outcome, Task, digest
from shoal.queue.base import Queue

BATCH = 2_000
SHARED = 200  # hosts that the other run works on, too
QUIET = 3.0  # seconds before anything happens, to compare with
MOST = 0.05  # seconds that anybody may wait


def page(run: str, number: int, hosts: int) -> Task:
    lane = f"h{number % hosts}.example"
    url = f"http://{lane}/{run}/{number}"
    return Task(url=url, lane=lane, digest=digest(url))


async def fill(queue: Queue, name: str, pages: int, hosts: int) -> int:
    run = await queue.start_run(NewRun(scraper=name, key=name, name=name))
    for first in range(0, pages, BATCH):
        tasks = [page(name, number, hosts) for number in range(first, min(first + BATCH, pages))]
        await queue.add(run.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
    return run.id


async def work(url: str) -> None:
    """Claim and settle until told to stop; says when each call began and how long it took."""
    queue = await open_queue(Settings(queue=url))
    loop, calls = asyncio.get_running_loop(), list[tuple[float, float]]()
    stopped = loop.run_in_executor(None, sys.stdin.readline)
    print("working", flush=True)

    async def timed(call: Any) -> Any:
        began = time.monotonic()
        answer = await call
        calls.append((began, time.monotonic() - began))
        return answer

    while not stopped.done():
        claim = await timed(queue.claim("other", 10, serves=["other"]))
        answers = [Outcome(task.id, task.lease, "released") for task in claim.tasks]
        await timed(queue.settle(answers))
        await asyncio.sleep(0.001)
    await queue.close()
    print(json.dumps(calls))


async def measure(url: str, hosts: int) -> list[dict[str, float | str]]:
    queue = await open_queue(Settings(queue=url))
    large = await fill(queue, "large", 2 * hosts, hosts)
    other = await fill(queue, "other", 10 * SHARED, SHARED)
    worker = subprocess.Popen(
        [sys.executable, __file__, "--work", url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdin and worker.stdout and worker.stdout.readline() == "working\n"
    spans: list[tuple[str, float, float]] = []

    async def during(what: str, call: Any) -> None:
        began = time.monotonic()
        await call
        spans.append((what, began, time.monotonic()))
        await asyncio.sleep(0.5)

    await during("nothing", asyncio.sleep(QUIET))
    await during("cancel", queue.set_run(large, "cancel"))
    await during("undo", queue.set_run(large, "undo"))
    await during("cancel again", queue.set_run(large, "cancel"))
    await during("purge", queue.purge(run=large))
    told, _ = worker.communicate("stop\n", timeout=60)
    await queue.set_run(other, "cancel")
    await queue.purge(run=other)
    await queue.close()
    calls = json.loads(told)
    return [
        {
            "during": what,
            "seconds": round(end - began, 3),
            "calls": len(waits := [took for at, took in calls if at < end and at + took > began]),
            "median_ms": round(1000 * harness.quantile(waits, 0.5), 2),
            "longest_ms": round(1000 * max(waits), 1),
        }
        for what, began, end in spans
    ]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--queue", default="", help="any queue; its runs `large` and `other` are made and removed")
    options.add_argument("--hosts", type=int, default=100_000)
    options.add_argument("--work", default="", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.work:
        asyncio.run(work(given.work))
        return
    with harness.scratch() as folder:
        url = given.queue or f"sqlite:///{Path(folder) / 'queue.db'}"
        rows = asyncio.run(measure(url, given.hosts))
    head = ["during", "took (s)", "calls of others", "median (ms)", "longest (ms)"]
    text = harness.table(head, [[str(value) for value in row.values()] for row in rows])
    print(text)
    harness.save("many_lanes", {"hosts": given.hosts, "queue": url.partition(":")[0], "rows": rows}, text)
    if any(float(row["longest_ms"]) > 1000 * MOST for row in rows[1:]):
        raise SystemExit("somebody waited for too long")


if __name__ == "__main__":
    main()
