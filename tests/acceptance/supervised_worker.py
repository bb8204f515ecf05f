"""The child process of test_supervisor: a worker with handlers that misbehave in every way."""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import os
import time
from pathlib import Path
from typing import Any

from shoal.core.lane import UNLIMITED_PACE
from shoal.errors import UsageError
from shoal.extract.links import LinkFilter
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper
from shoal.fetch.guard import PrivateNetworkPolicy
from shoal.fetch.http import HttpFetcher
from shoal.queue.sqlite import SqliteQueue
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool import child
from shoal.worker.pool.crash_note import CrashNote


def misbehaving(marks: Path) -> Scraper:  # noqa: C901 - one branch per kind of misbehaviour
    scraper = Scraper("bad", hosts="*")

    def mark(page: Page) -> bool:
        """Leave a sign for the test; True the first time."""
        path = marks / page.url.rpartition("/")[2]
        first = not path.exists()
        path.touch()
        return first

    @scraper.page("/good*")
    def good(page: Page) -> Any:
        yield {"url": page.url}

    @scraper.page("/exit")
    def leave(page: Page) -> None:
        os._exit(3)

    @scraper.page("/loop")
    def loop(page: Page) -> None:
        while True:
            pass

    @scraper.page("/hog")
    def hog(page: Page) -> None:
        hoard = []
        while True:
            hoard.append(bytes(8_000_000))

    @scraper.page("/share")
    def share(page: Page) -> None:
        """Memory that no limit of the process counts."""
        hoard = mmap.mmap(-1, 500_000_000)
        for start in range(0, len(hoard), 4096):
            hoard[start] = 1
        while True:
            pass

    @scraper.page("/raise/*")
    def throw(page: Page) -> None:
        raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "close": GeneratorExit}[page.url.rpartition("/")[2]](
            "no"
        )

    @scraper.page("/sleep")
    async def sleep(page: Page) -> Any:
        if mark(page):
            await asyncio.sleep(600)
        yield {"url": page.url}

    @scraper.page("/block")
    def block(page: Page) -> Any:
        if mark(page):
            time.sleep(600)
        yield {"url": page.url}

    @scraper.page("/spawn")
    async def spawn(page: Page) -> None:
        """An endless loop in a task of the handler's own."""

        async def endless() -> None:
            while True:
                pass

        await asyncio.create_task(endless())

    @scraper.page("/grip")
    def grip(page: Page) -> Any:
        """Like a parser in C that does not let other threads run, the heart included, until it is let go."""
        pipe = os.open(marks / "let-go", os.O_RDWR)
        ctypes.PyDLL(None).read(pipe, ctypes.create_string_buffer(1), 1)
        yield {"url": page.url}

    return scraper


async def build(config: child.ChildConfig, note: CrashNote) -> tuple[WorkerContext, WorkerPlan]:
    said = config.settings
    if "refuse" in said:
        raise UsageError(said["refuse"], hint="do it otherwise")
    queue = await SqliteQueue.open(said["queue"])
    fetcher = HttpFetcher(user_agent="test", allow_private=PrivateNetworkPolicy.parse("1"))
    scraper = misbehaving(Path(said["marks"]))
    links = LinkFilter(scraper.in_scope, None, lambda lane, url: None)

    async def serve(run: int) -> RunContext:
        return RunContext(scraper, links, None, lambda lane: UNLIMITED_PACE, retries=said.get("retries"))

    async def open_queue() -> SqliteQueue:
        return await SqliteQueue.open(said["queue"])

    tools = WorkerContext(config.worker, queue, fetcher, serve, note, open_queue)
    return tools, WorkerPlan(concurrency=4, stop_when_empty=False, heartbeat=0.3, lease=said.get("lease", 30.0))


if __name__ == "__main__":
    child.main(build)
