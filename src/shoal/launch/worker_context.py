"""Worker context: what a worker needs, for the one run of a command or for any run of a fleet.

Two runs never share what they ask for differently: how requests introduce themselves, the limits of
answers, cookies, scope. What they ask for alike, connections above all, they share.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import math
import time

import msgspec

from shoal.app import open_queue, rate_file
from shoal.config.load import Settings, with_defaults
from shoal.config.run_settings import settings_for_run, settings_for_template
from shoal.core.capability import BROWSER
from shoal.core.name_format import file_name_of
from shoal.core.run import Run
from shoal.errors import ActionRequired, UsageError
from shoal.extract import registry
from shoal.extract.load import load_scraper
from shoal.extract.parse_budget import ParseBudget
from shoal.extract.scraper import Scraper
from shoal.fetch.browser.program import missing_reason
from shoal.fetch.exits.exit_set import ExitSet
from shoal.fetch.sessions.seal import SessionSeal
from shoal.launch.browsers import BrowserSet
from shoal.launch.fetchers import FetcherPool, http_fetcher, run_fetchers
from shoal.launch.job import FleetJob, RunJob, guard_policy
from shoal.launch.raw_stores import RawStores
from shoal.launch.response_cache import ResponseCache
from shoal.launch.run_context import build_run_context
from shoal.launch.scraper_set import ScraperSet
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS
from shoal.runs.identity import run_code_version
from shoal.worker.context import RunContext, RunNotServed, WorkerContext
from shoal.worker.page_states import PageStateBuffer
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.run_list import MAX_RUNS, RunList
from shoal.worker.sessions import SharedSessions
from shoal.worker.start_rate import StartRate

log = logging.getLogger("shoal.worker")


async def load_job_scraper(job: RunJob, queue: Queue) -> Scraper:
    """The scraper of a job: its code, or the template that the queue keeps."""
    if job.target:
        return load_scraper(job.target)
    return await load_template_scraper(queue, job.run.scraper, job.template)


async def load_template_scraper(queue: Queue, name: str, version: int) -> Scraper:
    """The scraper of a template that the queue keeps."""
    from shoal.extract.template import Template, TemplateScraper

    document = await queue.document(kinds.TEMPLATE, name, version)
    if document is None:
        raise UsageError(
            f"the queue has no template {name} of version {version}",
            hint="run the command again with the template's file",
        )
    try:
        return TemplateScraper(msgspec.json.decode(document.text, type=Template))
    except (msgspec.DecodeError, ValueError) as error:
        raise UsageError(
            f"template {name} of version {version} is not understood here: {error}",
            hint="it may come from a newer shoal: upgrade this one",
        ) from error


async def build_worker_context(
    scraper: Scraper, job: RunJob, *, queue: Queue, note: CrashNote, supervised: bool
) -> WorkerContext:
    settings, exits = job.settings, ExitSet(job.settings.exits.values())
    fetchers = run_fetchers(
        job, lambda: http_fetcher(settings, exits), RawStores(settings), ResponseCache(queue, settings)
    )
    page_states, browsers = PageStateBuffer(queue), BrowserSet(exits)
    if not missing_reason(settings.browser):
        fetchers = dataclasses.replace(fetchers, browser=browsers.for_run(job.run.id, settings))
    sessions = shared_sessions(settings, queue, note.worker)
    run_context = build_run_context(job, scraper, fetchers, queue, page_states, None, sessions)

    async def serve_run(_: int) -> RunContext:
        return run_context

    async def close() -> None:
        await browsers.close()
        await exits.close()

    context = WorkerContext(
        worker=note.worker,
        queue=queue,
        fetcher=fetchers.pages,
        build_run_context=serve_run,
        crash_note=note,
        open_queue=lambda: open_queue(settings, small=True),
        flush_pages=fetchers.keep,
        page_states=page_states,
        budget=ParseBudget(settings.parse_timeout),
        supervised=supervised,
        start_limit=start_rate(settings, file_name_of(job.run.name)),
        sessions=sessions,
        on_close=close,
    )
    context.counters.exits, context.new_circuit = exits.counters, exits.new_circuit
    return context


class FleetContextFactory:
    def __init__(self, fleet_job: FleetJob, scraper_set: ScraperSet, queue: Queue) -> None:
        self._settings = fleet_job.settings
        self._scraper_set = scraper_set
        self._queue = queue
        self._exits = ExitSet(fleet_job.settings.exits.values())
        self._fetcher_pool = FetcherPool(fleet_job.settings, self._exits)
        self._browsers = BrowserSet(self._exits)
        self._budgets: dict[float, ParseBudget] = {}
        self._raw_stores = RawStores(fleet_job.settings)
        self._page_states = PageStateBuffer(queue)
        self._response_cache = ResponseCache(queue, fleet_job.settings)
        self._lock = asyncio.Lock()
        self._contexts: dict[int, RunContext] = {}
        self._refused: dict[int, str] = {}
        self._closing_fetchers: set[asyncio.Task[None]] = set()
        self._tools: WorkerContext | None = None
        self._sessions: SharedSessions | None = None
        self._start_rate = start_rate(fleet_job.settings, fleet_job.rate_name or fleet_job.name)
        limit = fleet_job.settings.outbox_limit if fleet_job.settings.store else 0
        self._run_list = RunList(
            queue,
            scraper_set.accepts,
            clock=time.monotonic,
            scraper_names=scraper_set.names,
            store_backlog_limit=limit,
            on_run_ended=self._forget_run,
        )

    def worker_context(self, note: CrashNote) -> WorkerContext:
        settings = self._settings
        self._sessions = shared_sessions(settings, self._queue, note.worker)
        self._tools = WorkerContext(
            worker=note.worker,
            queue=self._queue,
            fetcher=self._fetcher_pool,
            build_run_context=self.serve,
            crash_note=note,
            open_queue=lambda: open_queue(settings, small=True),
            flush_pages=self._raw_stores.sync,
            page_states=self._page_states,
            budget=ParseBudget(settings.parse_timeout),
            run_list=self._run_list,
            on_close=self._close,
            start_limit=self._start_rate,
            sessions=self._sessions,
        )
        self._tools.counters.exits, self._tools.new_circuit = self._exits.counters, self._exits.new_circuit
        return self._tools

    async def serve(self, run: int) -> RunContext:
        """The context of one run, built once; raises NotServed where that is not possible."""
        async with self._lock:
            if run in self._refused:
                raise RunNotServed(self._refused[run])
            if run not in self._contexts:
                self._contexts[run] = await self._context_or_refuse(run)
            return self._contexts[run]

    async def _context_or_refuse(self, number: int) -> RunContext:
        run = self._run_list.find(number) or await self._find(number)
        if run is None or run.state in ("finished", "cancelled"):
            # Nothing is made for it: nobody would tell us again that it has ended.
            raise RunNotServed(f"run {number} has ended")
        if not self._scraper_set.accepts(run):
            self._refused[number] = f"run {run.name} is not for this worker"
            self._run_list.refuse(run)
            raise RunNotServed(self._refused[number])
        if run.garbled:
            hint = f"shoal cancel {run.name}, then start it again; and see who else can write to the queue"
            self._refuse(run, ActionRequired(f"run {run.name} cannot be served: {run.garbled}", hint=hint))
            raise RunNotServed(run.garbled)
        try:
            return await self._build_context(run)
        except TRANSIENT_ERRORS:
            raise
        except OSError as error:  # of this machine: others may be able to serve it
            where = error.filename or "a file of this machine"
            hint = "fix it, then restart this worker"
            self._refuse(run, ActionRequired(f"{where}: {error.strerror}", hint=hint))
            raise RunNotServed(str(error)) from error
        except ActionRequired as error:
            self._refuse(run, error)
            raise RunNotServed(str(error)) from error

    async def _find(self, number: int) -> Run | None:
        """A run that is not on our list: it has just begun, or just ended."""
        await self._run_list.refresh()
        if known := self._run_list.find(number):
            return known
        return next((run for run in await self._queue.runs(limit=MAX_RUNS) if run.id == number), None)

    def _refuse(self, run: Run, error: ActionRequired) -> None:
        self._refused[run.id] = str(error)
        self._run_list.refuse(run)
        log.warning("run_refused", extra={"run": run.name, "why": str(error), "hint": error.hint})

    async def _build_context(self, run: Run) -> RunContext:
        file_name_of(run.name)
        spec = run.spec
        scraper = await self._scraper(run)
        self._warn_if_code_differs(run, scraper)
        settings = settings_for_run(self._settings, run)
        if spec.get("template"):
            settings = settings_for_template(settings, scraper.settings, f"template {scraper.name}")
        else:
            settings = with_defaults(settings, scraper.settings, f"scraper {scraper.name}")
        if spec.get("from_raw") or spec.get("folder"):
            raise UsageError(
                f"run {run.name} asks for pages saved on a machine, which only commands on that machine read",
                hint="there: shoal run … --from-raw RUN, or shoal run FOLDER …",
            )
        job = RunJob(
            run, settings, keep_duplicates=bool(spec.get("each")), sent="template" if spec.get("template") else "code"
        )
        fetchers = run_fetchers(
            job, lambda: self._fetcher_pool.for_run(run.id, settings), self._raw_stores, self._response_cache
        )
        if BROWSER in self._settings.has:
            fetchers = dataclasses.replace(fetchers, browser=self._browsers.for_run(run.id, settings))
        budget = self._budget(settings.parse_timeout)
        return build_run_context(job, scraper, fetchers, self._queue, self._page_states, budget, self._sessions)

    async def _scraper(self, run: Run) -> Scraper:
        name = run.spec.get("template")
        if name:
            return await load_template_scraper(self._queue, str(name), int(run.spec.get("template_version") or 0))
        scraper = self._scraper_set.scraper(run)
        if scraper is None:
            raise UsageError(
                f"run {run.name} needs the scraper {run.scraper}, which this worker does not have",
                hint="start it with the file of that scraper: shoal worker FILE.py",
            )
        return scraper

    def _warn_if_code_differs(self, run: Run, scraper: Scraper) -> None:
        begun, loaded = run_code_version(run), registry.version_of(scraper)
        if begun and loaded and begun != loaded:
            log.warning(
                "code_differs", extra={"run": run.name, "scraper": scraper.name, "started_with": begun, "here": loaded}
            )

    def _budget(self, seconds: float) -> ParseBudget | None:
        """None is that of the worker itself."""
        if seconds == self._settings.parse_timeout:
            return None
        return self._budgets.setdefault(seconds, ParseBudget(seconds))

    def _forget_run(self, run: int) -> None:
        """A run has gone from our list: what was made for it goes, too."""
        self._contexts.pop(run, None)
        self._refused.pop(run, None)
        if self._tools is not None:
            self._tools.forget(run)
        for unused in (self._fetcher_pool.release(run), self._browsers.release(run)):
            if unused is None:
                continue
            closing = asyncio.create_task(unused.close())
            self._closing_fetchers.add(closing)
            closing.add_done_callback(self._closing_fetchers.discard)

    async def _close(self) -> None:
        self._response_cache.close()
        await self._browsers.close()
        await self._exits.close()
        if self._start_rate is not None:
            self._start_rate.close()
        for budget in self._budgets.values():
            await budget.close()


def shared_sessions(settings: Settings, queue: Queue, worker: str) -> SharedSessions | None:
    """The sessions of this machine; None if it has none."""
    if not settings.sessions:
        return None
    return SharedSessions(queue, settings.sessions, SessionSeal(settings.session_key), worker)


def start_rate(settings: Settings, worker: str) -> StartRate | None:
    """What all processes of one worker share, if it is to start no more than so many pages per second."""
    return StartRate(rate_file(settings, worker), settings.worker_rate) if settings.worker_rate else None


def fleet_plan(fleet_job: FleetJob, scraper_set: ScraperSet) -> WorkerPlan:
    settings = fleet_job.settings
    return WorkerPlan(
        name=fleet_job.name,
        concurrency=settings.concurrency,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        capabilities=settings.has,
        stop_when_empty=False,
        outage_timeout=math.inf,
        batch_size=settings.batch_size,
        use_wakeups=True,
        scraper_names=scraper_set.scraper_names,
        code_versions=scraper_set.code,
        resources=guard_policy(settings),
        folder=str(settings.state_folder),
    )
