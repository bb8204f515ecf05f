"""`shoal run`: a run on one machine, with worker processes under a supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shoal import app, telemetry
from shoal.closing import refuse_read, rejected_file, write_files
from shoal.config import Settings, beneath
from shoal.control.crawl import Crawl
from shoal.control.joining import worker_command
from shoal.control.lock import Lock, forget_locks, kept, only_here
from shoal.control.ownership import Ownership
from shoal.control.report import End, RunInfo, RunUi, Summary
from shoal.control.runs import Found, account, find, run_key, version_of
from shoal.control.sampling import sampled
from shoal.control.seeding import refuse_changed, rejected_words, report_of
from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.crew import COMMAND, crew_limits, crew_size
from shoal.errors import QueueUnavailable, Usage
from shoal.extract import registry
from shoal.forgetting import forget_purged
from shoal.job import Job
from shoal.manner import manners_of
from shoal.outlet import Outlet
from shoal.queue.base import Queue
from shoal.reading import Reading
from shoal.replay import replayed
from shoal.store.export import Exporter, check_output
from shoal.view.words import pace
from shoal.work import Mode, Work, notes_on, shared_key, spec_of, work_of
from shoal.worker.supervisor import Supervisor

if TYPE_CHECKING:
    from shoal.filling import Rates

EXIT: dict[End, int] = {"complete": 0, "dead": 3, "cancelled": 3, "interrupted": 4, "unbalanced": 1}
FIRST_SHOWN = 3  # records, where no output was asked for


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
) -> int:
    """Crawl, or go on crawling, until the end or until told to stop; answers the exit status.

    again: the command that goes on with it, for people.
    """
    place = str(Path(output).resolve()) if output else ""
    if place:
        check_output(Path(place))
        refuse_read(place, (target, *inputs))
    telemetry.check(settings)
    work = work_of(settings, target, inputs, fields or {}, column)
    settings = beneath(settings, work.scraper.settings, work.label)
    if from_raw:
        settings = replayed(settings)
    manners_of(settings, work.scraper)
    return asyncio.run(OneMachine(settings, work, place, ui, again, from_raw).run(fresh))


class OneMachine:
    def __init__(
        self, settings: Settings, work: Work, output: str, ui: RunUi, again: str, from_raw: str
    ) -> None:
        self._again = again
        self._settings = settings
        self._work = work
        self._output = output
        self._ui = ui
        self._from_raw = from_raw
        self._began = time.monotonic()

    async def run(self, fresh: bool) -> int:
        work, settings = self._work, self._settings
        tasks, paces = ([], {}) if work.input else app.start_of(work.scraper, settings)
        if tasks and not self._from_raw:
            app.check_reach(tasks, settings)
        inputs = [*(task.url for task in tasks), *work.identity, self._from_raw]
        own = run_key(work.scraper.name, inputs, self._output)
        # A shared run is the same wherever it is joined, whatever file each who joins writes.
        key = shared_key(work, tasks) if self._mode == "distributed" else own
        queue = await app.open_queue(settings)
        owner: Ownership | None = None
        lock: Lock | None = None
        outlet: Outlet | None = None
        try:
            outlet = self._outlet = await Outlet.open(queue, settings)
            owner = await Ownership.take(settings.state_folder, own, work.label)
            await self._tidy(queue)
            lock = await self._lock(queue, key)
            spec = await self._spec(queue)
            new = NewRun(work.scraper.name, key, spec=spec, max_pages=settings.max_pages)
            run, found, exporter = await app.begin(
                queue, new, settings, output=self._output, fresh=fresh, records=outlet.records
            )
            outlet.serve(run, exporter)
            if found == "ended":
                return await self._ended_before(queue, run, exporter)
            crew = self._supervisor(queue, run)
            reading = await self._reading(queue, run)
            crawl = Crawl(
                queue,
                run,
                crew,
                output=outlet,
                ui=self._ui,
                feed=reading,
                patience=app.patience_of(settings),
            )
            if reading is None:
                await crawl.seed(tasks, paces)
            await self._open(queue, run, found, reading)
            self._obey_signals(crawl, crew)
            history = sampled(queue, stale_after=settings.stale_after)
            async with kept(lock, crawl.stop), self._metered(run, crew), history:
                stats = await crawl.drive()
            return await self._close(queue, crawl.run, stats, exporter)
        finally:
            if outlet:
                await outlet.close()
            if lock:
                with contextlib.suppress(QueueUnavailable):
                    await lock.release()
            await queue.close()
            if owner:
                owner.release()

    @property
    def _mode(self) -> Mode:
        return "distributed" if self._work.scraper.mode == "distributed" and not self._from_raw else "single"

    def _metered(self, run: Run, crew: Supervisor) -> contextlib.AbstractAsyncContextManager[None]:
        """Figures go to a collector meanwhile, where one is named."""
        if not self._settings.otel:
            return contextlib.nullcontext()
        from shoal.view.metrics import worker_families

        return telemetry.metering(
            self._settings,
            run.name,
            lambda: worker_families(run.name, crew.totals(), reachable=True, stopping=False),
        )

    async def _lock(self, queue: Queue, key: str) -> Lock | None:
        if self._mode == "distributed":
            return None
        work, file = self._work, self._settings.state_file is not None
        return await only_here(queue, work.scraper.mode, work.scraper.name, key, work.label, file=file)

    async def _spec(self, queue: Queue) -> dict[str, Any]:
        spec = await spec_of(
            queue, self._work, self._settings, mode=self._mode, command=self._again, output=self._output
        )
        if self._from_raw:
            spec["from_raw"] = self._from_raw = await self._kept_run(queue)
        return spec

    async def _kept_run(self, queue: Queue) -> str:
        kept = await find(queue, self._from_raw)
        if kept is None:
            raise Usage(f"there is no run {self._from_raw}", hint="shoal runs lists them")
        shelf = app.raw_shelf(self._settings)
        try:
            if kept.name not in {run.name for run in shelf.runs()}:
                raise Usage(f"run {kept.name} kept no pages", hint="crawl with --keep-raw first")
        finally:
            shelf.close()
        return kept.name

    async def _reading(self, queue: Queue, run: Run) -> Reading | None:
        """The list on its way into the run."""
        if self._work.input is None:
            return None
        settings = self._settings
        place = rejected_file(run, self._output, settings)
        return await Reading.begin(
            queue,
            run,
            self._work.input,
            settings,
            rejects=place,
            called=_short(str(place)),
            say=self._ui.message,
        )

    def _supervisor(self, queue: Queue, run: Run) -> Supervisor:
        settings = self._settings
        job = Job(
            run,
            settings,
            target=self._work.target,
            template=int(run.spec.get("template_version", 0)),
            each=self._work.input is not None,
            from_raw=self._from_raw,
        )
        return Supervisor(
            COMMAND,
            crew_size(settings),
            queue,
            app.notes_folder(settings),
            settings=job.orders(),
            limits=crew_limits(settings),
            on_line=lambda _, line: self._ui.message(line.decode("utf-8", "replace")),
        )

    def _obey_signals(self, crawl: Crawl, crew: Supervisor) -> None:
        asked = False

        def stop() -> None:
            nonlocal asked
            if asked:
                crew.kill()
                return
            asked = True
            self._ui.message("Stopping; pages under way are handed back. Ctrl-C again: now. Nothing is lost.")
            crawl.stop()

        crew.on_drained = crawl.stop
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    async def _tidy(self, queue: Queue) -> None:
        """What ended long ago is forgotten; 0 days keeps it for ever."""
        if self._settings.retention:
            await queue.purge(older_than=self._settings.retention * 86_400.0)
            await forget_locks(queue, self._settings.retention * 86_400.0)
            await forget_purged(queue, self._settings)

    async def _open(self, queue: Queue, run: Run, found: Found, reading: Reading | None) -> None:
        settings = self._settings
        if reading:
            await reading.soon()
        self._ui.start(
            RunInfo(
                run=run,
                stats=await queue.stats(run.id),
                state=app.place_words(settings),
                resumed=found == "continued",
                workers=crew_size(settings),
                concurrency=settings.concurrency,
                robots=not settings.ignore_robots,
                pace=self._pace_words(reading.paces if reading else ()),
                output=_short(self._output),
                notes=(*self._notes(run), *(reading.notes() if reading else ())),
            )
        )

    def _notes(self, run: Run) -> Iterator[str]:
        limit, asked = run.max_pages, self._settings.max_pages
        if asked != limit and (asked or limit):
            fixed = f"{limit:,} pages" if limit else "none"
            yield f"The page limit was set when this run began: {fixed}.   --fresh starts over"
        if self._from_raw:
            yield f"Pages come from what run {self._from_raw} kept; nothing is fetched."
        if self._mode == "distributed":
            yield f"Others may join in: {worker_command(self._settings, run)}"
        began, now = version_of(run), registry.version_of(self._work.scraper)
        if self._work.target and began and began != now:
            yield f"The code has changed since this run began ({began}, now {now})."
        yield from notes_on(self._work)

    def _pace_words(self, met: Collection[Pace]) -> str:
        """met: the paces of the hosts of a list, as far as it was read."""
        rule = app.pace_rule(self._settings)
        if self._work.input:
            paces = set(met) or {rule("example.com")}
        else:
            paces = {rule(task.lane) for task in app.start_of(self._work.scraper, self._settings)[0]}
        spacing = max(pace.spacing for pace in paces)
        if not spacing:
            return "as fast as the site answers"
        return f"at most {pace(1 / spacing)} {'page' if spacing == 1 else 'pages'}/s per site"

    async def _ended_before(self, queue: Queue, run: Run, exporter: Exporter | None) -> int:
        if self._work.input:
            await refuse_changed(self._work.input.source, self._settings.state_folder, run)
        stats = await account(queue, run)
        self._ui.message(f"Run {run.name} of this command is {run.state} already.   --fresh starts over")
        return await self._close(queue, run, stats, exporter, worked=False)

    async def _close(
        self, queue: Queue, run: Run, stats: Stats, exporter: Exporter | None, *, worked: bool = True
    ) -> int:
        end: End = "complete"
        if run.state in ("running", "paused"):
            end = "interrupted"
        elif run.state == "cancelled":
            end = "cancelled"
        elif stats.dead:
            end = "dead"
        dead = tuple(await queue.dead_groups(run.id, limit=100_000))
        files = await write_files(queue, run, exporter, self._settings, dead) if exporter else []
        rejected = rejected_file(run, self._output, self._settings)
        if self._work.input and rejected.exists():
            report = report_of(self._settings.state_folder, run)
            files.append((str(rejected), report.aside, rejected_words(report)))
        fill: Rates = ()
        warnings: tuple[str, ...] = ()
        if self._work.chosen and stats.records:
            from shoal.filling import filled  # late: only templates need it

            fill, warnings = await filled(
                queue, self._outlet.records, run, self._work.chosen, final=end in ("complete", "dead")
            )
        first = () if exporter else await self._outlet.records.records(run.id, limit=FIRST_SHOWN)
        self._ui.finish(
            Summary(
                run=run,
                stats=stats,
                end=end,
                seconds=time.monotonic() - self._began if worked else 0.0,
                output=_short(self._output),
                rows=exporter.rows if exporter else 0,
                dead=dead,
                again=self._again,
                files=tuple((_short(name), rows, words) for name, rows, words in files),
                fill=fill,
                warnings=(*warnings, *(exporter.notes if exporter else ())),
                first=tuple(msgspec.json.decode(record.data) for record in first),
            )
        )
        return EXIT[end]


def _short(path: str) -> str:
    """A path as people would type it from here."""
    if not path:
        return ""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
