"""shoal, the whole of it: N typed tasks through the API, then the real `shoal worker` works them off."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from report import report, tree_cpu

import shoal


async def main() -> None:
    count, concurrency, ack = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    async with shoal.connect(os.environ["BENCH_QUEUE"]) as client:
        adding = 0.0
        for first in range(0, count, 1000):
            tasks = [
                shoal.Task(type="fetch", payload={"n": n, "url": f"http://host/p/{n}"}, ack=ack)
                for n in range(first, min(first + 1000, count))
            ]
            start = time.perf_counter()
            await client.enqueue(*tasks)
            adding += time.perf_counter() - start
        argv = [str(Path(sys.executable).with_name("shoal")), "worker", "shoal_tasks.py"]
        argv += ["--workers", "1", "--concurrency", concurrency, "--queue", os.environ["BENCH_QUEUE"]]
        worker = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        first_at = cpu = 0.0
        had = 0
        try:
            while True:
                done = (await client.stats("fetch")).completed
                if done > 0 and not first_at:
                    first_at, had, cpu = time.perf_counter(), done, tree_cpu(worker.pid)
                if done >= count:
                    break
                await asyncio.sleep(0.02)
            seconds, spent = time.perf_counter() - first_at, tree_cpu(worker.pid) - cpu
        finally:
            os.killpg(worker.pid, 9)
            worker.wait()
    report(count, adding, (count - had) / seconds, spent / max(1, count - had))


asyncio.run(main())
