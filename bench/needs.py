"""Claims of a worker without capabilities, with and without 100,000 tasks in front that need a browser.

Any queue will do (--queue URL, empty); without one a file is made and thrown away.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

import harness

from shoal.app import open_queue
from shoal.config.load import Settings
from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.core.task import Outcome, Task, digest
from shoal.queue.base import Queue

ADD = 2_000
LIMIT = 10  # tasks of one claim
ROUNDS = 3  # interleaved, so that a machine that grows slower is no verdict


def tasks(prefix: str, count: int, lanes: int, needs: tuple[str, ...]) -> list[Task]:
    urls = ((f"http://h{n % lanes}.example/{prefix}/{n}", f"h{n % lanes}.example") for n in range(count))
    return [Task(url=url, lane=lane, digest=digest(url), needs=needs) for url, lane in urls]


async def measure(queue: Queue, name: str, needy: int, args: argparse.Namespace) -> list[float]:
    """Seconds of each claim, in a run whose tasks with needs came first and lie in the same lanes."""
    run = await queue.start_run(NewRun(scraper=name, key=name, name=name))
    work = tasks("needy", needy, args.lanes, ("browser",)) + tasks("plain", args.claims * LIMIT, 100, ())
    for first in range(0, len(work), ADD):
        part = work[first : first + ADD]
        await queue.add(run.id, part, {task.lane: Pace(0.0, args.in_flight) for task in part})
    spent = []
    for _ in range(args.claims):
        began = time.perf_counter()
        claim = await queue.claim("w", LIMIT, serves=(name,))
        spent.append(time.perf_counter() - began)
        assert len(claim.tasks) == LIMIT and not any(task.needs for task in claim.tasks)
        await queue.settle([Outcome(task.id, task.lease, "done") for task in claim.tasks])
    nothing = await queue.claim("w", LIMIT, serves=(name,))
    assert not nothing.tasks and nothing.next_in is None
    await queue.set_run(run.id, "cancel")
    await queue.purge(run=run.id)
    return spent


async def everything(args: argparse.Namespace, url: str) -> None:
    queue = await open_queue(Settings(queue=url))
    spent: dict[int, list[float]] = {0: [], args.needy: []}
    try:
        await measure(queue, "warm", 0, args)
        for number in range(ROUNDS):
            for needy, seconds in spent.items():
                seconds += await measure(queue, f"round{number}-{needy}", needy, args)
    finally:
        await queue.close()
    rows = []
    for needy, seconds in spent.items():
        figures = [f"{harness.quantile(seconds, share) * 1000:.2f}" for share in (0.5, 0.99)]
        rows.append([f"{needy:,}", f"{len(seconds):,}", *figures])
    scheme = url.partition(":")[0]
    text = f"{scheme}: claims of {LIMIT} by a worker without capabilities; ms.\n\n"
    text += harness.table(["tasks that need a browser in front", "claims", "p50", "p99"], rows)
    print(text)
    harness.save(f"needs_{scheme}", {"machine": harness.machine(), "arguments": vars(args), "rows": rows}, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queue", default="", help="an empty queue")
    parser.add_argument("--needy", type=int, default=100_000)
    parser.add_argument("--lanes", type=int, default=10_000)
    parser.add_argument("--claims", type=int, default=500)
    parser.add_argument("--in-flight", type=int, default=50, help="requests at once per lane; 0 is no limit")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        asyncio.run(everything(args, args.queue or f"sqlite:///{Path(folder) / 'queue.db'}"))


if __name__ == "__main__":
    main()
