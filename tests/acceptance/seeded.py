"""A queue in which something has happened: pages done, with records; dead letters; and pages that wait."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from shoal import app
from shoal.config import load
from shoal.core.lane import FREE, Mark
from shoal.core.run import NewRun, Run
from shoal.core.task import Attempt, Outcome
from shoal.extract.links import start_task
from shoal.queue.base import Queue


def address(folder: Path) -> str:
    return f"sqlite:///{folder / 'state.db'}"


async def fill(
    queue: Queue, name: str = "r1", *, done: int = 3, dead: int = 2, ready: int = 4, records: int = 2
) -> Run:
    """A run of so many pages, on ten hosts at most; every page that is done has so many records."""
    run = await queue.start_run(NewRun("books", f"key of {name}", name=name, spec={"mode": "distributed"}))
    total = done + dead + ready
    for first in range(0, total, 1000):
        tasks = [
            start_task(f"https://h{number % 10}.example/p{number}")
            for number in range(first, min(total, first + 1000))
        ]
        await queue.add(run.id, tasks, {task.lane: FREE for task in tasks})
    left = done + dead
    while left:
        claim = await queue.claim("w-1", min(500, left))
        outcomes = []
        for task in claim.tasks:
            if left > dead:
                data = tuple(
                    json.dumps({"url": task.url, "n": n, "text": "=1+1"}).encode() for n in range(records)
                )
                outcomes.append(
                    Outcome(task.id, claim.lease, "done", Attempt(1, "w-1", status=200), records=data)
                )
            else:
                cause = "http.404" if left % 2 else "http.503"
                attempt = Attempt(1, "w-1", cause, "no such page", 404)
                outcomes.append(Outcome(task.id, claim.lease, "dead", attempt, cause=cause))
            left -= 1
        await queue.settle(outcomes)
    return run


async def worker(queue: Queue, id: str = "node1-1", name: str = "node1") -> None:
    await queue.register(Mark(id, name, "node1", 1, "1", 0, 0, serves=("books",), code="books=1a"))


def made(folder: Path, name: str = "r1", url: str = "", **counts: int) -> Run:
    """The same in a file of this folder, or in another queue, for a server that is started afterwards."""

    async def work() -> Run:
        queue = await app.open_queue(load({"queue": url or address(folder)}, env={}))
        try:
            await worker(queue)
            return await fill(queue, name, **counts)
        finally:
            await queue.close()

    return asyncio.run(work())
