"""`shoal run`: a run on one machine, with worker processes under a supervisor."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from shoal import app
from shoal.config import Settings, beneath
from shoal.control.crawl import Crawl
from shoal.control.ownership import Ownership
from shoal.control.report import End, RunInfo, RunUi, Summary
from shoal.control.runs import Found, account, run_key
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import Usage
from shoal.extract.load import load
from shoal.extract.scraper import Scraper
from shoal.job import Job
from shoal.queue.base import Queue
from shoal.store.export import Exporter, check_output
from shoal.worker.supervisor import Limits, Supervisor

EXIT: dict[End, int] = {"complete": 0, "dead": 3, "cancelled": 3, "interrupted": 4, "unbalanced": 1}


def run_command(
    settings: Settings,
    *,
    target: str,
    inputs: tuple[str, ...],
    output: str | None,
    fresh: bool,
    ui: RunUi,
    again: str = "",
) -> int:
    """Crawl, or go on crawling, until the end or until told to stop; answers the exit status.

    again: the command that goes on with it, for people.
    """
    if inputs:
        raise Usage(
            f"{inputs[0]}: a scraper takes no further inputs", hint="put its addresses into start=[…]"
        )
    place = str(Path(output).resolve()) if output else ""
    if place:
        check_output(Path(place))
    _check_target(target)
    try:
        scraper = load(target)
    except SystemExit as error:
        raise Usage(
            f"{target} ends the program with SystemExit: {error}", hint="let it only make a scraper"
        ) from error
    settings = beneath(settings, scraper.settings, f"scraper {scraper.name}")
    return asyncio.run(OneMachine(settings, scraper, target, place, ui, again).run(fresh))


class OneMachine:
    def __init__(
        self, settings: Settings, scraper: Scraper, target: str, output: str, ui: RunUi, again: str
    ) -> None:
        self._again = again
        self._settings = settings
        self._scraper = scraper
        self._target = target
        self._output = output
        self._ui = ui
        self._began = time.monotonic()

    async def run(self, fresh: bool) -> int:
        tasks, paces = app.start_of(self._scraper, self._settings)
        app.check_reach(tasks, self._settings)
        key = run_key(self._scraper.name, [task.url for task in tasks], self._output)
        queue = await app.open_queue(self._settings)
        owner: Ownership | None = None
        exporter: Exporter | None = None
        try:
            owner = await Ownership.take(self._settings.state_folder, key, f"scraper {self._scraper.name}")
            await self._tidy(queue)
            run, found, exporter = await app.begin(
                queue,
                self._scraper,
                self._settings,
                key=key,
                output=self._output,
                fresh=fresh,
                command=self._again,
            )
            if found == "ended":
                return await self._ended_before(queue, run, exporter)
            crew = self._supervisor(queue, run)
            crawl = Crawl(queue, run, crew, output=exporter, ui=self._ui)
            await crawl.seed(tasks, paces)
            await self._open(queue, run, found)
            self._obey_signals(crawl, crew)
            stats = await crawl.drive()
            return await self._close(queue, crawl.run, stats, exporter)
        finally:
            if exporter:
                exporter.close()
            await queue.close()
            if owner:
                owner.release()

    def _supervisor(self, queue: Queue, run: Run) -> Supervisor:
        settings = self._settings
        job = Job(_absolute(self._target), run, settings)
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

    async def _open(self, queue: Queue, run: Run, found: Found) -> None:
        settings = self._settings
        self._ui.start(
            RunInfo(
                run=run,
                stats=await queue.stats(run.id),
                state=str(settings.state_file or settings.queue),
                resumed=found == "continued",
                workers=self._workers(),
                concurrency=settings.concurrency,
                robots=not settings.ignore_robots,
                pace=self._pace_words(),
                output=_short(self._output),
                notes=tuple(self._notes(run)),
            )
        )

    def _notes(self, run: Run) -> Iterator[str]:
        limit, asked = run.max_pages, self._settings.max_pages
        if asked != limit and (asked or limit):
            fixed = f"{limit:,} pages" if limit else "none"
            yield f"The page limit was set when this run began: {fixed}.   --fresh starts over"
        if not self._scraper.handlers:
            yield f"Scraper {self._scraper.name} has no handler (@….page), so no record will be made."

    def _pace_words(self) -> str:
        paces = {
            app.pace_rule(self._settings)(task.lane)
            for task in app.start_of(self._scraper, self._settings)[0]
        }
        spacing = max(pace.spacing for pace in paces)
        if not spacing:
            return "as fast as the site answers"
        return f"at most {1 / spacing:.3g} {'page' if spacing == 1 else 'pages'}/s per site"

    async def _ended_before(self, queue: Queue, run: Run, exporter: Exporter | None) -> int:
        if exporter:
            await exporter.drain()
        stats = await account(queue, run)
        self._ui.message(f"Run {run.name} of this command is {run.state} already.   --fresh starts over")
        return await self._close(queue, run, stats, exporter, worked=False)

    async def _close(
        self, queue: Queue, run: Run, stats: Stats, exporter: Exporter | None, *, worked: bool = True
    ) -> int:
        end: End = "complete"
        if stats.open:
            end = "interrupted"
        elif run.state == "cancelled":
            end = "cancelled"
        elif stats.dead:
            end = "dead"
        self._ui.finish(
            Summary(
                run=run,
                stats=stats,
                end=end,
                seconds=time.monotonic() - self._began if worked else 0.0,
                output=_short(self._output),
                rows=exporter.rows if exporter else 0,
                dead=tuple(await queue.dead_groups(run.id)),
                again=self._again,
            )
        )
        return EXIT[end]


def _check_target(target: str) -> None:
    """Say what is wrong with things that people take for scrapers."""
    if "://" in target:
        raise Usage(f"{target} is an address, not a scraper", hint=f"shoal new site.py --start {target}")
    if Path(target).is_dir():
        raise Usage(f"{target} is a folder", hint="name the scraper's file in it, like books.py")
    if Path(target).is_file() and Path(target).suffix != ".py":
        raise Usage(
            f"{target} is not a Python file",
            hint="a scraper, which may read it: shoal new books.py writes one",
        )


def _absolute(target: str) -> str:
    """A file is found from any folder, a module by its name."""
    place, colon, name = target.partition(":")
    return f"{Path(place).resolve()}{colon}{name}" if Path(place).is_file() else target


def _short(path: str) -> str:
    """A path as people would type it from here."""
    if not path:
        return ""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except ValueError:
        return path
