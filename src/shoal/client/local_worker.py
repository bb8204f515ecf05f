"""A worker for typed tasks inside this process, without child processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import NoReturn

from shoal import app
from shoal.config.load import Settings
from shoal.control.maintenance import Maintenance
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.page import Request
from shoal.core.task import Task
from shoal.core.typed_task import TYPE_PREFIX
from shoal.errors import ActionRequired, GiveUp, Retry
from shoal.extract.links import AdmittedLinks
from shoal.extract.page import Follow
from shoal.extract.scraper import Scraper
from shoal.launch.worker_pool import supervisor_name
from shoal.queue.base import Queue
from shoal.queue.daily_runs import ALL_RUNS, list_daily_runs
from shoal.runs.relay import Relay
from shoal.store.results.base import open_results
from shoal.web.push.port import PortConfig, worker_port
from shoal.worker.context import RunContext, WorkerContext
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.pool.in_process import InProcessWorker
from shoal.worker.pool.recovery import recover_dead_workers

POLL_EVERY = 0.2


class NoFetcher:
    """Takes the place of a fetcher: typed tasks bring their own clients."""

    async def fetch(self, request: Request) -> NoReturn:
        raise GiveUp("no_handler", "this worker handles tasks, not pages")

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class NoLinkGate:
    """Takes the place of the link gate: typed tasks have no links."""

    def admit(
        self,
        follows: Iterable[Follow],
        *,
        depth: int,
        parent: int,
        origin_url: str,
        again: int = 0,
        listed: bool = False,
    ) -> AdmittedLinks:
        return AdmittedLinks()

    def note_unhandled(self, urls: Iterable[str], *, origin_url: str) -> tuple[tuple[str, str], ...]:
        return ()

    def mark_committed(self, tasks: Iterable[Task]) -> None: ...


async def run_worker(
    scraper: Scraper, settings: Settings, stopping: asyncio.Event, *, exit_when_done: bool = False
) -> None:
    """Work on the task types of a scraper until asked to stop, or until no task of them is left."""
    async with contextlib.AsyncExitStack() as stack:
        queue = await app.open_queue(settings)
        stack.push_async_callback(queue.close)
        relay = None
        if settings.store:
            store = await open_results(settings.store)
            stack.push_async_callback(store.close)
            relay = Relay(queue, store)
        maintenance = Maintenance(queue, reap=False, relay=relay, stale_after=settings.stale_after)
        await _work_until_stopped(scraper, settings, queue, maintenance, stopping, exit_when_done)


async def _work_until_stopped(
    scraper: Scraper,
    settings: Settings,
    queue: Queue,
    maintenance: Maintenance,
    stopping: asyncio.Event,
    exit_when_done: bool,
) -> None:
    port_config = PortConfig.of(settings)
    context = await _worker_context(scraper, queue, settings)
    plan = _plan(scraper, settings, context.worker)
    pool = InProcessWorker(context, plan, maintenance.reap_interval)
    maintenance_task = asyncio.create_task(maintenance.run(stopping))
    try:
        await _open_client(context, scraper)
        await pool.start()
        async with contextlib.AsyncExitStack() as stack:
            if port_config is not None:
                port = worker_port(
                    port_config,
                    queue,
                    settings,
                    pool.push_targets(),
                    name=context.worker,
                    serves=plan.scraper_names,
                    can_run=lambda run: False,  # it handles tasks, not pages
                    is_stopping=stopping.is_set,
                )
                await stack.enter_async_context(port)
            while not stopping.is_set() and await pool.check():
                if exit_when_done and await _is_done(queue, scraper):
                    break
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), POLL_EVERY)
    finally:
        await pool.stop()
        stopping.set()
        await maintenance_task


async def _open_client(context: WorkerContext, scraper: Scraper) -> None:
    """Open the client before the first task, so that a failure is reported at once."""
    try:
        await context.clients.client_for(scraper)
    except Retry as error:
        raise ActionRequired(str(error), hint="fix that and start it again; the tasks wait") from error


async def _worker_context(scraper: Scraper, queue: Queue, settings: Settings) -> WorkerContext:
    worker = supervisor_name(settings)
    if settings.state_file is None:
        note = CrashNote.in_memory(worker)
    else:
        await recover_dead_workers(queue, app.crash_notes_folder(settings))
        note = CrashNote.create(app.crash_notes_folder(settings), worker)

    async def serve(run: int) -> RunContext:
        known = {one.id: one for one in await list_daily_runs(queue)}
        return RunContext(
            scraper,
            NoLinkGate(),
            None,
            lambda lane: UNLIMITED_PACE,
            name=known[run].name if run in known else "",
            title=known[run].scraper if run in known else "",
            handler_timeout=settings.handler_timeout,
            retries=settings.retry_limits,
            retry_delay=settings.retry_delay,
        )

    return WorkerContext(
        worker=worker,
        queue=queue,
        fetcher=NoFetcher(),
        build_run_context=serve,
        crash_note=note,
        open_queue=lambda: app.open_queue(settings, small=True),
        supervised=False,
    )


def _plan(scraper: Scraper, settings: Settings, worker: str) -> WorkerPlan:
    types = tuple(name for name in scraper.serves if name.startswith(TYPE_PREFIX))
    return WorkerPlan(
        name=worker,
        concurrency=settings.concurrency,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        capabilities=settings.has,
        batch_size=settings.batch_size,
        serves=types,
        scraper_names=types,
        stop_when_empty=False,
        use_wakeups=True,
    )


async def _is_done(queue: Queue, scraper: Scraper) -> bool:
    for run in await queue.runs(states=("running", "paused"), limit=ALL_RUNS):
        if run.scraper in scraper.serves and not (await queue.stats(run.id)).is_over:
            return False
    return True
