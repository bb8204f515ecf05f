"""Serving: what a member of the fleet needs for each run, built when its first task comes.

Two runs never share what they ask for differently: how requests introduce themselves, the limits of
answers, cookies, scope. What they ask for alike, connections above all, they share.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from typing import Any

from shoal.app import TEMPLATE, open_queue, raw_shelf
from shoal.config import Settings, beneath
from shoal.control.runs import version_of
from shoal.core.page import Request, Response
from shoal.core.run import Run
from shoal.equip import http_fetcher, page_fetchers, serve, template_scraper
from shoal.errors import Act, Usage
from shoal.extract import registry
from shoal.extract.budget import Budget
from shoal.extract.scraper import Scraper
from shoal.fetch.limits import Limits
from shoal.job import Duty, Job
from shoal.queue.base import Queue
from shoal.repertoire import Repertoire
from shoal.travelling import serving_settings, template_settings
from shoal.worker.note import Note
from shoal.worker.plan import Plan
from shoal.worker.roster import MANY, Roster
from shoal.worker.settler import PASSING
from shoal.worker.tools import Fetcher, NotServed, Served, Tools

log = logging.getLogger("shoal.worker")

# What makes fetchers differ.
_WIRE = ("user_agent", "http2", "allow_private", "ca_file", *Limits.__struct_fields__)
# Names of runs that files may be called after.
_plain = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}").fullmatch


class Wires:
    """Fetchers by what is asked of them; stalls and the end reach them all."""

    def __init__(self, settings: Settings) -> None:
        self._own = _wire(settings)
        self._fetchers: dict[tuple[Any, ...], Fetcher] = {self._own: http_fetcher(settings)}
        self._used: dict[int, tuple[Any, ...]] = {}

    def of(self, run: int, settings: Settings) -> Fetcher:
        key = _wire(settings)
        if key not in self._fetchers:
            self._fetchers[key] = http_fetcher(settings)
        self._used[run] = key
        return self._fetchers[key]

    def release(self, run: int) -> Fetcher | None:
        """The run has ended; its fetcher if nobody else uses it."""
        key = self._used.pop(run, self._own)
        if key == self._own or key in self._used.values():
            return None
        return self._fetchers.pop(key, None)

    async def fetch(self, request: Request) -> Response:
        return await self._fetchers[self._own].fetch(request)

    def note_stall(self, seconds: float) -> None:
        for fetcher in self._fetchers.values():
            fetcher.note_stall(seconds)

    async def close(self) -> None:
        for fetcher in self._fetchers.values():
            await fetcher.close()


def _wire(settings: Settings) -> tuple[Any, ...]:
    return tuple(getattr(settings, name) for name in _WIRE)


class Serving:
    def __init__(self, duty: Duty, repertoire: Repertoire, queue: Queue) -> None:
        self._settings = duty.settings
        self._repertoire = repertoire
        self._queue = queue
        self._wires = Wires(duty.settings)
        self._budgets: dict[float, Budget] = {}
        self._shelf: Any = None
        self._lock = asyncio.Lock()
        self._built: dict[int, Served] = {}
        self._refused: dict[int, str] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._tools: Tools | None = None
        limit = duty.settings.outbox_limit if duty.settings.store else 0
        self._roster = Roster(
            queue,
            repertoire.fits,
            clock=time.monotonic,
            names=repertoire.names,
            waiting_limit=limit,
            ended=self._ended,
        )

    def tools(self, note: Note) -> Tools:
        settings = self._settings
        self._tools = Tools(
            worker=note.worker,
            queue=self._queue,
            fetcher=self._wires,
            serve=self.serve,
            note=note,
            open_queue=lambda: open_queue(settings, small=True),
            keep=self._keep,
            budget=Budget(settings.parse_timeout),
            roster=self._roster,
            closing=self._close,
        )
        return self._tools

    async def serve(self, run: int) -> Served:
        """Everything for one run, made once; raises NotServed where that cannot be done."""
        async with self._lock:
            if run in self._refused:
                raise NotServed(self._refused[run])
            if run not in self._built:
                self._built[run] = await self._build(run)
            return self._built[run]

    async def _build(self, number: int) -> Served:
        run = self._roster.known(number) or await self._find(number)
        if run is None or run.state in ("finished", "cancelled"):
            # Nothing is made for it: nobody would tell us again that it has ended.
            raise NotServed(f"run {number} has ended")
        if not self._repertoire.fits(run):
            self._refused[number] = f"run {run.name} is not for this worker"
            self._roster.refuse(run)
            raise NotServed(self._refused[number])
        try:
            return await self._made(run)
        except PASSING:
            raise
        except OSError as error:  # of this machine: others may be able to serve it
            where = error.filename or "a file of this machine"
            hint = "put it right, then start this worker anew"
            self._refuse(run, Act(f"{where}: {error.strerror}", hint=hint))
            raise NotServed(str(error)) from error
        except Act as error:
            self._refuse(run, error)
            raise NotServed(str(error)) from error

    async def _find(self, number: int) -> Run | None:
        """A run that is not on our list: it has just begun, or just ended."""
        await self._roster.look()
        if known := self._roster.known(number):
            return known
        return next((run for run in await self._queue.runs(limit=MANY) if run.id == number), None)

    def _refuse(self, run: Run, error: Act) -> None:
        self._refused[run.id] = str(error)
        self._roster.refuse(run)
        log.warning("run_refused", extra={"run": run.name, "why": str(error), "hint": error.hint})

    async def _made(self, run: Run) -> Served:
        if not _plain(run.name):
            raise Usage(f"run {run.name!r} has a name that no file can have", hint="start it anew")
        spec = run.spec
        scraper = await self._scraper(run)
        self._compare(run, scraper)
        settings = serving_settings(self._settings, run)
        if spec.get(TEMPLATE):
            settings = template_settings(settings, scraper.settings, f"template {scraper.name}")
        else:
            settings = beneath(settings, scraper.settings, f"scraper {scraper.name}")
        job = Job(
            run,
            settings,
            each=bool(spec.get("each")),
            from_raw=str(spec.get("from_raw") or ""),
            sent="template" if spec.get(TEMPLATE) else "code",
        )
        if job.from_raw:
            self._check_kept(job.from_raw)
        fetchers = page_fetchers(job, lambda: self._wires.of(run.id, settings), self._raw_shelf)
        return serve(job, scraper, fetchers, self._queue, self._budget(settings.parse_timeout))

    async def _scraper(self, run: Run) -> Scraper:
        name = run.spec.get(TEMPLATE)
        if name:
            return await template_scraper(self._queue, str(name), int(run.spec.get("template_version") or 0))
        scraper = self._repertoire.scraper(run)
        if scraper is None:
            raise Usage(
                f"run {run.name} needs the scraper {run.scraper}, which this worker does not have",
                hint="start it with the file of that scraper: shoal worker FILE.py",
            )
        return scraper

    def _compare(self, run: Run, scraper: Scraper) -> None:
        begun, here = version_of(run), registry.version_of(scraper)
        if begun and here and begun != here:
            log.warning(
                "code_differs",
                extra={"run": run.name, "scraper": scraper.name, "started_with": begun, "here": here},
            )

    def _check_kept(self, name: str) -> None:
        if name not in {kept.name for kept in self._raw_shelf().runs()}:
            raise Usage(f"the pages that run {name} kept are on another machine", hint="work on it there")

    def _raw_shelf(self) -> Any:
        if self._shelf is None:
            self._shelf = raw_shelf(self._settings)
        return self._shelf

    def _budget(self, seconds: float) -> Budget | None:
        """None is that of the worker itself."""
        if seconds == self._settings.parse_timeout:
            return None
        return self._budgets.setdefault(seconds, Budget(seconds))

    async def _keep(self) -> None:
        if self._shelf is not None:
            await self._shelf.sync()

    def _ended(self, run: int) -> None:
        """A run has gone from our list: what was made for it goes, too."""
        self._built.pop(run, None)
        self._refused.pop(run, None)
        if self._tools is not None:
            self._tools.forget(run)
        fetcher = self._wires.release(run)
        if fetcher is not None:
            leaving = asyncio.create_task(fetcher.close())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)

    async def _close(self) -> None:
        for budget in self._budgets.values():
            await budget.close()


def plan_of(duty: Duty, repertoire: Repertoire) -> Plan:
    settings = duty.settings
    return Plan(
        name=duty.name,
        concurrency=settings.concurrency,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        stop_when_empty=False,
        patience=math.inf,
        batch_size=settings.batch_size,
        hints=True,
        titles=repertoire.titles,
        code=repertoire.code,
    )
