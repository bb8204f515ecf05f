"""Workers that accept tasks on a port, in this process, and what the tests send them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from servers.ports import free_port
from wait import until

import shoal
from shoal.client.worker_connection import WorkerConnection, WorkerUnreachable

TOKEN = "a-token-that-only-the-tests-know"


class Gate(shoal.Worker):
    """Holds tasks that say so until it is opened, and counts who did what."""

    types = ("scrape_profile", "held")

    def __init__(self, url: str, **settings: Any) -> None:
        super().__init__(url, **{"accept_token": TOKEN, "concurrency": 2} | settings)
        self.handled = Counter[str]()
        self.opened = asyncio.Event()

    async def handle(self, task: Any) -> Any:
        if task.type == "held":
            await self.opened.wait()
        self.handled[task.payload.get("name", "")] += 1
        return {"by": id(self)}


class Other(Gate):
    types = ("other",)


@asynccontextmanager
async def accepting(worker: Gate) -> AsyncIterator[str]:
    """The URL of a worker that is at work and answers."""
    port = free_port()
    worker._settings["accept"] = f"127.0.0.1:{port}"
    working = asyncio.create_task(worker.work())
    url = f"http://127.0.0.1:{port}"

    async def is_ready() -> bool:
        if working.done():
            working.result()
        try:
            return (await WorkerConnection(url, TOKEN).load()).load.places > 0
        except WorkerUnreachable:
            return False

    try:
        await until(is_ready)
        yield url
    finally:
        worker.opened.set()
        worker.stop()
        await working
