"""Maintenance: what a fleet needs done now and then. Any number may do it at once; one is enough."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from shoal.control.document_gc import INTERVAL as TIDY_EVERY
from shoal.control.history import History
from shoal.control.kept_documents_gc import kept_documents_gc
from shoal.control.worker_states import STALE_AFTER
from shoal.core.run import Run, RunState
from shoal.errors import ActionRequired, ShoalError
from shoal.queue.base import LEASE_SECONDS, REAP_EVERY, Queue
from shoal.queue.budget_ledger import remove_orphaned_ledgers
from shoal.queue.daily_runs import is_daily
from shoal.queue.follow_ups import FollowUps
from shoal.runs.fleet_lock import remove_expired_locks
from shoal.runs.identity import is_seeding, is_single_process
from shoal.runs.relay import Relay
from shoal.runs.time_limit import (
    cancel_for_time_limit,
    first_attempt_at,
    has_exceeded_time_limit,
    remove_orphaned_marks,
    time_limit,
)

log = logging.getLogger("shoal.maintenance")

FINISH_INTERVAL = 0.5
SCHEDULE_INTERVAL = 1.0
RELAY_INTERVAL = 1.0
OUTBOX_INTERVAL = 1.0
HISTORY_INTERVAL = 5.0  # so that no slot of it is missed
LAST_SAMPLE_TIMEOUT = 2.0  # seconds for the last sample when we end
PURGE_INTERVAL = 3600.0
MAX_RETRY_DELAY = 30.0  # seconds between two tries of what keeps failing
MAX_RUNS = 10_000
RUNNING_STATES: tuple[RunState, ...] = ("running",)
EMPTY_RUN_GRACE = 10.0  # seconds in which a run without any task may still get its first
FORGET_AFTER = 86_400.0  # seconds after which a worker that is gone leaves the registry
ALIVE_WITHIN = 60.0  # seconds; who was silent for longer has no share in the maintenance
REGISTRY_INTERVAL = 30.0
REACH_INTERVAL = 5.0  # whoever asks whether we reach the queue is told the truth, however rare the rest is
# Workers from which on each does its maintenance less often, so that all together do it as often.
SHARED_ABOVE = 16
REAPING_MACHINES = 4  # machines from which on each reaps less often; all together twice a second
MAX_REAP_INTERVAL = LEASE_SECONDS  # should nearly all machines be gone in a moment
MAX_INTERVAL = 60.0  # seconds: a crowd that is gone in a moment leaves its work to few
SCHEDULED_RUN_GRACE = 3600.0  # likewise one that a schedule began: another may have to finish what it started
# What comes of a run or document that another version made, or that somebody who may write there made up.
MALFORMED_DATA_ERRORS = (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError)
CLOCK_TOLERANCE = timedelta(minutes=10)  # producers' clocks may be behind


class PeriodicJob:
    """A job that is repeated at an interval."""

    def __init__(
        self, name: str, interval: float, work: Callable[[], Awaitable[object]], *, is_shared: bool = True
    ) -> None:
        self.name = name
        self.interval = interval
        self.work = work
        self.is_shared = is_shared  # each does it less often where many do
        self.last_error = ""

    async def run_once(self) -> bool:
        """False if it failed in a way that a person or time may heal; that is said once."""
        try:
            await self.work()
        except (ActionRequired, *MALFORMED_DATA_ERRORS) as error:
            words = str(error) if isinstance(error, ActionRequired) else f"{type(error).__name__}: {error}"
            if words != self.last_error:
                hint = error.hint if isinstance(error, ActionRequired) else "a run or document is not understood"
                log.warning("maintenance_failing", extra={"duty": self.name, "error": words, "hint": hint})
            self.last_error = words
            return False
        self.last_error = ""
        return True


class Maintenance:
    def __init__(
        self,
        queue: Queue,
        *,
        reap: bool = True,  # False where a supervisor does it anyway
        retention: float = 0.0,  # seconds after which ended runs are removed; 0: never
        after_purge: Callable[[], Awaitable[object]] | None = None,  # after a removal, on this machine
        tick: Callable[[Queue, int], Awaitable[object]] | None = None,  # schedules
        relay: Relay | None = None,
        stale_after: float = STALE_AFTER,  # seconds of silence after which a worker is stale
        extra_jobs: Sequence[PeriodicJob] = (),  # what whoever does the maintenance has to do besides
    ) -> None:
        self._queue = queue
        self._retention = retention
        self._after_purge = after_purge
        self._tick = tick
        self.reached_at = time.monotonic()  # when the queue last answered
        self._stored = relay is not None
        self._history = History(queue, stale_after=stale_after)
        self._slowdown = 1.0
        self._machines = 1
        self._workers = 1
        self._kept_documents = kept_documents_gc(queue)
        self._began_at: dict[int, int] = {}  # of runs that have a time limit: their first attempt
        self._jobs = [
            PeriodicJob("reach", REACH_INTERVAL, queue.now, is_shared=False),
            # What workers drain at once, unless they died before they could.
            PeriodicJob("outbox", OUTBOX_INTERVAL, FollowUps(queue).drain),
            PeriodicJob("registry", REGISTRY_INTERVAL, self.prune_registry),
            PeriodicJob("finish", FINISH_INTERVAL, self.finish_empty_runs),
            PeriodicJob("history", HISTORY_INTERVAL, self._history.add_sample),
            PeriodicJob("kept_documents", TIDY_EVERY, self._remove_kept_documents),
        ]
        if reap:
            self._jobs.append(PeriodicJob("reap", REAP_EVERY, queue.reap))
        if retention:
            self._jobs.append(PeriodicJob("purge", PURGE_INTERVAL, self._purge))
        if tick is not None:
            self._jobs.append(PeriodicJob("schedules", SCHEDULE_INTERVAL, self._run_schedules))
        if relay is not None:
            self._jobs.append(PeriodicJob("store", RELAY_INTERVAL, relay.drain_all))
        self._jobs += extra_jobs

    async def run(self, stop: asyncio.Event) -> None:
        """Do everything in its time until stopped. What fails is tried again; nothing here ends a worker."""
        async with asyncio.TaskGroup() as group:
            for job in self._jobs:
                group.create_task(self._repeat(job, stop), name=job.name)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SAMPLE_TIMEOUT):
                await PeriodicJob("history", HISTORY_INTERVAL, lambda: self._history.add_sample(final=True)).run_once()

    async def _repeat(self, job: PeriodicJob, stop: asyncio.Event) -> None:
        pause = job.interval
        while not stop.is_set():
            if await job.run_once():
                pause = self._interval_of(job) * random.uniform(0.75, 1.25)
                self.reached_at = time.monotonic()
            else:
                pause = min(MAX_RETRY_DELAY, max(1.0, pause * 2)) if pause < PURGE_INTERVAL else MAX_RETRY_DELAY
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await stop.wait()

    def _interval_of(self, job: PeriodicJob) -> float:
        if job.name == "reap":
            return self.reap_interval()
        return self._delay(job.interval) if job.is_shared else job.interval

    def _delay(self, interval: float) -> float:
        return min(interval * self._slowdown, max(interval, MAX_INTERVAL))

    def reap_interval(self) -> float:
        """Seconds between two looks for expired leases, where every machine that works does the same."""
        return min(REAP_EVERY * max(1.0, self._machines / REAPING_MACHINES), MAX_REAP_INTERVAL)

    async def run_once(self) -> None:
        """Run every job once, whatever became of the others."""
        for job in self._jobs:
            await job.run_once()

    async def prune_registry(self) -> None:
        """Forget workers that vanished long ago, and see how many share the maintenance."""
        statuses, now = await self._queue.workers(), await self._queue.now()
        for status in statuses:
            if now - status.seen_at > FORGET_AFTER * 1e6:
                await self._queue.forget_worker(status.id)
        machines = Counter(status.host for status in statuses if now - status.seen_at < ALIVE_WITHIN * 1e6)
        alive = machines.total()
        self._slowdown = max(1.0, alive / SHARED_ABOVE)
        self._machines = len(machines)
        self._workers = max(1, alive)

    async def _remove_kept_documents(self) -> None:
        """All together about as often as one alone would: whoever looks reads all that is there."""
        if random.random() * self._workers < 1.0:
            await self._kept_documents.sweep()

    async def finish_empty_runs(self) -> int:
        """Finish runs in which nothing is open and to which nobody adds any more; says how many.

        One that has taken longer than it may is cancelled.
        """
        finished, now = 0, 0
        for run in await self._queue.runs(states=RUNNING_STATES, limit=MAX_RUNS):
            if is_single_process(run):
                continue  # whoever started it finishes it
            now = now or await self._queue.now()
            if await self._has_taken_too_long(run, now):
                with contextlib.suppress(ShoalError):  # another was quicker
                    if await cancel_for_time_limit(self._queue, run):
                        log.warning("time_limit_exceeded", extra={"run": run.name, "seconds": time_limit(run)})
            elif await self._is_finished(run, now):
                with contextlib.suppress(ShoalError):  # work was added, or another was quicker
                    await self._queue.set_run(run.id, "finish")
                    finished += 1
        return finished

    async def _has_taken_too_long(self, run: Run, now: int) -> bool:
        if not time_limit(run) or now - run.created_at <= time_limit(run) * 1e6:
            return False
        stats = await self._queue.stats(run.id)
        if not stats.open or not (stats.done or stats.failed or stats.retries or stats.leased):
            return False
        began_at = self._began_at.get(run.id) or await first_attempt_at(self._queue, run)
        if len(self._began_at) >= MAX_RUNS:
            self._began_at.clear()
        self._began_at[run.id] = began_at
        return bool(began_at) and await has_exceeded_time_limit(self._queue, run, now, began_at)

    async def _is_finished(self, run: Run, now: int) -> bool:
        stats = await self._queue.stats(run.id)
        if not stats.is_over or (self._stored and stats.records > stats.trimmed) or not _may_end(run, now):
            return False
        if await is_seeding(self._queue, run):
            return False
        # Only now: what was added before the mark went is in this account.
        stats = await self._queue.stats(run.id)
        if not stats.seen:
            # Where a seen-set has all that a schedule brings, there is nothing to wait for.
            scheduled = run.key.startswith("schedule/") and not run.seen_set
            grace = SCHEDULED_RUN_GRACE if scheduled else EMPTY_RUN_GRACE
            return now - run.created_at > grace * 1e6
        return stats.is_over

    async def _purge(self) -> None:
        if await self._queue.purge(older_than=self._retention) and self._after_purge is not None:
            await self._after_purge()
        await remove_expired_locks(self._queue, FORGET_AFTER)
        await remove_orphaned_marks(self._queue)
        await remove_orphaned_ledgers(self._queue)

    async def _run_schedules(self) -> None:
        assert self._tick is not None
        await self._tick(self._queue, await self._queue.now())


def _may_end(run: Run, now: int) -> bool:
    """A daily run ends with its day: typed tasks (key task:TYPE/2026-11-15), Celery's pages, what others publish."""
    if not is_daily(run):
        return True
    try:
        day = datetime.strptime(run.key.rpartition("/")[2], "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return True
    return datetime.fromtimestamp(now / 1e6, UTC) > day + timedelta(days=1) + CLOCK_TOLERANCE
