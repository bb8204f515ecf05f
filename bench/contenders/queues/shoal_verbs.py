"""shoal's queue: add N tasks 1,000 at a time, then claim 100 and settle 100 with a record each.

pace: "free" for work without limits (on eight lanes, as typed tasks are), "lanes" for 100 hosts with a
spacing (0.1 ms: it is kept account of and holds nobody up), "frontier" for 1,000 hosts without records,
with adding counted. As in a worker, one batch is claimed while another is settled.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from report import report

from shoal import app
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.core.task import Attempt, Outcome, Task, digest

RECORD = b'{"url": "http://host/p", "title": "A page of middling length", "text": "' + b"x" * 100 + b'"}'


async def main() -> None:
    count, pace, batch = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    hosts = {"free": 8, "lanes": 100, "frontier": 1000}[pace]
    asked = UNLIMITED_PACE if pace == "free" else Pace(0.0001, 0)
    records = () if pace == "frontier" else (RECORD,)
    queue = await app.open_queue(load({"queue": os.environ["BENCH_QUEUE"]}))
    run = await queue.start_run(NewRun(scraper="bench", key=f"bench{time.time_ns()}", name=f"b{time.time_ns()}"))
    adding = 0.0
    for first in range(0, count, 1000):
        tasks = []
        for n in range(first, min(first + 1000, count)):
            lane = f"h{n % hosts}.example"
            url = f"http://{lane}/catalogue/page-{n}.html"
            tasks.append(Task(url=url, lane=lane, digest=digest(url)))
        start = time.perf_counter()
        await queue.add(run.id, tasks, {} if first else {task.lane: asked for task in tasks})
        adding += time.perf_counter() - start
    attempt = Attempt(at=0, worker="bench", status=200, seconds=0.1, size=30_000)
    done = 0

    async def work() -> None:
        nonlocal done
        while done < count:
            claim = await queue.claim("bench", batch)
            outcomes = [
                Outcome(task=task.id, lease=task.lease, result="done", attempt=attempt, records=records)
                for task in claim.tasks
            ]
            if outcomes:
                verdicts = await queue.settle(outcomes)
                assert set(verdicts) == {"ok"}, set(verdicts)
            done += len(outcomes)

    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(work(), work())
    seconds = time.perf_counter() - start + (adding if pace == "frontier" else 0.0)
    stats = await queue.stats(run.id)
    assert (stats.done, stats.records) == (count, count * len(records)), stats
    report(count, adding, count / seconds, (time.process_time() - cpu) / count)
    await queue.close()


asyncio.run(main())
