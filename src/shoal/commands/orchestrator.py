"""Orchestrator: starts scrapers by name, here or on the fleet as their mode says, and follows their runs."""

from __future__ import annotations

import asyncio
import dataclasses
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal, Self

from shoal import app
from shoal.commands.run_in_process import run_request
from shoal.commands.submit import Submission
from shoal.config.load import Settings, with_defaults
from shoal.config.queue_address import QueueAddress, settings_for
from shoal.core.indexable import Indexable
from shoal.core.run import Run, RunState
from shoal.errors import UsageError
from shoal.extract import registry
from shoal.launch.request_options import check_steps, request_builder_for
from shoal.queue.base import Queue
from shoal.runs.identity import resolve_run
from shoal.runs.request import RunRequest, parse_run_request
from shoal.sources.arguments import ArgumentSource
from shoal.sources.open import Input

POLL_EVERY = 0.5  # seconds


class OrchestratedRun(Indexable, frozen=True):
    """A run that was started, or found again: its id, what was queued, and how a worker joins it."""

    status: Literal["submitted", "running", "continued", "finished", "cancelled", "interrupted"]
    run_id: str
    scraper: str
    mode: Literal["single", "distributed"]
    enqueued: int  # new ones; 0 of a list that a single run still reads
    worker_command: str = ""  # empty for a single one, which this process works on

    def __str__(self) -> str:
        return "\n".join(f"{name:<15} {self[name]}" for name in self.keys() if self[name] != "")


class RunStats(Indexable, frozen=True):
    """The tasks of a run by their state."""

    pending: int
    claimed: int
    completed: int
    failed: int
    remaining: int  # pending and claimed
    state: RunState = "running"

    def __str__(self) -> str:
        return " · ".join(f"{name} {self[name]:,}" for name in self.keys() if name != "state")


OnStats = Callable[[RunStats], Awaitable[None] | None]


class Orchestrator:
    """`async with shoal.Orchestrator("postgresql://…", scrapers=["countries/"])`; settings as for connect.

    Single scrapers run in this process until they are done, or until it is closed: they resume with the next start.
    """

    def __init__(self, url: QueueAddress | None = None, **settings: Any) -> None:
        self.settings = settings_for(url, settings)
        self._queue: Queue | None = None
        self._single: dict[str, asyncio.Task[object]] = {}

    async def __aenter__(self) -> Self:
        if self._queue is None:
            self._queue = await app.open_queue(self.settings)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the single runs of this process, which can be resumed, and close the queue."""
        for task in self._single.values():
            task.cancel()
        if self._single:
            await asyncio.wait(self._single.values())
        self._single.clear()
        queue, self._queue = self._queue, None
        if queue is not None:
            await queue.close()

    @property
    def queue(self) -> Queue:
        if self._queue is None:
            raise UsageError(
                "this orchestrator is not open", hint="async with shoal.Orchestrator(…) as orchestrator: …"
            )
        return self._queue

    def scrapers(self) -> dict[str, str]:
        """The scrapers there are by name, with their modes; "" runs here unless it is submitted."""
        found = [located for place in self.settings.scrapers for located in registry.scan(place).found]
        return {located.scraper.name: located.scraper.mode for located in found}

    async def start(
        self, name: str, urls: Iterable[str] = (), *, urls_file: str = "", fresh: bool = False, priority: int = 0
    ) -> OrchestratedRun:
        """Start a scraper, or go on with its unfinished run of the same URLs; its mode decides where.

        name: as the registry has it, in any case; also FILE.py, a module or a template.
        """
        _ = self.queue
        request = self._request(name, list(urls), urls_file)
        settings = with_defaults(self.settings, request.scraper.settings, request.label)
        request_builder_for(settings, request.scraper)  # says what is wrong with them
        check_steps(settings, request.scraper)
        if request.scraper.mode == "distributed":
            return await self._submit(settings, request, fresh, priority)
        return await self._run_here(settings, request, fresh)

    async def stats(self, run_id: str) -> RunStats:
        """How many tasks of a run are pending, claimed, completed and failed; a prefix of its id is enough."""
        return await self._stats(await self._find(run_id))

    async def wait(
        self, run_id: str, timeout: float | None = None, *, on_progress: OnStats | None = None, every: float = 5.0
    ) -> RunStats:
        """Wait until a run has ended, and return its stats; TimeoutError when the time is up."""
        run = await self._find(run_id)
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(timeout):
            due = clock()
            while True:
                ended = await self._has_ended(run)
                stats = await self._stats(run)
                if on_progress and (ended or clock() >= due):
                    due = clock() + every
                    answer = on_progress(stats)
                    if answer is not None:
                        await answer
                if ended:
                    return stats
                await asyncio.sleep(POLL_EVERY)

    def _request(self, name: str, urls: Sequence[str], urls_file: str) -> RunRequest:
        if urls and urls_file:
            raise UsageError("give the URLs once", hint="urls=[…], or urls_file")
        request = parse_run_request(self.settings, name, (urls_file,) if urls_file else (), {}, "")
        if not urls:
            return request
        given = Input(ArgumentSource(urls, "a list in Python"), "\n".join(urls))
        return dataclasses.replace(request, input=given)

    async def _submit(self, settings: Settings, request: RunRequest, fresh: bool, priority: int) -> OrchestratedRun:
        command = shlex.join(["shoal", "submit", request.typed_target or request.scraper.name])
        submission = Submission(settings, request, 1, priority, command, lambda *_: None, guest=True)
        made = await submission.run(fresh)
        return OrchestratedRun(
            made.status, made.run.name, made.run.scraper, "distributed", made.enqueued, made.worker_command
        )

    async def _run_here(self, settings: Settings, request: RunRequest, fresh: bool) -> OrchestratedRun:
        started: asyncio.Future[tuple[Run, int]] = asyncio.get_running_loop().create_future()

        def on_start(run: Run, added: int) -> None:
            started.set_result((run, added))

        task = asyncio.create_task(run_request(request, settings, None, fresh, on_start=on_start))
        try:
            await asyncio.wait((task, started), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not started.done():
            task.result()  # says why it did not start
        run, added = started.result()
        self._single[run.name] = task
        status: Literal["running", "finished", "cancelled"] = (
            run.state if run.state in ("finished", "cancelled") else "running"
        )
        return OrchestratedRun(status, run.name, run.scraper, "single", added)

    async def _find(self, run_id: str) -> Run:
        run = await resolve_run(self.queue, run_id)
        if run is None:
            raise UsageError(f"there is no run {run_id} in this queue", hint="shoal runs lists them")
        return run

    async def _has_ended(self, run: Run) -> bool:
        task = self._single.get(run.name)
        if task is not None:
            if task.done():
                task.result()
            return task.done()
        (now,) = await self.queue.runs(name=run.name, limit=1)
        return now.state in ("finished", "cancelled")

    async def _stats(self, run: Run) -> RunStats:
        stats = await self.queue.stats(run.id)
        now = next((it for it in await self.queue.runs(name=run.name, limit=1)), run)
        return RunStats(stats.ready, stats.leased, stats.done, stats.failed + stats.cancelled, stats.open, now.state)
