"""`shoal worker`: a fleet worker: processes under a supervisor, and a share of the queue's maintenance."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import msgspec

from shoal import app
from shoal.commands.worker_ui import PlainWorkerUi, WorkerSnapshot, WorkerUi
from shoal.config.load import Settings
from shoal.config.run_settings import settings_for_run
from shoal.control import join_command, schedule_runner
from shoal.control.celery.configured import celery_duties
from shoal.control.maintenance import RUNNING_STATES, Maintenance
from shoal.control.queue_probe import QueueProbe
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.launch.broker_relay import relaying, require_carried
from shoal.launch.job import FleetJob, pool_size
from shoal.launch.request_options import check_sessions
from shoal.launch.scraper_set import ScraperSet
from shoal.launch.service_manager import ReportReady, reported_service
from shoal.launch.signals import stop_on_signals
from shoal.launch.worker_pool import supervisor_name, unused_supervisor_name, worker_pool
from shoal.queue.base import Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS, WaitStopped, reconnecting
from shoal.queue.shards.shard_map import check_is_whole
from shoal.runs.cleanup import remove_leftovers
from shoal.runs.identity import is_server_run, is_single_process, resolve_run
from shoal.runs.relay import Relay
from shoal.store.results.base import ResultBackend, open_results
from shoal.view import opentelemetry
from shoal.view.health_server import HealthServer, parse_listen_address
from shoal.view.metric_family import MetricFamily, prometheus_text
from shoal.view.metrics import worker_families
from shoal.web.push.port import PortConfig, WorkerPort, worker_port
from shoal.worker.futures import cancel_all
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.supervisor import Supervisor
from shoal.worker.pool.totals import PoolTotals
from shoal.worker.run_list import MAX_RUNS

T = TypeVar("T")

POLL_EVERY = 0.25
RUNS_EVERY = 0.5
NAMES_SHOWN = 5  # scrapers
CHECKUP_TIMEOUT = 3.0  # seconds for a look at the server at the start
FINISH_SHARE = 2 / 3  # of the grace period, for pages in progress; the rest is for returning them
AWAY_GRACE = 2.0  # seconds for processes to end while nothing can be handed back
PROBE_INTERVAL = 2.0
SILENCE_LIMIT = 15.0  # seconds without an answer of the queue after which we are not ready
STOPPED_UNREACHABLE = "Stopped. The queue does not answer; tasks in progress go to others when their leases expire."


def worker_command(
    settings: Settings,
    *,
    targets: tuple[str, ...] = (),
    run: str = "",
    scrapers: tuple[str, ...] = (),
    exit_when_done: bool = False,
    relay: bool = False,
    ui: WorkerUi | None = None,
) -> int:
    """Work for the fleet until told to stop; answers the exit status."""
    if relay:
        require_carried(settings)
    fleet_job = FleetJob(settings, supervisor_name(settings), tuple(targets), tuple(scrapers), run)
    worker = _fleet_worker(fleet_job, ui, exit_when_done=exit_when_done)
    worker.relay = relay
    return asyncio.run(worker.work())


def work_for_fleet(fleet_job: FleetJob) -> int:
    """The same for a job that another program has put together."""
    return asyncio.run(_fleet_worker(fleet_job, None).work())


async def work(settings: Settings, *, targets: tuple[str, ...] = (), ui: WorkerUi | None = None) -> int:
    """The same inside the event loop of another program, until it is cancelled."""
    fleet_job = FleetJob(settings, supervisor_name(settings), tuple(targets))
    return await _fleet_worker(fleet_job, ui).work(guest=True)


def _fleet_worker(fleet_job: FleetJob, ui: WorkerUi | None, *, exit_when_done: bool = False) -> FleetWorker:
    opentelemetry.check_installed(fleet_job.settings)
    check_sessions(fleet_job.settings)
    scraper_set = ScraperSet.load(fleet_job)  # what is wrong with the code is said before anything else
    return FleetWorker(fleet_job, scraper_set, ui or PlainWorkerUi(), exit_when_done=exit_when_done)


class FleetWorker:
    def __init__(self, fleet_job: FleetJob, scraper_set: ScraperSet, ui: WorkerUi, *, exit_when_done: bool) -> None:
        self._fleet_job = fleet_job
        self._settings = fleet_job.settings
        self._health_address = parse_listen_address(self._settings.health) if self._settings.health else None
        self._port_config = PortConfig.of(self._settings)
        self._scraper_set = scraper_set
        self._ui = ui
        self._exit_when_done = exit_when_done
        self._stopped = asyncio.Event()
        self._stopped_at = 0.0
        self._run: Run | None = None
        self._seen_runs: dict[int, Run] = {}  # every run of ours that was ever seen
        self._pool: Supervisor | None = None
        self._maintenance: Maintenance | None = None
        self.relay = False  # whether this process is a relay, too
        self._report_ready: ReportReady = lambda words: None

    async def work(self, *, guest: bool = False) -> int:
        """Work until stopped; as a guest, in the event loop of a program that may handle signals itself."""
        with stop_on_signals(self.stop, guest=guest):
            async with contextlib.AsyncExitStack() as stack:
                if not guest:  # what the other program is to systemd is its own business
                    self._report_ready = await stack.enter_async_context(reported_service())
                if self.relay:
                    await stack.enter_async_context(relaying(self._settings, self._ui.message))
                return await self._work()

    async def _work(self) -> int:
        queue = await self._open_queue()
        if queue is None:
            return 0
        try:
            if await self._until_stopped(self._prepare(queue)) is None:
                return 0
            store = await open_results(self._settings.store) if self._settings.store else None
            try:
                return await self._with_store(queue, store)
            finally:
                if store is not None:
                    await store.close()
        finally:
            await queue.close()
            app.rate_file(self._settings, self._fleet_job.name).unlink(missing_ok=True)

    async def _prepare(self, queue: Queue) -> bool:
        await check_is_whole(queue)
        name = await unused_supervisor_name(queue, self._settings, self._fleet_job.name)
        self._fleet_job = msgspec.structs.replace(self._fleet_job, name=name)
        await self._pick_run(queue)
        return True

    async def _with_store(self, queue: Queue, store: ResultBackend | None) -> int:
        settings = self._settings
        self._maintenance = Maintenance(
            queue,
            reap=False,  # the supervisor does
            retention=settings.retention * 86_400.0,
            after_purge=lambda: remove_leftovers(queue, settings),
            tick=schedule_runner.tick,
            relay=Relay(queue, store) if store is not None else None,
            stale_after=settings.stale_after,
            extra_jobs=celery_duties(queue, settings),
        )
        pool = self._pool = self._supervisor(queue)
        pool.reaper.interval = self._maintenance.reap_interval
        async with (
            contextlib.AsyncExitStack() as stack,
            HealthServer(self) as probe,
            opentelemetry.report_metrics(settings, self._fleet_job.name, self.families),
        ):
            if self._health_address is not None:
                await probe.start(*self._health_address)
            port = await stack.enter_async_context(self._worker_port(queue, pool)) if self._port_config else None
            self._announce(probe.url, port.url if port else "")
            ended, queue_probe = asyncio.Event(), QueueProbe(queue, interval=PROBE_INTERVAL)
            probing = asyncio.create_task(queue_probe.run(), name="queue-probe")
            maintenance_task = asyncio.create_task(self._maintenance.run(ended), name="maintenance")
            try:
                code = await self._until_stopped(self._run_pool(queue, pool, maintenance_task))
            finally:
                await self._stop_pool(pool, queue_probe.away)
                probing.cancel()
                ended.set()
                await asyncio.wait([maintenance_task], timeout=0.5 if queue_probe.away.is_set() else 2.0)
                maintenance_task.cancel()
        if code is None:
            done = "Stopped; tasks in progress are done or returned."
            self._ui.message(STOPPED_UNREACHABLE if pool.has_unreported_exits else done)
            return 0
        return code

    async def _open_queue(self) -> Queue | None:
        """The queue, waited for if it is not up yet. None: we were stopped meanwhile."""

        async def open_unless_stopped() -> Queue:
            if self._stopped.is_set():
                raise WaitStopped
            return await app.open_queue(self._settings)

        def note_failure(error: Exception, tries: int) -> None:
            if tries == 1:
                self._ui.message(f"Waiting for the queue: {error}")

        try:
            return await reconnecting(
                open_unless_stopped,
                WorkerPlan().outage_timeout,
                errors=TRANSIENT_ERRORS,
                on_failure=note_failure,
                sleep=self._sleep,
            )
        except WaitStopped:
            return None

    async def _pick_run(self, queue: Queue) -> None:
        """Only one run: find it by what was typed, and say so at once if we cannot serve it."""
        named = self._fleet_job.run
        if not named:
            return
        run = await resolve_run(queue, named)
        if run is None:
            raise UsageError(f"there is no run {named} in this queue", hint="shoal runs lists them")
        if is_single_process(run):
            raise UsageError(
                f"run {run.name} is worked on only by the process that started it",
                hint="shoal submit starts runs that workers share",
            )
        self._fleet_job = msgspec.structs.replace(self._fleet_job, run=run.name)
        self._scraper_set = self._scraper_set.for_run(run)
        settings_for_run(self._settings, run)  # says what is wrong with them
        if not self._scraper_set.can_run(run):
            raise UsageError(
                f"run {run.name} needs the scraper {run.scraper}, which was not given",
                hint=join_command.join_command(self._settings, run),
            )
        self._run = run

    def _supervisor(self, queue: Queue) -> Supervisor:
        async def find_run(number: int) -> Run | None:
            if number in self._seen_runs:
                return self._seen_runs[number]
            return next((run for run in await queue.runs(limit=MAX_RUNS) if run.id == number), None)

        return worker_pool(
            queue,
            self._fleet_job,
            find_run=find_run,
            on_output_line=lambda _, line: self._ui.message(line.decode("utf-8", "replace")),
        )

    def _worker_port(self, queue: Queue, pool: Supervisor) -> WorkerPort:
        assert self._port_config is not None
        return worker_port(
            self._port_config,
            queue,
            self._settings,
            pool.push_targets(),
            name=self._fleet_job.name,
            serves=self._scraper_set.names,
            can_run=self._scraper_set.accepts,
            is_stopping=self._stopped.is_set,
        )

    def _announce(self, probe: str, port: str) -> None:
        settings = self._settings
        serves = f"run {self._run.name}" if self._run else ", ".join(self._scraper_set.scraper_names)
        count = pool_size(settings)
        processes = "1 process" if count == 1 else f"{count} processes"
        parts = [f"worker {self._fleet_job.name}", app.queue_label(settings), f"serves {serves}"]
        parts.append(f"{processes} × {settings.concurrency} at once")
        if probe:
            parts.append(f"{probe}/health")
        if port:
            parts.append(f"accepts tasks at {port}")
        self._ui.message(" · ".join(parts))

    async def _report_concerns(self, queue: Queue) -> None:
        """What may cost work one day, such as a server that keeps nothing on disk, is said from the start."""
        if self._settings.state_file is not None:
            return
        with contextlib.suppress(TimeoutError, *TRANSIENT_ERRORS):
            async with asyncio.timeout(CHECKUP_TIMEOUT):
                for finding in await queue.diagnose():
                    if finding.level in ("warning", "wrong"):
                        self._ui.message(f"{finding.what}: {finding.words}   try: {finding.fix}")

    async def _report_unserved(self, queue: Queue) -> None:
        """Runs that wait for others are no secret: whoever started the wrong code sees it here."""
        if self._run is not None:
            return
        with contextlib.suppress(*TRANSIENT_ERRORS):
            runs = await queue.runs(states=RUNNING_STATES, limit=MAX_RUNS)
            others = {
                run.scraper
                for run in runs
                if not is_single_process(run) and not is_server_run(run) and not self._scraper_set.can_run(run)
            }
            if others:
                names = ", ".join(sorted(others)[:NAMES_SHOWN]) + (" …" if len(others) > NAMES_SHOWN else "")
                self._ui.message(f"Unfinished runs of these are not served here: {names}")

    async def _run_pool(self, queue: Queue, pool: Supervisor, maintenance_task: asyncio.Task[None]) -> int | None:
        await self._report_concerns(queue)
        await self._report_unserved(queue)
        await pool.start()
        self._report_ready(f"worker {self._fleet_job.name}")
        return await self._watch(queue, pool, maintenance_task)

    async def _watch(self, queue: Queue, pool: Supervisor, maintenance_task: asyncio.Task[None]) -> int | None:
        """Until stopped (None), drained, or done; an exit status."""
        looked = 0.0
        while not self._stopped.is_set():
            await pool.check()
            if maintenance_task.done():
                maintenance_task.result()
            if pool.is_drained:
                self._ui.message("Drained: nothing is in progress here any more.")
                return 0
            if time.monotonic() - looked > RUNS_EVERY:
                looked = time.monotonic()
                try:
                    if (code := await self._exit_code_if_done(queue)) is not None:
                        return code
                except TRANSIENT_ERRORS:
                    pass  # the supervisor has said so, and everybody waits
            self._ui.update(self._snapshot())
            await self._sleep(POLL_EVERY)
        return None

    async def _exit_code_if_done(self, queue: Queue) -> int | None:
        """The exit status when everything we work on is finished, if that is all we were to wait for."""
        if not self._exit_when_done:
            return None
        running = await queue.runs(states=("running", "paused"), limit=MAX_RUNS)
        ours = {run.id: run for run in running if self._scraper_set.accepts(run) and self._is_served(run)}
        self._seen_runs |= ours
        return None if ours else await self._exit_code(queue)

    def _is_served(self, run: Run) -> bool:
        """Not one that our processes refuse; they say why."""
        try:
            settings_for_run(self._settings, run)
        except UsageError:
            return False
        return True

    async def _exit_code(self, queue: Queue) -> int:
        runs = [self._run] if self._run is not None else list(self._seen_runs.values())
        code = 0
        for run in runs:
            now = next(iter(await queue.runs(name=run.name, limit=1)), run)
            stats = await queue.stats(run.id)
            self._ui.message(f"Run {run.name} is {now.state}: {stats.done:,} done, {stats.failed:,} failed.")
            if stats.failed:
                self._ui.message(f"What failed, and why: shoal dead {run.name}")
            code = 3 if stats.failed or now.state == "cancelled" else code
        if not runs:
            self._ui.message("Nothing to do: no run served here is unfinished.")
        return code

    async def _until_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What work answers; None: we were stopped, however long the queue would have kept it waiting."""
        working, stopped = asyncio.create_task(work), asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait((working, stopped), return_when=asyncio.FIRST_COMPLETED)
            return working.result() if working.done() else None
        finally:
            await cancel_all(working, stopped)

    async def _stop_pool(self, pool: Supervisor, queue_away: asyncio.Event) -> None:
        """Pages in progress are finished, unless the queue is away: then nobody could be told of them."""
        if not self._stopped.is_set():
            await pool.stop()
            return
        seconds = FINISH_SHARE * self._settings.stop_grace
        draining, away = asyncio.create_task(pool.drain(seconds)), asyncio.create_task(queue_away.wait())
        await asyncio.wait((draining, away), return_when=asyncio.FIRST_COMPLETED)
        await cancel_all(draining, away)
        left = max(AWAY_GRACE, self._stopped_at + self._settings.stop_grace - time.monotonic())
        if queue_away.is_set():
            await pool.stop(AWAY_GRACE, report_timeout=0.5)
        else:
            await pool.stop(left / 2, report_timeout=left / 2)

    def stop(self) -> None:
        """Stop after the tasks in progress; asked again, at once."""
        if self._stopped.is_set():
            if self._pool is not None:
                self._pool.kill()
            return
        self._stopped_at = time.monotonic()
        self._stopped.set()
        self._ui.message("Stopping after tasks in progress. Ctrl-C again: stop now. Nothing is lost either way.")

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    # what the probe asks

    def _seconds_unreachable(self) -> float:
        heard = [part.reached_at for part in (self._pool, self._maintenance) if part is not None]
        return time.monotonic() - max(heard, default=-math.inf)

    def _snapshot(self) -> WorkerSnapshot:
        totals = self._pool.totals() if self._pool is not None else PoolTotals()
        return WorkerSnapshot(self._fleet_job.name, totals, self._seconds_unreachable() < SILENCE_LIMIT)

    def health(self) -> dict[str, object]:
        return {"status": "ok", "name": self._fleet_job.name, "serves": list(self._scraper_set.scraper_names)}

    def ready(self) -> dict[str, object]:
        snapshot = self._snapshot()
        working = snapshot.totals.children > 0 and not self._stopped.is_set()
        return {
            "ready": snapshot.reachable and working,
            "name": snapshot.name,
            "queue": "ok" if snapshot.reachable else f"no answer for {self._seconds_unreachable():.0f} s",
            "children": snapshot.totals.children,
            "stopping": self._stopped.is_set(),
        }

    def metrics(self) -> str:
        return prometheus_text(self.families())

    def families(self) -> list[MetricFamily]:
        """May be asked for in any thread."""
        snapshot = self._snapshot()
        return worker_families(
            snapshot.name, snapshot.totals, reachable=snapshot.reachable, stopping=self._stopped.is_set()
        )
