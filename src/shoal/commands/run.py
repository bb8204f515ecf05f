"""`shoal run`: a run on one machine, with worker processes under a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal import app
from shoal.commands.reread import Reread, refuse_reread
from shoal.commands.run_notes import describe_pace, run_notes
from shoal.commands.submit import ConfirmEnd, Submission, SubmitResult, confirm_replacing, refuse_single
from shoal.commands.summarize import summarize_run
from shoal.config.changed_settings import SettingChange
from shoal.config.load import Settings, with_defaults
from shoal.config.replay import settings_for_replay
from shoal.control.celery.configured import celery_sender
from shoal.control.history_sampler import record_history
from shoal.control.join_command import join_command
from shoal.control.kept_documents_gc import ELSEWHERE, IN_FILE, remove_some_kept_documents
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.errors import OutputTaken, QueueUnavailable, UsageError
from shoal.extract.scraper import Mode
from shoal.launch.browsers import check_browser, check_login
from shoal.launch.debugger import for_debugger
from shoal.launch.job import RunJob, pool_size
from shoal.launch.request_options import check_exits, check_sessions, check_steps, request_builder_for
from shoal.launch.worker_pool import worker_pool
from shoal.queue.base import Queue
from shoal.runs.cleanup import remove_leftovers
from shoal.runs.cured_failures import changes_since_last_time, revive_cured
from shoal.runs.drive import RunDriver, WorkerPool
from shoal.runs.finish import refuse_overwriting_input, rejected_file
from shoal.runs.fleet_lock import LOCK_TTL, FleetLock, acquire_exclusive, keep_renewed, remove_expired_locks
from shoal.runs.identity import StartOutcome, checked_stats, run_key
from shoal.runs.list_reader import refuse_changed_list
from shoal.runs.local_lock import LocalLock
from shoal.runs.outputs import RunOutputs
from shoal.runs.progress import RunEnd, RunInfo, RunUi
from shoal.runs.request import RunRequest, fleet_run_key, parse_run_request, run_spec
from shoal.runs.saved_pages import keeps_pages, saved_by
from shoal.runs.seed import ListSeeder
from shoal.runs.spec import RunMode
from shoal.runs.start import StartedRun, StartRequest, in_batches
from shoal.store.export import Exporter, check_output
from shoal.view import opentelemetry
from shoal.view.formatting import count, relative_path
from shoal.worker.pool.supervisor import Supervisor

EXIT_CODES: dict[RunEnd, int] = {
    "complete": 0,
    "dead": 3,
    "cancelled": 3,
    "interrupted": 4,
    "unbalanced": 1,
    "no_records": 3,
}


def run_command(
    settings: Settings,
    *,
    target: str,
    inputs: tuple[str, ...] = (),
    fields: Mapping[str, str] | None = None,
    column: str = "",
    with_columns: bool = False,
    sitemaps: tuple[str, ...] = (),
    from_raw: str = "",
    reread: bool = False,
    output: str | None,
    fresh: bool,
    ui: RunUi,
    again: str = "",
    mode: Mode = "",
    on_queued: Callable[[SubmitResult], None] | None = None,
    confirm: ConfirmEnd | None = None,
) -> int:
    """Crawl, or go on crawling, until the end or until told to stop; answers the exit status.

    again: the command that goes on with it, for people. mode: in place of the scraper's own. on_queued: shows
    what was put into the queue; then a distributed scraper without an output is left to workers. reread: pages
    that an earlier run over the same list saved are read again, and only others are fetched. confirm: is told of a
    run shared with others that `fresh` would end, and raises if that must not be.
    """
    place = str(Path(output).resolve()) if output else ""
    if place:
        check_output(Path(place))
        refuse_overwriting_input(place, (target, *inputs))
    opentelemetry.check_installed(settings)
    request = parse_run_request(
        settings, target, inputs, fields or {}, column, with_columns=with_columns, sitemaps=sitemaps
    )
    if mode == "distributed":
        refuse_single(request, target)
    if from_raw and request.folder:
        raise UsageError("the pages are in a folder, or saved by a run", hint="leave --from-raw out, or the folder")
    request.scraper.mode = mode or request.scraper.mode
    if reread:
        refuse_reread(request, from_raw)
    settings = with_defaults(settings, request.scraper.settings, request.label)
    if (
        on_queued is not None
        and request.scraper.mode == "distributed"
        and not place
        and not (from_raw or request.folder)
    ):
        request_builder_for(settings, request.scraper)
        check_steps(settings, request.scraper)
        made = asyncio.run(Submission(settings, request, 1, 0, again, lambda *_: None, confirm).run(fresh))
        on_queued(made)
        return EXIT_CODES["interrupted" if made.status == "interrupted" else "complete"]
    if from_raw or request.folder:
        settings = settings_for_replay(settings)
    request_builder_for(settings, request.scraper)
    if not (from_raw or request.folder):
        check_browser(settings, request.scraper)
    check_exits(settings, request.scraper)
    check_steps(settings, request.scraper)
    check_sessions(settings)
    settings = for_debugger(settings) if settings.workers == 0 else settings
    return asyncio.run(LocalRun(settings, request, place, ui, again, from_raw, reread).run(fresh, confirm))


class LocalRun:
    def __init__(
        self,
        settings: Settings,
        request: RunRequest,
        output: str,
        ui: RunUi,
        again: str,
        from_raw: str,
        reread: bool = False,
    ) -> None:
        self._resume_command = again
        self._settings = settings
        self._request = request
        self._output = output
        self._ui = ui
        self._from_raw = from_raw
        self._saved = from_raw or request.folder  # where pages are taken from instead of the web
        self._reread = Reread(settings, request, is_wanted=reread, on_message=ui.message)
        self._changes: list[SettingChange] = []
        self._began = time.monotonic()
        self._waiting: tuple[str, ...] = ()  # what its last pages wait for, if they wait for a person

    async def run(self, fresh: bool, confirm: ConfirmEnd | None = None) -> int:
        request, settings = self._request, self._settings
        tasks, paces = ([], {}) if request.input else app.seed_tasks(request.scraper, settings)
        if tasks and not self._saved:
            app.refuse_private_start(tasks, settings)
        inputs = [*(task.url for task in tasks), *request.identity, self._from_raw]
        own = run_key(request.scraper.name, inputs, self._output)
        # A shared run is the same wherever it is joined, whatever file each who joins writes.
        key = fleet_run_key(request, tasks) if self._mode == "distributed" else own
        queue = await app.open_queue(settings)
        local_lock: LocalLock | None = None
        lock: FleetLock | None = None
        outputs: RunOutputs | None = None
        try:
            outputs = self._outputs = await RunOutputs.open(queue, settings)
            outputs.columns = request.columns
            local_lock = await LocalLock.acquire(settings.state_folder, own, request.label)
            await self._remove_old_runs(queue)
            if not self._saved:
                await check_login(queue, settings)
            if fresh and confirm and self._mode == "distributed":
                await confirm_replacing(queue, key, confirm)
            lock = await self._lock(queue, key)
            spec = await self._spec(queue)
            new = NewRun(
                request.scraper.name,
                key,
                spec=spec,
                max_pages=settings.max_pages,
                seen_set="" if self._reread.is_wanted else settings.seen,  # all of it was seen when it was saved
                seen_for=settings.seen_for,
                dead_retention=settings.dead_retention,
            )
            wanted = StartRequest(
                new,
                tasks=lambda _: in_batches(tasks, paces),
                fresh=fresh,
                relimit="max_pages" in settings.sources,
                go_on=True,
                more=request.input is not None,
                name_format=settings.run_id_format,
            )
            try:
                started = await outputs.start_run(wanted, self._output, settings, replace=self._reread.is_wanted)
            except OutputTaken as error:
                if error.is_replaceable:  # a file that no run wrote is not replaced by reading again either
                    error.hint = await self._reread.offer(queue, otherwise=error.hint)
                raise
            run, exporter = started.run, started.output
            self._changes = changes_since_last_time(run, settings)
            if started.outcome == "ended" and not await self._try_failed_again(queue, run):
                return await self._finish_ended(queue, run, exporter)
            driver = await self._open_driver(queue, started, fresh)
            history = record_history(queue, stale_after=settings.stale_after)
            async with keep_renewed(lock, driver.stop), self._exporting_metrics(run), history:
                stats = await driver.drive()
            self._waiting = tuple(map(str, driver.waiting_for))
            return await self._finish(queue, driver.run, stats, exporter)
        finally:
            if outputs:
                await outputs.close()
            if lock:
                with contextlib.suppress(QueueUnavailable):
                    await lock.release()
            await queue.close()
            if local_lock:
                local_lock.release()

    async def _open_driver(self, queue: Queue, started: StartedRun, fresh: bool) -> RunDriver:
        """What drives the run: through saved pages first, if it is to read some, then through what is left."""
        settings, run = self._settings, started.run
        if not self._saved:
            await self._reread.begin(queue, run)
        self._pool = await self._open_pool(queue, run)
        seeder = await self._open_seeder(queue, run)
        driver = RunDriver(
            queue,
            run,
            self._pool,
            output=self._outputs,
            ui=self._ui,
            seeder=seeder,
            settings=settings,
            outage_timeout=app.queue_outage_timeout(settings),
            next_pool=(lambda: self._fetch_rest(queue, driver)) if self._reread.pages else None,
            send_celery_tasks=celery_sender(queue, settings),
        )
        is_offered = started.outcome == "new" and not fresh and not self._saved
        offer = await self._reread.offer(queue, run.name) if is_offered else ""
        await self._start_ui(queue, run, started.outcome, seeder, offer)
        self._handle_signals(driver)
        return driver

    async def _fetch_rest(self, queue: Queue, driver: RunDriver) -> WorkerPool | None:
        if not await self._reread.fetch_rest(queue, driver.run):
            return None
        self._pool = await self._open_pool(queue, driver.run)
        self._stop_when_drained(driver)
        return self._pool

    async def _try_failed_again(self, queue: Queue, run: Run) -> bool:
        """Whether pages of a finished run failed because of what is set otherwise now: they are open again."""
        if run.state != "finished" or self._request.input is None:
            return False
        revived = await revive_cured(queue, run, self._settings, self._changes)
        for flag, number in revived.items():
            self._ui.message(f"{count(number, 'page')} failed for want of {flag}; trying again, as it is set now.")
        return bool(revived)

    @property
    def _mode(self) -> RunMode:
        return "distributed" if self._request.scraper.mode == "distributed" and not self._saved else "single"

    def _exporting_metrics(self, run: Run) -> contextlib.AbstractAsyncContextManager[None]:
        """Figures go to a collector meanwhile, where one is named."""
        if not self._settings.otel or not isinstance(self._pool, Supervisor):
            return contextlib.nullcontext()
        from shoal.view.metric_family import MetricFamily
        from shoal.view.metrics import worker_families

        def families() -> list[MetricFamily]:
            pool = self._pool
            assert isinstance(pool, Supervisor)
            return worker_families(run.name, pool.totals(), reachable=True, stopping=False)

        return opentelemetry.report_metrics(self._settings, run.name, families)

    async def _lock(self, queue: Queue, key: str) -> FleetLock | None:
        if self._mode == "distributed":
            return None
        request, file = self._request, self._settings.state_file is not None
        ttl = self._settings.lease if self._settings.workers == 0 else LOCK_TTL
        name, mode = request.scraper.name, request.scraper.mode
        return await acquire_exclusive(queue, mode, name, key, request.label, file=file, ttl=ttl)

    async def _spec(self, queue: Queue) -> dict[str, Any]:
        spec = await run_spec(
            queue, self._request, self._settings, mode=self._mode, command=self._resume_command, output=self._output
        )
        if self._from_raw:
            spec["from_raw"] = self._from_raw = (await saved_by(queue, self._settings, self._from_raw)).run
        elif self._request.folder:
            spec["folder"] = self._request.folder
        elif self._mode == "single":
            spec |= await self._reread.spec(queue)
        return spec

    async def _open_seeder(self, queue: Queue, run: Run) -> ListSeeder | None:
        """The list on its way into the run."""
        if self._request.input is None:
            return None
        settings = self._settings
        place = rejected_file(run, self._output, settings)
        return await ListSeeder.begin(
            queue,
            run,
            self._request.input,
            settings,
            rejects=place,
            display_name=relative_path(str(place)),
            on_message=self._ui.message,
            reread=self._reread.pages is not None,
        )

    async def _open_pool(self, queue: Queue, run: Run) -> WorkerPool:
        saved = self._reread.pages
        job = RunJob(
            run,
            self._reread.settings,
            target=self._request.target,
            template=int(run.spec.get("template_version", 0)),
            keep_duplicates=self._request.input is not None,
            start=tuple(self._request.scraper.start),
            from_raw=saved.run if saved else self._from_raw,
            folder=self._request.folder,
            fetches_rest=saved is not None,
            keep_bounded=not self._saved and keeps_pages(self._settings, self._request),
        )
        if self._settings.workers == 0:
            from shoal.launch.in_process_pool import in_process_pool  # late: it brings the fetcher and the parser

            return await in_process_pool(queue, job, self._request.scraper)
        return worker_pool(queue, job, on_output_line=lambda _, line: self._ui.message(line.decode("utf-8", "replace")))

    def _stop_when_drained(self, driver: RunDriver) -> None:
        if isinstance(self._pool, Supervisor):
            self._pool.on_drained = driver.stop

    def _handle_signals(self, driver: RunDriver) -> None:
        asked = False

        def stop() -> None:
            nonlocal asked
            if asked:
                self._pool.kill() if isinstance(self._pool, Supervisor) else os._exit(EXIT_CODES["interrupted"])
                return
            asked = True
            self._ui.message("Stopping; pages in progress are returned. Ctrl-C again: now. Nothing is lost.")
            driver.stop()

        self._stop_when_drained(driver)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    async def _remove_old_runs(self, queue: Queue) -> None:
        """What ended long ago is forgotten; 0 days keeps it for ever."""
        if self._settings.retention:
            await queue.purge(older_than=self._settings.retention * 86_400.0)
            await remove_expired_locks(queue, self._settings.retention * 86_400.0)
            await remove_leftovers(queue, self._settings)
        await remove_some_kept_documents(queue, IN_FILE if self._settings.state_file else ELSEWHERE)

    async def _start_ui(
        self, queue: Queue, run: Run, found: StartOutcome, seeder: ListSeeder | None, offer: str
    ) -> None:
        settings = self._settings
        if seeder:
            await seeder.start()
        self._ui.start(
            RunInfo(
                run=run,
                stats=await queue.stats(run.id),
                state=app.queue_label(settings),
                resumed=found != "new",
                workers=1 if settings.workers == 0 else pool_size(settings),
                concurrency=settings.concurrency,
                robots=not settings.ignore_robots,
                pace=describe_pace(self._settings, self._request, seeder.paces if seeder else ()),
                is_reread=bool(self._reread.pages is not None or self._saved),
                output=relative_path(self._output),
                notes=(*self._notes(run), *(seeder.notes() if seeder else ()), *([offer] if offer else [])),
            )
        )

    def _notes(self, run: Run) -> Iterator[str]:
        yield from run_notes(run, self._settings, self._request, self._changes)
        if self._reread.pages:
            yield f"Reading pages that run {self._reread.pages.run} saved; what it did not save is fetched afterwards."
        if self._from_raw:
            yield f"Using responses saved by run {self._from_raw}; nothing is fetched."
        if self._request.folder:
            yield f"Reading saved pages from {relative_path(self._request.folder)}; nothing is fetched."
        if self._mode == "distributed":
            yield f"Other workers may join: {join_command(self._settings, run)}"

    async def _finish_ended(self, queue: Queue, run: Run, exporter: Exporter | None) -> int:
        if self._request.input:
            await refuse_changed_list(self._request.input.source, self._settings.state_folder, run)
        for note in self._notes(run):
            self._ui.message(note)
        stats = await checked_stats(queue, run)
        self._ui.message(f"Run {run.name} of this command is already {run.state}.   --fresh starts over")
        return await self._finish(queue, run, stats, exporter, worked=False)

    async def _finish(
        self, queue: Queue, run: Run, stats: Stats, exporter: Exporter | None, *, worked: bool = True
    ) -> int:
        seconds = time.monotonic() - self._began if worked else 0.0
        summary = await summarize_run(
            queue, run, stats, self._request, self._settings, self._outputs, exporter, output=self._output
        )
        warnings = (*summary.warnings, *self._waiting)
        summary = msgspec.structs.replace(summary, is_reread=self._reread.is_only, seconds=seconds, warnings=warnings)
        self._ui.finish(msgspec.structs.replace(summary, resume_command=self._resume_command))
        return EXIT_CODES[summary.end]
