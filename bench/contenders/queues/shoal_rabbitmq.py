"""shoal through RabbitMQ: N typed tasks are added, then a real relay and a real `shoal worker` work them off.

Confirms are on and results are stored in the ledger (BENCH_LEDGER), where it is also counted what is done.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from report import tree_cpu

import shoal

QUEUE, LEDGER = os.environ["BENCH_QUEUE"], os.environ["BENCH_LEDGER"]
SHOAL = str(Path(sys.executable).with_name("shoal"))


def start(*argv: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [SHOAL, *argv], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


async def main() -> None:
    count, concurrency, ack = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    relay = start("relay", "--queue", QUEUE)
    processes = [relay]
    try:
        adding = 0.0
        async with shoal.connect(QUEUE) as client:
            for first in range(0, count, 1000):
                tasks = [
                    shoal.Task(type="fetch", payload={"n": n, "url": f"http://host/p/{n}"}, ack=ack)
                    for n in range(first, min(first + 1000, count))
                ]
                begun = time.perf_counter()
                await client.enqueue(*tasks)
                adding += time.perf_counter() - begun
        async with shoal.connect(LEDGER) as client:
            worker = start("worker", "shoal_tasks.py", "--workers", "1", "--concurrency", concurrency, "--queue", QUEUE)
            processes.append(worker)
            had, first_at, cpu, relay_cpu = 0, 0.0, 0.0, 0.0
            while True:
                done = (await client.stats("fetch")).completed
                if done > 0 and not first_at:  # start-up is not counted
                    had, first_at = done, time.perf_counter()
                    cpu, relay_cpu = tree_cpu(worker.pid), tree_cpu(relay.pid)
                if done >= count:
                    break
                await asyncio.sleep(0.02)
            seconds = time.perf_counter() - first_at
            work = max(1, count - had)
            answer = {
                "count": count,
                "add": count / adding,
                "rate": work / seconds,
                "cpu": (tree_cpu(worker.pid) - cpu) / work,
                "relay_cpu": (tree_cpu(relay.pid) - relay_cpu) / work,
            }
        print(json.dumps(answer), flush=True)
    finally:
        for process in processes:
            os.killpg(process.pid, 9)
            process.wait()


asyncio.run(main())
