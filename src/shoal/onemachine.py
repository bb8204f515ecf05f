"""`shoal run`: a run on one machine, with worker processes under a supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from shoal import app
from shoal.closing import refuse_read, rejected_file, write_files
from shoal.config import Settings, beneath
from shoal.control.crawl import Crawl
from shoal.control.ownership import Ownership
from shoal.control.report import End, RunInfo, RunUi, Summary
from shoal.control.runs import Found, account, run_key
from shoal.control.seeding import refuse_changed, rejected_words, report_of
from shoal.core.lane import Pace
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import Usage
from shoal.forgetting import forget_purged
from shoal.job import Job
from shoal.logs import redact
from shoal.manner import manners_of
from shoal.queue.base import Queue
from shoal.reading import Reading
from shoal.replay import replayed
from shoal.store.export import Exporter, check_output
from shoal.work import Work, notes_on, template_spec, work_of
from shoal.worker.supervisor import Limits, Supervisor

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
        key = run_key(work.scraper.name, inputs, self._output)
        queue = await app.open_queue(settings)
        owner: Ownership | None = None
        exporter: Exporter | None = None
        try:
            owner = await Ownership.take(settings.state_folder, key, work.label)
            await self._tidy(queue)
            spec = await self._spec(queue)
            run, found, exporter = await app.begin(
                queue, work.scraper, settings, key=key, output=self._output, fresh=fresh, spec=spec
            )
            if found == "ended":
                return await self._ended_before(queue, run, exporter)
            crew = self._supervisor(queue, run)
            reading = await self._reading(queue, run)
            crawl = Crawl(queue, run, crew, output=exporter, ui=self._ui, feed=reading)
            await crawl.seed(tasks, paces)
            await self._open(queue, run, found, reading)
            self._obey_signals(crawl, crew)
            stats = await crawl.drive()
            return await self._close(queue, crawl.run, stats, exporter)
        finally:
            if exporter:
                exporter.close()
            await queue.close()
            if owner:
                owner.release()

    async def _spec(self, queue: Queue) -> dict[str, Any]:
        """What is kept with the run: enough to serve it, and what people may want to see."""
        spec: dict[str, Any] = {"command": redact(self._again), **await template_spec(queue, self._work)}
        if self._work.input is not None:
            spec["input"] = self._work.input.source.name
        if self._from_raw:
            spec["from_raw"] = self._from_raw = await self._kept_run(queue)
        return spec

    async def _kept_run(self, queue: Queue) -> str:
        named = self._from_raw
        found = await queue.runs(name=named, limit=2) or await queue.runs(name=named.upper(), limit=2)
        if not found:
            raise Usage(f"there is no run {named}", hint="shoal runs lists them")
        if len(found) > 1 and found[0].name != named.upper():
            raise Usage(f"{named} could be {found[0].name} or {found[1].name}", hint="give more of the name")
        shelf = app.raw_shelf(self._settings)
        try:
            if found[0].name not in {kept.name for kept in shelf.runs()}:
                raise Usage(f"run {found[0].name} kept no pages", hint="crawl with --keep-raw first")
        finally:
            shelf.close()
        return found[0].name

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
        limits = Limits(
            handler_timeout=settings.handler_timeout,
            memory=settings.worker_memory,
            lease=settings.lease,
            heartbeat=settings.heartbeat,
            retries=settings.retry_limits,
        )
        return Supervisor(
            # -P: no file in this folder stands in for a module of Python or of ours.
            [sys.executable, "-P", "-m", "shoal.child"],
            self._workers(),
            queue,
            app.notes_folder(settings),
            settings=job.orders(),
            limits=limits,
            on_line=lambda _, line: self._ui.message(line.decode("utf-8", "replace")),
        )

    def _workers(self) -> int:
        return self._settings.workers or max(
            1,
            min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1),
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

        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

    async def _tidy(self, queue: Queue) -> None:
        """What ended long ago is forgotten; 0 days keeps it for ever."""
        if self._settings.retention:
            await queue.purge(older_than=self._settings.retention * 86_400.0)
            await forget_purged(queue, self._settings)

    async def _open(self, queue: Queue, run: Run, found: Found, reading: Reading | None) -> None:
        settings = self._settings
        if reading:
            await reading.soon()
        self._ui.start(
            RunInfo(
                run=run,
                stats=await queue.stats(run.id),
                state=str(settings.state_file or settings.queue),
                resumed=found == "continued",
                workers=self._workers(),
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
        return f"at most {1 / spacing:.3g} {'page' if spacing == 1 else 'pages'}/s per site"

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

            fill, warnings = await filled(queue, run, self._work.chosen, final=end in ("complete", "dead"))
        first = () if exporter else await queue.records(run.id, limit=FIRST_SHOWN)
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
