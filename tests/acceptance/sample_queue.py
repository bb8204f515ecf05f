"""A small sample queue: pages that are done, with records; dead letters; and pages that wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from shoal import app
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.run_counters import count_fields
from shoal.core.task import Attempt, Outcome
from shoal.queue.base import Queue
from shoal.sources.start_task import start_task


def state_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'state.db'}"


async def add_run(
    queue: Queue, name: str = "r1", *, done: int = 3, dead: int = 2, ready: int = 4, records: int = 2
) -> Run:
    """A run of so many pages, on ten hosts at most; every page that is done has so many records."""
    run = await queue.start_run(NewRun("books", f"key of {name}", name=name, spec={"mode": "distributed"}))
    total = done + dead + ready
    for first in range(0, total, 1000):
        tasks = [
            start_task(f"https://h{number % 10}.example/p{number}") for number in range(first, min(total, first + 1000))
        ]
        await queue.add(run.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
    left = done + dead
    while left:
        claim = await queue.claim("w-1", min(500, left))
        outcomes = []
        for task in claim.tasks:
            if left > dead:
                data = tuple(json.dumps({"url": task.url, "n": n, "text": "=1+1"}).encode() for n in range(records))
                attempt, counters = Attempt(1, "w-1", status=200), count_fields(data)
                outcomes.append(Outcome(task.id, claim.lease, "done", attempt, records=data, counters=counters))
            else:
                cause = "http.404" if left % 2 else "http.503"
                attempt = Attempt(1, "w-1", cause, "no such page", 404)
                outcomes.append(Outcome(task.id, claim.lease, "dead", attempt, cause=cause))
            left -= 1
        await queue.settle(outcomes)
    return run


async def register_worker(queue: Queue, id: str = "node1-1", name: str = "node1") -> None:
    await queue.register(WorkerStatus(id, name, "node1", 1, "1", 0, 0, serves=("books",), code="books=1a"))


def create(folder: Path, name: str = "r1", url: str = "", **counts: int) -> Run:
    """Create the sample run in a file of this folder, or in the queue at `url`."""

    async def work() -> Run:
        queue = await app.open_queue(load({"queue": url or state_url(folder)}, env={}))
        try:
            await register_worker(queue)
            return await add_run(queue, name, **counts)
        finally:
            await queue.close()

    return asyncio.run(work())
