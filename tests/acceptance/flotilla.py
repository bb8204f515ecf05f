"""A fleet on this machine: a queue of some kind, a small site, workers started and killed for real."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from small_site import SmallSite, small_site
from user import Done, User, until

from shoal import app
from shoal.config import load
from shoal.control.runs import run_name
from shoal.core.lane import FREE, Mark
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.extract.links import start_tasks
from shoal.queue.base import Queue

T = TypeVar("T")
KINDS = ("sqlite", "redis", "postgres")

PLAIN = """
import shoal

{name} = shoal.Scraper("{name}", start="{url}")

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url, "said": page.text}}}}
"""


def queue_url(kind: str, folder: Path) -> str:
    """A queue of its own for one test."""
    if kind == "redis":
        from servers import redis

        return redis.url()
    if kind == "postgres":
        from servers import postgres

        return postgres.shared().url(f"t{uuid4().hex[:10]}")
    return f"sqlite:///{folder}/queue.db"


class Fleet:
    def __init__(self, user: User, site: SmallSite, queue: str) -> None:
        self.user = user
        self.site = site
        self.queue = queue
        user.environment |= {"SHOAL_QUEUE": queue, "SHOAL_ALLOW_PRIVATE": site.lane, "SHOAL_WORKERS": "1"}

    def scraper(self, name: str = "plain", text: str = PLAIN) -> str:
        (self.user.folder / f"{name}.py").write_text(text.format(name=name, url=self.site.url()).format())
        return f"{name}.py"

    def ask(self, job: Callable[[Queue], Awaitable[T]]) -> T:
        """Do something with the queue itself."""

        async def opened() -> T:
            queue = await app.open_queue(load({"queue": self.queue}, env={}))
            try:
                return await job(queue)
            finally:
                await queue.close()

        return asyncio.run(opened())

    def submit(self, paths: list[str], *, scraper: str = "plain", **spec: Any) -> Run:
        """Start a run over some pages of the site, as `shoal submit` does."""
        tasks, _ = start_tasks(self.site.url(path) for path in paths)

        async def job(queue: Queue) -> Run:
            whole = {"scraper": scraper, "mode": "distributed"} | spec
            new = NewRun(scraper, f"key-{uuid4().hex}", name=run_name(), spec=whole)
            run = await queue.start_run(new)
            await queue.add(run.id, tasks, {task.lane: FREE for task in tasks})
            return run

        return self.ask(job)

    def worker(self, *args: str, **variables: str) -> subprocess.Popen[str]:
        return self.user.start("worker", *args, **variables)

    def work(self, *args: str, **variables: str) -> Done:
        return self.user.shoal("worker", *args, **variables)

    def stats(self, run: Run) -> Stats:
        return self.ask(lambda queue: queue.stats(run.id))

    def state(self, run: Run) -> str:
        return self.ask(lambda queue: queue.runs(name=run.name))[0].state

    def workers(self) -> list[Mark]:
        return self.ask(lambda queue: queue.workers())

    def records(self, run: Run) -> list[str]:
        import msgspec

        found = self.ask(lambda queue: queue.records(run.id, limit=10_000))
        return sorted(msgspec.json.decode(record.data)["url"] for record in found)

    def finished(self, run: Run, seconds: float = 20.0) -> None:
        until(lambda: self.state(run) == "finished", seconds)


@contextmanager
def fleet_of(kind: str, folder: Path) -> Iterator[Fleet]:
    with small_site() as site, User(folder) as user:
        yield Fleet(user, site, queue_url(kind, folder))


def ended(command: subprocess.Popen[str], seconds: float = 20.0) -> Done:
    out, err = command.communicate(timeout=seconds)
    return Done(command.returncode, out, err)


def stop(command: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> Done:
    os.kill(command.pid, number)
    return ended(command)
