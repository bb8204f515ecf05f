"""Celery: add N tasks, then one real worker works them off, results in Redis."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import redis
from celery_tasks import app, page
from report import report, tree_cpu


def main() -> None:
    count, pool = int(sys.argv[1]), sys.argv[2]
    start = time.perf_counter()
    with app.producer_or_acquire() as producer:  # one connection for all, as a busy producer has it
        for n in range(count):
            page.apply_async((n, f"http://host/p/{n}"), producer=producer)
    adding = time.perf_counter() - start
    results = redis.Redis.from_url(os.environ["BENCH_BACKEND"])
    before = results.dbsize()
    argv = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "-P", pool, "-c", "2", "-l", "ERROR"]
    argv += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
    worker = subprocess.Popen(argv, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    first = 0.0
    try:
        while True:
            done = results.dbsize() - before
            if done > 0 and not first:  # start-up is not counted
                first, had, cpu = time.perf_counter(), done, tree_cpu(worker.pid)
            if done >= count:
                break
            time.sleep(0.005)
        seconds, spent = time.perf_counter() - first, tree_cpu(worker.pid) - cpu
    finally:
        os.killpg(worker.pid, 9)
        worker.wait()
    report(count, adding, (count - had) / seconds, spent / max(1, count - had))


main()
