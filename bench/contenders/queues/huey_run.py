"""huey: add N tasks, then one real consumer works them off, results in Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import redis
from huey_tasks import huey, page
from report import report, tree_cpu


def main() -> None:
    count, workers = int(sys.argv[1]), sys.argv[2]
    start = time.perf_counter()
    for n in range(count):
        page(n, f"http://host/p/{n}")
    adding = time.perf_counter() - start
    server = redis.Redis.from_url(os.environ["BENCH_BACKEND"])
    argv = [sys.executable, "-m", "huey.bin.huey_consumer", "huey_tasks.huey", "-w", workers, "-k", "process"]
    argv += ["-n", "-q", "-d", "0.001", "-m", "0.01"]
    worker = subprocess.Popen(argv, start_new_session=True, stderr=subprocess.DEVNULL)
    first = 0.0
    try:
        while True:
            done = huey.result_count()
            if done > 0 and not first:
                first, had, cpu = time.perf_counter(), done, tree_cpu(worker.pid)
            if done >= count:
                break
            time.sleep(0.005)
        seconds, spent = time.perf_counter() - first, tree_cpu(worker.pid) - cpu
    finally:
        worker.terminate()
        try:
            worker.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(worker.pid, 9)
    server.close()
    report(count, adding, (count - had) / seconds, spent / max(1, count - had))


main()
