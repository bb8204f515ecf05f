"""In-process runs, for notebooks and scripts: no child processes, no signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from shoal import app
from shoal.commands.private_hosts import say_private
from shoal.commands.progress_line import progress_line
from shoal.commands.python_arguments import check_column, check_fields, check_output, check_scraper, targets
from shoal.commands.result import Result, run_blocking
from shoal.config.load import Settings, load, with_defaults
from shoal.config.replay import settings_for_replay
from shoal.control.celery.configured import celery_sender
from shoal.core.run import NewRun, Run
from shoal.errors import QueueUnavailable, UsageError
from shoal.extract.scraper import Scraper
from shoal.launch.in_process_pool import in_process_pool
from shoal.launch.job import RunJob
from shoal.queue.base import Queue
from shoal.runs.drive import RunDriver
from shoal.runs.finish import refuse_overwriting_input, rejected_file, write_files
from shoal.runs.fleet_lock import FleetLock, acquire_exclusive, keep_renewed
from shoal.runs.identity import run_key
from shoal.runs.local_lock import LocalLock
from shoal.runs.outputs import RunOutputs
from shoal.runs.progress import RunUi
from shoal.runs.request import RunRequest, parse_run_request, run_spec
from shoal.runs.seed import ListSeeder
from shoal.runs.start import StartRequest, in_batches

OnStart = Callable[[Run, int], None]

__all__ = ["Result", "get", "run", "run_sync"]


async def run(
    scraper: Scraper,
    *,
    output: str | PathLike[str] | None = None,
    fresh: bool | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Result:
    """Crawl in this process and give back the records; any setting of `shoal run` may be named.

    An unfinished run of the same scraper and output goes on. A finished one starts anew, unless
    fresh=False: then its records are given back as they are. progress: show it while it runs; without a word,
    in notebooks and on terminals.
    """
    check_scraper(scraper)
    file = check_output(output)
    return await run_request(RunRequest(scraper), load(settings), file, fresh, ui=progress_line(progress))


def run_sync(scraper: Scraper, **options: Any) -> Result:
    """`run` for plain scripts; inside a running event loop, `await shoal.run(…)` is the way."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(scraper, **options))
    raise UsageError(
        "run_sync cannot be called here: an event loop is running already, as in notebooks and async functions",
        hint="write `await shoal.run(…)` instead; shoal.get(…) works in both",
    )


def get(
    target: str | PathLike[str] | Iterable[str | PathLike[str]],
    fields: Mapping[str, str] | None = None,
    *,
    column: str = "",
    with_columns: bool = False,
    output: str | PathLike[str] | None = None,
    fresh: bool | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Result:
    """Fetch a list ("urls.csv", URLs) or run a template; also where an event loop runs already."""
    words, file = targets(target), check_output(output)
    if file:
        refuse_overwriting_input(str(Path(file).resolve()), words)
    chosen = load(settings)
    chosen_fields, chosen_column = check_fields(fields), check_column(column)
    request = parse_run_request(chosen, words[0], words[1:], chosen_fields, chosen_column, with_columns=with_columns)
    ui = progress_line(progress)
    return run_blocking(lambda: run_request(request, chosen, file, fresh, ui=ui))


async def run_request(
    request: RunRequest,
    settings: Settings,
    output: str | None,
    fresh: bool | None,
    *,
    on_start: OnStart = lambda run, added: None,
    ui: RunUi | None = None,
) -> Result:
    """What was asked for, in this process; on_start hears of the run and of how many tasks were new."""
    settings = with_defaults(settings, request.scraper.settings, request.label)
    settings = settings_for_replay(settings) if request.folder else settings
    urls = [] if request.input else [task.url for task in app.seed_tasks(request.scraper, settings)[0]]
    place = str(Path(output).resolve()) if output else ""  # noqa: ASYNC240 - no I/O worth a thread
    key = run_key(request.scraper.name, [*urls, *request.identity], place or "python")
    async with app.opened_queue(settings) as queue:
        local_lock = await LocalLock.acquire(settings.state_folder, key, request.label)
        lock: FleetLock | None = None
        try:
            name, file = request.scraper.name, settings.state_file is not None
            lock = await acquire_exclusive(queue, request.scraper.mode, name, key, request.label, file=file)
            return await InProcessRun(queue, settings, request, place, lock, on_start, ui).run(key, fresh)
        finally:
            if ui:
                ui.close()
            if lock:
                with contextlib.suppress(QueueUnavailable):
                    await lock.release()
            local_lock.release()


@dataclass(frozen=True, slots=True)
class InProcessRun:
    queue: Queue
    settings: Settings
    request: RunRequest
    output: str
    lock: FleetLock | None
    on_start: OnStart
    ui: RunUi | None = None

    async def run(self, key: str, fresh: bool | None) -> Result:
        queue, settings, request = self.queue, self.settings, self.request
        known = await queue.runs(key=key, limit=1)
        if fresh is None:
            fresh = bool(known) and known[0].state in ("finished", "cancelled")
        spec = await run_spec(queue, request, settings, mode="single", output=self.output)
        new = NewRun(
            request.scraper.name,
            key,
            spec=spec,
            max_pages=settings.max_pages,
            seen_set=settings.seen,
            seen_for=settings.seen_for,
            dead_retention=settings.dead_retention,
        )
        async with await RunOutputs.open(queue, settings) as outputs:
            outputs.columns = request.columns
            return await self._run_with_outputs(outputs, new, fresh)

    async def _run_with_outputs(self, outputs: RunOutputs, new: NewRun, fresh: bool) -> Result:
        queue, settings = self.queue, self.settings
        request = self.request
        tasks, paces = ([], {}) if request.input else app.seed_tasks(request.scraper, settings)
        wanted = StartRequest(
            new,
            tasks=lambda _: in_batches(tasks, paces),
            fresh=fresh,
            more=request.input is not None,
            name_format=settings.run_id_format,
        )
        started = await outputs.start_run(wanted, self.output, settings)
        run, exporter = started.run, started.output
        self.on_start(run, started.tasks.added)
        if started.outcome != "ended":
            await self._drive(run, outputs)
        if exporter:
            await write_files(queue, run, exporter, settings, ())
        stats = await queue.stats(run.id)
        await say_private(queue, run, stats)
        return Result(settings, run.name, run.id, stats, self.request.columns)

    async def _drive(self, run: Run, outputs: RunOutputs) -> None:
        queue, settings, request = self.queue, self.settings, self.request
        job = RunJob(run, settings, keep_duplicates=request.input is not None, folder=request.folder)
        pool = await in_process_pool(queue, job, request.scraper)
        seeder: ListSeeder | None = None
        if request.input is not None:
            place = rejected_file(run, self.output, settings)
            seeder = await ListSeeder.begin(queue, run, request.input, settings, rejects=place)
        driver = RunDriver(
            queue,
            run,
            pool,
            output=outputs,
            ui=self.ui,
            seeder=seeder,
            outage_timeout=app.queue_outage_timeout(settings),
            send_celery_tasks=celery_sender(queue, settings),
        )
        async with keep_renewed(self.lock, driver.stop):
            await driver.drive()
