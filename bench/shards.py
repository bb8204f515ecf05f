"""Shards: tasks per second of the servers' processor time, and of the client's, with one, two and four Redis servers.

.venv/bin/python bench/shards.py --tasks 40000 --rounds 3
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
from contextlib import ExitStack
from pathlib import Path

from queue_redis import done, server, tasks

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.queue.base import Queue
from shoal.queue.redis import RedisQueue
from shoal.queue.shards import ShardedQueue

HOSTS, BATCH, ADD = 400, 100, 1000


def cpu_of(pids: list[int]) -> float:
    """Seconds of processor time that these processes have taken."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def children() -> set[int]:
    return {int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()}


def own_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def work(queue: Queue, count: int) -> None:
    run = (await queue.start_run(NewRun(scraper="bench", key="bench"))).id
    for first in range(0, count, ADD):
        some = tasks(first, min(ADD, count - first), HOSTS)
        await queue.add(run, some, {task.lane: UNLIMITED_PACE for task in some})
    while claim := (await queue.claim("bench", BATCH)).tasks:
        await queue.settle([done(task) for task in claim])


async def measure(folder: Path, shards: int, count: int) -> tuple[float, float]:
    """Tasks per second of server and of client time; 0 shards: one queue without shards around it."""
    with ExitStack() as stack:
        before = children()
        urls = [stack.enter_context(server(folder, "--appendonly", "yes")) for _ in range(max(1, shards))]
        pids = sorted(children() - before)
        queue: Queue = (
            await ShardedQueue.open([f"{url}?namespace=bench" for url in urls], RedisQueue.open)
            if shards
            else await RedisQueue.open(f"{urls[0]}?namespace=bench")
        )
        start, own = cpu_of(pids), own_cpu()
        await work(queue, count)
        spent, ours = cpu_of(pids) - start, own_cpu() - own
        await queue.close()
        return count / spent, count / ours


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    best: dict[int, list[tuple[float, float]]] = {0: [], 1: [], 2: [], 4: []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):  # interleaved: whatever else the machine does, it does to all
            for shards, found in best.items():
                found.append(await measure(Path(folder), shards, options.tasks))
    base = sum(served for served, _ in best[1]) / len(best[1])
    for shards, found in best.items():
        served, ours = (sum(column) / len(found) for column in zip(*found, strict=True))
        name = f"{shards} shards" if shards else "no shards"
        print(f"{name}: {served:,.0f} tasks per server second ({served / base:.0%}), {ours:,.0f} per client second")


if __name__ == "__main__":
    asyncio.run(main())
