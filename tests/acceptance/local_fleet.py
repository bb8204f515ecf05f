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

from backend_urls import backend_url
from shell_user import CommandResult, ShellUser
from small_site import SmallSite, small_site
from wait import HANG, wait_until

from shoal import app
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE, WorkerStatus
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.runs.identity import run_name
from shoal.sources.start_task import start_tasks

T = TypeVar("T")

PLAIN_SCRAPER = """
import shoal

{name} = shoal.Scraper("{name}", start="{url}")

@{name}.page("*")
def page(page):
    yield {{{{"url": page.url, "said": page.text}}}}
"""


class LocalFleet:
    def __init__(self, user: ShellUser, site: SmallSite, queue: str) -> None:
        self.user = user
        self.site = site
        self.queue = queue
        user.environment |= {"SHOAL_QUEUE": queue, "SHOAL_ALLOW_PRIVATE": site.lane, "SHOAL_WORKERS": "1"}

    def scraper(self, name: str = "plain", text: str = PLAIN_SCRAPER) -> str:
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
            await queue.add(run.id, tasks, {task.lane: UNLIMITED_PACE for task in tasks})
            return run

        return self.ask(job)

    def worker(self, *args: str, **variables: str) -> subprocess.Popen[str]:
        return self.user.start("worker", *args, **variables)

    def work(self, *args: str, **variables: str) -> CommandResult:
        return self.user.shoal("worker", *args, **variables)

    def stats(self, run: Run) -> Stats:
        return self.ask(lambda queue: queue.stats(run.id))

    def state(self, run: Run) -> str:
        return self.ask(lambda queue: queue.runs(name=run.name))[0].state

    def workers(self) -> list[WorkerStatus]:
        return self.ask(lambda queue: queue.workers())

    def records(self, run: Run) -> list[str]:
        import msgspec

        found = self.ask(lambda queue: queue.records(run.id, limit=10_000))
        return sorted(msgspec.json.decode(record.data)["url"] for record in found)

    def finished(self, run: Run) -> None:
        wait_until(lambda: self.state(run) == "finished")


@contextmanager
def local_fleet(kind: str, folder: Path, site_host: str = "127.0.0.1") -> Iterator[LocalFleet]:
    with small_site(site_host) as site, ShellUser(folder) as user:
        yield LocalFleet(user, site, backend_url(kind, folder, "queue"))


def wait_for_exit(command: subprocess.Popen[str], seconds: float = HANG) -> CommandResult:
    out, err = command.communicate(timeout=seconds)
    return CommandResult(command.returncode, out, err)


def stop_process(command: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> CommandResult:
    os.kill(command.pid, number)
    return wait_for_exit(command)


def wait_for_line(command: subprocess.Popen[str], words: str) -> None:
    """Until it has said this."""
    assert command.stderr is not None
    while words not in (line := command.stderr.readline()):
        assert line, "it ended without a word of it"
