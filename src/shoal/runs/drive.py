"""RunDriver: drives one run to its end, with any pool of workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from shoal.config.load import Settings
from shoal.core.celery_task import KIND as CELERY
from shoal.core.lane import LaneState
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue, TaskView
from shoal.queue.follow_ups import FollowUps
from shoal.queue.glance import glance
from shoal.runs import identity
from shoal.runs.budget import is_budget_spent
from shoal.runs.discovery import Discovery
from shoal.runs.host_limits import HostLimit, find_host_limits
from shoal.runs.missing_capabilities import find_missing
from shoal.runs.outputs import RunOutputs
from shoal.runs.progress import RunProgress, RunUi
from shoal.runs.seed import ListSeeder
from shoal.runs.waiting_sessions import WaitingSession, find_waiting_sessions

POLL_EVERY = 0.25
EXPORT_EVERY = 1.0
LANES_SHOWN = 200
STUCK_SHOWN = 3
OUTBOX_TIMEOUT = 5.0  # seconds that others have to send what we do not


class WorkerPool(Protocol):
    """The workers of a run: child processes, or this very process."""

    async def start(self) -> None: ...

    async def check(self) -> int:
        """How many are at work; raises if they cannot go on."""
        ...

    async def stop(self) -> None:
        """Hand back what is unfinished and end."""
        ...


class RunDriver:
    def __init__(
        self,
        queue: Queue,
        run: Run,
        pool: WorkerPool,
        *,
        output: RunOutputs | None = None,
        ui: RunUi | None = None,
        seeder: ListSeeder | None = None,
        settings: Settings | None = None,
        outage_timeout: float = 0.0,
        next_pool: Callable[[], Awaitable[WorkerPool | None]] | None = None,
        send_celery_tasks: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        """outage_timeout: seconds that the queue may be out of reach before the run is given up.

        next_pool: asked when nothing is open; the workers for what there is to do after all, if there is.
        """
        self.queue = queue
        self.run = run
        self._pool = pool
        self._output = output
        self._ui = ui
        self._seeder = seeder
        self._next_pool = next_pool
        self._outage_timeout = outage_timeout
        self._last_reached = time.monotonic()
        self._seeding_task: asyncio.Task[object] | None = None
        self._stopped = asyncio.Event()
        self._settings = settings
        self._lanes: tuple[LaneState, ...] = ()
        self._limits: tuple[HostLimit, ...] = ()
        self._lanes_due = 0.0
        self._last_export = 0.0
        self._follow_ups = FollowUps(queue)
        self._send_celery_tasks = send_celery_tasks
        self._outbox_waits_since = 0.0
        self._discovery = Discovery(queue)
        self.waiting_for: Sequence[WaitingSession] = ()  # that need a person: nothing else was left to do
        self._is_spent = False  # its budget: it is paused for that

    def stop(self) -> None:
        self._stopped.set()

    async def drive(self) -> Stats:
        """Work until nothing is open, the run was ended by somebody, or we were stopped."""
        await self._work()
        is_over = self._stopped.is_set() or self._is_spent or self.run.state == "cancelled"
        if self._next_pool is not None and not is_over:
            pool = await self._next_pool()
            if pool is not None:
                self._pool = pool
                await self._work()
        if self._output:  # before the end: a run is finished when nothing of it waits anywhere
            await self._output.drain()
        await self._finish()
        return await identity.checked_stats(self.queue, self.run)

    async def _work(self) -> None:
        await self._pool.start()
        if self._seeder and self._seeding_task is None:
            self._seeding_task = asyncio.create_task(self._seeder.run(), name="seed")
        try:
            while not self._stopped.is_set():
                workers = await self._pool.check()
                try:
                    if await self._poll(workers):
                        break
                except QueueUnavailable:
                    if time.monotonic() - self._last_reached > self._outage_timeout:
                        raise
                else:
                    self._last_reached = time.monotonic()
                await self._pause()
        finally:
            try:
                await self._stop_seeding()
            finally:
                await self._pool.stop()

    async def _poll(self, workers: int) -> bool:
        """Look at the run, show it and copy what is new; whether there is nothing left to do."""
        stats = await self.queue.stats(self.run.id)
        ended = await self._has_ended()
        await self._update_ui(stats, workers)
        is_seeded = self._is_seeded()
        if stats.outbox and not stats.open:
            await self._drain_outbox()
        else:
            self._outbox_waits_since = 0.0
        if ended or (stats.is_over and is_seeded and not await identity.is_seeding(self.queue, self.run)):
            return True
        if is_seeded:
            self.waiting_for = await find_waiting_sessions(self.queue, self.run, stats)
            if self.waiting_for:
                return True  # for whoever is at this terminal to act; what waits is kept
        if self._output and time.monotonic() - self._last_export > EXPORT_EVERY:
            await self._output.drain()
            self._last_export = time.monotonic()
        return False

    async def _drain_outbox(self) -> None:
        """What a worker that died may have left, and tasks of Celery; says so where nobody sends these."""
        await self._follow_ups.drain()
        if self._send_celery_tasks is not None:
            await self._send_celery_tasks()
        self._outbox_waits_since = self._outbox_waits_since or time.monotonic()
        if time.monotonic() - self._outbox_waits_since < OUTBOX_TIMEOUT:
            return
        left = [entry for entry in await self.queue.outbox(CELERY, limit=1_000) if entry.run == self.run.id]
        if left:
            raise UsageError(
                f"pages of run {self.run.name} asked for Celery tasks that nobody sends ({len(left):,})",
                hint="set SHOAL_ENGINE=celery, CELERY_BROKER_URL and SHOAL_CELERY_ALLOW, then give the same command",
            )

    def _is_seeded(self) -> bool:
        """Whether every URL was added; raises the error that prevented it."""
        if self._seeding_task is None:
            return True
        if self._seeding_task.done():
            self._seeding_task.result()
            return True
        return False

    async def _stop_seeding(self) -> None:
        if self._seeding_task is None:
            return
        if not self._seeding_task.done():
            self._seeding_task.cancel()
            await asyncio.wait([self._seeding_task])
        if not self._seeding_task.cancelled():
            self._seeding_task.exception()  # looked at: what is told is whatever went wrong first

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(POLL_EVERY):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def _update_ui(self, stats: Stats, workers: int) -> None:
        if self._ui is None:
            return
        began = time.monotonic()
        if began >= self._lanes_due:
            self._lanes = tuple(await self.queue.lanes(run=self.run.id, limit=LANES_SHOWN))
            if self._settings is not None:
                now = await self.queue.now()
                self._limits = await find_host_limits(self.queue, self._settings, self.run, self._lanes, now)
            # Ranking a hundred thousand hosts takes a while: it may take a twentieth of our time, no more.
            self._lanes_due = began + 20 * (time.monotonic() - began)
        stuck: Sequence[TaskView] = ()
        if stats.delayed and not stats.leased and stats.ready == stats.delayed:
            stuck = await glance(self.queue.list_tasks(self.run.id, state="delayed", limit=STUCK_SHOWN))
        missing = find_missing(stats.needs, await self.queue.workers()) if stats.needs else ()
        self._ui.update(
            RunProgress(
                stats,
                self._lanes,
                await self.queue.now(),
                workers,
                paused=self.run.state == "paused",
                limits=self._limits,
                stuck=tuple(stuck),
                missing=tuple(map(str, missing)),
                found_at=await self._discovery.last_at(self.run, stats),
                seeding=not self._is_seeded(),
            )
        )

    async def _has_ended(self) -> bool:
        """Whether somebody else cancelled it, its page limit did, or its budget is spent."""
        self.run = await self._reload_run()
        self._is_spent = await is_budget_spent(self.queue, self.run)
        return self._is_spent or self.run.state in ("finished", "cancelled")

    async def _finish(self) -> None:
        stats = await self.queue.stats(self.run.id)
        self.run = await self._reload_run()
        is_seeded = self._seeding_task is None or (self._seeding_task.done() and not self._seeding_task.cancelled())
        if not stats.is_over or not is_seeded or self.run.state not in ("running", "paused"):
            return
        if not await identity.is_seeding(self.queue, self.run):
            self.run = await self.queue.set_run(self.run.id, "finish")

    async def _reload_run(self) -> Run:
        found = await self.queue.runs(name=self.run.name, limit=1)
        if not found:
            raise UsageError(f"run {self.run.name} was removed while it was running", hint="start it again")
        return found[0]
