"""`shoal run`: a run on one machine, with worker processes under a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shoal import app
from shoal.commands.submit import Submission, SubmitResult, refuse_single, seen_set_note
from shoal.config.load import Settings, with_defaults
from shoal.config.replay import settings_for_replay
from shoal.control.history_sampler import record_history
from shoal.control.join_command import join_command
from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.errors import QueueUnavailable, UsageError
from shoal.extract import registry
from shoal.extract.scraper import Mode
from shoal.launch.job import RunJob
from shoal.launch.request_options import request_builder_for
from shoal.launch.worker_pool import pool_size, worker_pool
from shoal.queue.base import Queue
from shoal.runs.cleanup import remove_leftovers
from shoal.runs.drive import RunDriver
from shoal.runs.finish import refuse_overwriting_input, rejected_file, write_files
from shoal.runs.fleet_lock import FleetLock, acquire_exclusive, keep_renewed, remove_expired_locks
from shoal.runs.identity import StartOutcome, checked_stats, resolve_run, run_code_version, run_key
from shoal.runs.list_reader import describe_rejected, load_report, refuse_changed_list
from shoal.runs.local_lock import LocalLock
from shoal.runs.outputs import RunOutputs
from shoal.runs.progress import RunEnd, RunInfo, RunSummary, RunUi
from shoal.runs.request import RunRequest, fleet_run_key, parse_run_request, request_notes, run_spec
from shoal.runs.seed import ListSeeder
from shoal.runs.spec import RunMode
from shoal.runs.start import StartRequest, in_batches
from shoal.store.export import Exporter, check_output
from shoal.view import opentelemetry
from shoal.view.formatting import count, format_rate
from shoal.worker.pool.supervisor import Supervisor

if TYPE_CHECKING:
    from shoal.runs.fill_rates import FieldRates

EXIT_CODES: dict[RunEnd, int] = {"complete": 0, "dead": 3, "cancelled": 3, "interrupted": 4, "unbalanced": 1}
PREVIEW_RECORDS = 3  # records, where no output was asked for


def run_command(
    settings: Settings,
    *,
    target: str,
    inputs: tuple[str, ...] = (),
    fields: Mapping[str, str] | None = None,
    column: str = "",
    from_raw: str = "",
    output: str | None,
    fresh: bool,
    ui: RunUi,
    again: str = "",
    mode: Mode = "",
    on_queued: Callable[[SubmitResult], None] | None = None,
) -> int:
    """Crawl, or go on crawling, until the end or until told to stop; answers the exit status.

    again: the command that goes on with it, for people. mode: in place of the scraper's own. on_queued: shows
    what was put into the queue; then a distributed scraper without an output is left to workers.
    """
    place = str(Path(output).resolve()) if output else ""
    if place:
        check_output(Path(place))
        refuse_overwriting_input(place, (target, *inputs))
    opentelemetry.check_installed(settings)
    request = parse_run_request(settings, target, inputs, fields or {}, column)
    if mode == "distributed":
        refuse_single(request, target)
    request.scraper.mode = mode or request.scraper.mode
    settings = with_defaults(settings, request.scraper.settings, request.label)
    if on_queued is not None and request.scraper.mode == "distributed" and not place and not from_raw:
        request_builder_for(settings, request.scraper)
        made = asyncio.run(Submission(settings, request, 1, 0, again, lambda read, added: None).run(fresh))
        on_queued(made)
        return EXIT_CODES["interrupted" if made.status == "interrupted" else "complete"]
    if from_raw:
        settings = settings_for_replay(settings)
    request_builder_for(settings, request.scraper)
    return asyncio.run(LocalRun(settings, request, place, ui, again, from_raw).run(fresh))


class LocalRun:
    def __init__(
        self, settings: Settings, request: RunRequest, output: str, ui: RunUi, again: str, from_raw: str
    ) -> None:
        self._resume_command = again
        self._settings = settings
        self._request = request
        self._output = output
        self._ui = ui
        self._from_raw = from_raw
        self._began = time.monotonic()

    async def run(self, fresh: bool) -> int:
        request, settings = self._request, self._settings
        tasks, paces = ([], {}) if request.input else app.seed_tasks(request.scraper, settings)
        if tasks and not self._from_raw:
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
            local_lock = await LocalLock.acquire(settings.state_folder, own, request.label)
            await self._remove_old_runs(queue)
            lock = await self._lock(queue, key)
            spec = await self._spec(queue)
            new = NewRun(
                request.scraper.name,
                key,
                spec=spec,
                max_pages=settings.max_pages,
                seen_set=settings.seen,
                seen_for=settings.seen_for,
                dead_retention=settings.dead_retention,
            )
            wanted = StartRequest(
                new,
                tasks=lambda _: in_batches(tasks, paces),
                fresh=fresh,
                relimit="max_pages" in settings.sources,
                more=request.input is not None,
                name_format=settings.run_id_format,
            )
            started = await outputs.start_run(wanted, self._output, settings)
            run, exporter = started.run, started.output
            if started.outcome == "ended":
                return await self._finish_ended(queue, run, exporter)
            pool = self._supervisor(queue, run)
            seeder = await self._open_seeder(queue, run)
            driver = RunDriver(
                queue,
                run,
                pool,
                output=outputs,
                ui=self._ui,
                seeder=seeder,
                settings=settings,
                outage_timeout=app.queue_outage_timeout(settings),
            )
            await self._start_ui(queue, run, started.outcome, seeder)
            self._handle_signals(driver, pool)
            history = record_history(queue, stale_after=settings.stale_after)
            async with keep_renewed(lock, driver.stop), self._exporting_metrics(run, pool), history:
                stats = await driver.drive()
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

    @property
    def _mode(self) -> RunMode:
        return "distributed" if self._request.scraper.mode == "distributed" and not self._from_raw else "single"

    def _exporting_metrics(self, run: Run, pool: Supervisor) -> contextlib.AbstractAsyncContextManager[None]:
        """Figures go to a collector meanwhile, where one is named."""
        if not self._settings.otel:
            return contextlib.nullcontext()
        from shoal.view.metrics import worker_families

        return opentelemetry.report_metrics(
            self._settings, run.name, lambda: worker_families(run.name, pool.totals(), reachable=True, stopping=False)
        )

    async def _lock(self, queue: Queue, key: str) -> FleetLock | None:
        if self._mode == "distributed":
            return None
        request, file = self._request, self._settings.state_file is not None
        return await acquire_exclusive(queue, request.scraper.mode, request.scraper.name, key, request.label, file=file)

    async def _spec(self, queue: Queue) -> dict[str, Any]:
        spec = await run_spec(
            queue, self._request, self._settings, mode=self._mode, command=self._resume_command, output=self._output
        )
        if self._from_raw:
            spec["from_raw"] = self._from_raw = await self._find_raw_run(queue)
        return spec

    async def _find_raw_run(self, queue: Queue) -> str:
        raw_run = await resolve_run(queue, self._from_raw)
        if raw_run is None:
            raise UsageError(f"there is no run {self._from_raw}", hint="shoal runs lists them")
        raw_store = app.open_raw_store(self._settings)
        try:
            if raw_run.name not in {run.name for run in raw_store.runs()}:
                raise UsageError(f"run {raw_run.name} saved no responses", hint="crawl with --keep-raw first")
        finally:
            raw_store.close()
        return raw_run.name

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
            display_name=_relative_path(str(place)),
            on_message=self._ui.message,
        )

    def _supervisor(self, queue: Queue, run: Run) -> Supervisor:
        settings = self._settings
        job = RunJob(
            run,
            settings,
            target=self._request.target,
            template=int(run.spec.get("template_version", 0)),
            keep_duplicates=self._request.input is not None,
            from_raw=self._from_raw,
        )
        return worker_pool(queue, job, on_output_line=lambda _, line: self._ui.message(line.decode("utf-8", "replace")))

    def _handle_signals(self, driver: RunDriver, pool: Supervisor) -> None:
        asked = False

        def stop() -> None:
            nonlocal asked
            if asked:
                pool.kill()
                return
            asked = True
            self._ui.message("Stopping; pages in progress are returned. Ctrl-C again: now. Nothing is lost.")
            driver.stop()

        pool.on_drained = driver.stop
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    async def _remove_old_runs(self, queue: Queue) -> None:
        """What ended long ago is forgotten; 0 days keeps it for ever."""
        if self._settings.retention:
            await queue.purge(older_than=self._settings.retention * 86_400.0)
            await remove_expired_locks(queue, self._settings.retention * 86_400.0)
            await remove_leftovers(queue, self._settings)

    async def _start_ui(self, queue: Queue, run: Run, found: StartOutcome, seeder: ListSeeder | None) -> None:
        settings = self._settings
        if seeder:
            await seeder.start()
        self._ui.start(
            RunInfo(
                run=run,
                stats=await queue.stats(run.id),
                state=app.queue_label(settings),
                resumed=found == "continued",
                workers=pool_size(settings),
                concurrency=settings.concurrency,
                robots=not settings.ignore_robots,
                pace=self._describe_pace(seeder.paces if seeder else ()),
                output=_relative_path(self._output),
                notes=(*self._notes(run), *(seeder.notes() if seeder else ())),
            )
        )

    def _notes(self, run: Run) -> Iterator[str]:
        limit, asked = run.max_pages, self._settings.max_pages
        if asked != limit and (asked or limit):
            fixed = count(limit, "page") if limit else "none"
            yield f"The page limit of this run: {fixed}.   --max-pages changes it, --fresh starts over"
        yield from seen_set_note(run, self._settings)
        if self._from_raw:
            yield f"Using responses saved by run {self._from_raw}; nothing is fetched."
        if self._mode == "distributed":
            yield f"Other workers may join: {join_command(self._settings, run)}"
        began, now = run_code_version(run), registry.version_of(self._request.scraper)
        if self._request.target and began and began != now:
            yield f"The code has changed since this run began ({began}, now {now})."
        yield from request_notes(self._request)

    def _describe_pace(self, met: Collection[Pace]) -> str:
        """met: the paces of the hosts of a list, as far as it was read."""
        rule = app.pace_rule(self._settings)
        if self._request.input:
            paces = set(met) or {rule("example.com")}
        else:
            paces = {rule(task.lane) for task in app.seed_tasks(self._request.scraper, self._settings)[0]}
        spacing = max(pace.spacing for pace in paces)
        if not spacing:
            return "as fast as the site answers"
        return f"at most {format_rate(1 / spacing)} {'page' if spacing == 1 else 'pages'}/s per site"

    async def _finish_ended(self, queue: Queue, run: Run, exporter: Exporter | None) -> int:
        if self._request.input:
            await refuse_changed_list(self._request.input.source, self._settings.state_folder, run)
        stats = await checked_stats(queue, run)
        more = "--fresh starts over"
        if run.max_pages and stats.cancelled and run.state == "finished" and not self._request.input:
            more = "a higher --max-pages continues it within a day, --fresh starts over"
        self._ui.message(f"Run {run.name} of this command is already {run.state}.   {more}")
        return await self._finish(queue, run, stats, exporter, worked=False)

    async def _finish(
        self, queue: Queue, run: Run, stats: Stats, exporter: Exporter | None, *, worked: bool = True
    ) -> int:
        end: RunEnd = "complete"
        if run.state in ("running", "paused"):
            end = "interrupted"
        elif run.state == "cancelled":
            end = "cancelled"
        elif stats.failed:
            end = "dead"
        dead = tuple(await queue.dead_groups(run.id, limit=100_000))
        files = await write_files(queue, run, exporter, self._settings, dead) if exporter else []
        rejected = rejected_file(run, self._output, self._settings)
        if self._request.input and rejected.exists():
            report = load_report(self._settings.state_folder, run)
            files.append((str(rejected), report.not_added, describe_rejected(report)))
        fill: FieldRates = ()
        warnings: tuple[str, ...] = ()
        if self._request.chosen_fields and stats.records:
            from shoal.runs.fill_rates import read_fill_rates  # late: only templates need it

            fill, warnings = await read_fill_rates(
                queue, self._outputs.records, run, self._request.chosen_fields, final=end in ("complete", "dead")
            )
        first = () if exporter else await self._outputs.records.records(run.id, limit=PREVIEW_RECORDS)
        self._ui.finish(
            RunSummary(
                run=run,
                stats=stats,
                end=end,
                seconds=time.monotonic() - self._began if worked else 0.0,
                output=_relative_path(self._output),
                rows=exporter.rows if exporter else 0,
                dead=dead,
                resume_command=self._resume_command,
                files=tuple((_relative_path(name), rows, words) for name, rows, words in files),
                fill=fill,
                warnings=(*warnings, *(exporter.notes if exporter else ())),
                first=tuple(msgspec.json.decode(record.data) for record in first),
            )
        )
        return EXIT_CODES[end]


def _relative_path(path: str) -> str:
    """A path as people would type it from here."""
    if not path:
        return ""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
