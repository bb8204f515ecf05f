"""The worker processes of this machine: how many, their limits, and the one way to start a pool of them."""

from __future__ import annotations

import itertools
import math
import os
import secrets
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from shoal.app import crash_notes_folder
from shoal.config.load import Settings
from shoal.config.run_settings import settings_for_run
from shoal.core.name_format import fill_name, parts_of
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.launch.job import FleetJob, RunJob, pool_size
from shoal.queue.base import Queue
from shoal.worker.pool.supervisor import LimitsForRun, OnOutputLine, Supervisor, WorkerLimits

# -P: no file in the folder it is started from stands in for a module of Python or of ours.
CHILD_COMMAND = (sys.executable, "-P", "-m", "shoal.launch.worker_process")
MAX_CACHED_RUNS = 1_000

FindRun = Callable[[int], Awaitable[Run | None]]


def worker_pool(
    queue: Queue, job: RunJob | FleetJob, *, find_run: FindRun | None = None, on_output_line: OnOutputLine | None = None
) -> Supervisor:
    """The processes that work on one run, or on any run of a fleet, which `find_run` looks up by id.

    A fleet's workers wait for their queue for as long as it takes, and are named after their supervisor.
    """
    settings, numbers = job.settings, itertools.count(1)
    fleet: dict[str, Any] = {}
    if isinstance(job, FleetJob):
        fleet["limits_for_run"] = _limits_for_run(settings, find_run)
        fleet["new_name"] = lambda: f"{job.name}-{next(numbers)}"
    return Supervisor(
        CHILD_COMMAND,
        pool_size(settings),
        queue,
        crash_notes_folder(settings),
        settings=msgspec.to_builtins(job),
        limits=_fleet_limits(settings) if fleet else pool_limits(settings),
        on_output_line=on_output_line,
        **fleet,
    )


def pool_limits(settings: Settings, *, outage_timeout: float = WorkerLimits().outage_timeout) -> WorkerLimits:
    return WorkerLimits(
        handler_timeout=settings.handler_timeout,
        memory=settings.worker_memory,
        outage_timeout=outage_timeout,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        retries=settings.retry_limits,
        retry_delay=settings.retry_delay,
    )


def _fleet_limits(settings: Settings) -> WorkerLimits:
    return pool_limits(settings, outage_timeout=math.inf)


def _limits_for_run(own: Settings, find_run: FindRun | None) -> LimitsForRun:
    """What a run's own settings allow a handler, looked up once per run."""
    cached: dict[int, WorkerLimits] = {}

    async def limits(run: int) -> WorkerLimits:
        if run not in cached:
            known = await find_run(run) if find_run else None
            if known is None:
                return _fleet_limits(own)
            if len(cached) > MAX_CACHED_RUNS:
                cached.clear()
            try:
                cached[run] = _fleet_limits(settings_for_run(own, known))
            except UsageError:  # the processes refuse such a run, and say why
                cached[run] = _fleet_limits(own)
        return cached[run]

    return limits


def supervisor_name(settings: Settings) -> str:
    """The name of a supervisor, like no other: that of the machine, or a given one, and four letters."""
    host = socket.gethostname()
    parts = {"name": settings.name or host, "host": host, "pid": os.getpid(), "suffix": secrets.token_hex(2)}
    return fill_name(settings.worker_id_format, **parts)


async def unused_supervisor_name(queue: Queue, settings: Settings, name: str = "") -> str:
    """The given name, or another, that no supervisor has: leases of dead children go back by it."""
    taken = {worker.id.rpartition("-")[0] for worker in await queue.workers()}
    name = name or supervisor_name(settings)
    while name in taken:
        name = supervisor_name(settings)
        if "suffix" not in parts_of(settings.worker_id_format):
            name = f"{name}-{secrets.token_hex(2)}"
    return name
