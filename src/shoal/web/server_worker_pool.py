"""The server's own worker pool, for runs that it does itself instead of leaving them to the fleet.

They are started when there is such a run and end when there has been none for a while. Nothing about a run
is kept here: any server of the same queue resumes what another one left.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from shoal.config.load import Settings
from shoal.control.maintenance import MALFORMED_DATA_ERRORS, RUNNING_STATES
from shoal.core.run import Run
from shoal.errors import ActionRequired
from shoal.queue.base import Queue
from shoal.runs.identity import SERVER_MODE, is_seeding, is_server_run
from shoal.web.submit.url_lists import urls_of_run

if TYPE_CHECKING:
    from shoal.worker.pool.supervisor import Supervisor

log = logging.getLogger("shoal.web.server_worker_pool")

CHECK_INTERVAL = 2.0  # seconds
IDLE_TIMEOUT = 60.0  # seconds without work after which the processes end
MISSED_HEARTBEATS = 3  # heartbeats after which another server's processes are taken for gone
SEEDING_TIMEOUT = 30.0  # seconds after which whoever filled a run is taken for dead
MAX_PAUSE = 30.0
MAX_RUNS = 10_000  # runs looked at


class ServerWorkerPool:
    """Of one server. `run` it for as long as the server lives; `wake` it when a run was begun for it."""

    def __init__(self, queue: Queue, settings: Settings, *, idle: float = IDLE_TIMEOUT) -> None:
        self._queue = queue
        self._settings = settings
        self._idle = idle
        self._woken = asyncio.Event()
        self._supervisor: Supervisor | None = None
        self._runs: dict[int, Run] = {}  # for us, with work left when we last looked
        self._seeded: set[int] = set()  # runs known to have all their URLs
        self._last_busy_at = self._retry_at = -math.inf
        self._has_checked = self._drained = False

    @property
    def is_working(self) -> bool:
        return self._supervisor is not None

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Look for work and keep processes at it, until stopped. What fails is tried again."""
        pause = CHECK_INTERVAL
        stopping = asyncio.create_task(stop.wait())
        try:
            while not stop.is_set():
                await self._check()
                try:
                    await self._step()
                    pause = CHECK_INTERVAL
                # Of the queue; processes at work wait for it as well.
                except (ActionRequired, *MALFORMED_DATA_ERRORS) as error:
                    hint = error.hint if isinstance(error, ActionRequired) else "a run or document is not understood"
                    log.warning("worker_pool_failing", extra={"error": str(error), "hint": hint})
                    pause = min(pause * 2, MAX_PAUSE)
                woken = asyncio.create_task(self._woken.wait())
                await asyncio.wait((stopping, woken), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                woken.cancel()
        finally:
            stopping.cancel()
            await self._stop_processes()

    async def _check(self) -> None:
        """Send processes home that cannot go on; after a while others are tried."""
        try:
            if self._supervisor is not None:
                await self._supervisor.check()
        except ActionRequired as error:
            log.warning("worker_pool_broken", extra={"error": str(error), "hint": error.hint})
            self._retry_at = time.monotonic() + MAX_PAUSE
            await self._stop_processes()

    async def _step(self) -> None:
        woken, first = self._woken.is_set(), not self._has_checked
        self._woken.clear()
        await self._find_runs()
        self._has_checked = True
        self._drained = self._drained and not woken
        if self._runs:
            self._last_busy_at = time.monotonic()
        supervisor = self._supervisor
        if supervisor is not None:
            # By a person, who does not want them back before the next run.
            self._drained = supervisor.is_drained
            if supervisor.is_drained or (not self._runs and time.monotonic() - self._last_busy_at > self._idle):
                await self._stop_processes()
        elif self._runs and self._may_start and (woken or first or not await self._others_at_work()):
            await self._start_processes()

    @property
    def _may_start(self) -> bool:
        return not self._drained and time.monotonic() >= self._retry_at

    async def _find_runs(self) -> None:
        """See which runs are for us; go on with those whose server died while it filled them."""
        now = await self._queue.now()
        running = await self._queue.runs(states=RUNNING_STATES, limit=MAX_RUNS)
        for run in running:
            if "api" in run.spec and run.id not in self._seeded and now - run.created_at > SEEDING_TIMEOUT * 1e6:
                await self._resume_seeding(run)
        ours = [run for run in running if is_server_run(run)]
        stats = await self._queue.stats_of([run.id for run in ours]) if ours else []
        self._runs = {run.id: run for run, one in zip(ours, stats, strict=True) if one.open}
        self._seeded &= {run.id for run in running}

    async def _resume_seeding(self, run: Run) -> None:
        if await is_seeding(self._queue, run):
            known = await urls_of_run(self._queue, self._settings, run)
            if known is not None:
                log.warning("run_seeding_resumed", extra={"run": run.name, "urls": len(known)})
                await known.add_to_run(self._queue, run)
        self._seeded.add(run.id)

    async def _others_at_work(self) -> bool:
        """Whether processes of another server are there to do it."""
        since = await self._queue.now() - int(MISSED_HEARTBEATS * self._settings.heartbeat * 1e6)
        return any(
            SERVER_MODE in status.serves and status.seen_at > since and status.state != "draining"
            for status in await self._queue.workers()
        )

    async def _start_processes(self) -> None:
        from shoal.launch.job import FleetJob
        from shoal.launch.worker_pool import unused_supervisor_name, worker_pool

        async def find_run(number: int) -> Run | None:
            return self._runs.get(number)

        name = await unused_supervisor_name(self._queue, self._settings)
        job = FleetJob(self._settings, name, on_server=True)
        self._supervisor = worker_pool(self._queue, job, find_run=find_run)
        log.info("worker_pool_started", extra={"worker": name})
        await self._supervisor.start()

    async def _stop_processes(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            log.info("worker_pool_stopped")
            await supervisor.stop()
