"""The entry of a worker process: `python -m shoal.launch.worker_process`, started by a supervisor."""

from __future__ import annotations

import gc
from math import inf

import msgspec

from shoal import app
from shoal.config.load import Settings
from shoal.launch import worker_context
from shoal.launch.debugger import refuse_breakpoints
from shoal.launch.job import FleetJob, RunJob, guard_policy, run_plan
from shoal.logs import setup_logging
from shoal.queue.base import Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS, reconnecting
from shoal.view import opentelemetry
from shoal.worker.context import WorkerContext
from shoal.worker.plan import WorkerPlan
from shoal.worker.pool.child import main
from shoal.worker.pool.child_protocol import ChildConfig
from shoal.worker.pool.crash_note import CrashNote


async def build(config: ChildConfig, note: CrashNote) -> tuple[WorkerContext, WorkerPlan]:
    job = msgspec.convert(config.settings, RunJob | FleetJob)
    settings = job.settings
    setup_logging(
        format=settings.log_format, level=settings.log_level, file=settings.log_file, fields={"worker": config.worker}
    )
    tools, plan = await (_build_for_run(job, note) if isinstance(job, RunJob) else _build_for_fleet(job, note))
    opentelemetry.enable_tracing(tools, settings)
    refuse_breakpoints()
    # Modules and settings live as long as the process: the collector need not look at them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    return tools, plan


async def _build_for_run(job: RunJob, note: CrashNote) -> tuple[WorkerContext, WorkerPlan]:
    queue = await app.open_queue(job.settings, small=True)
    scraper = await worker_context.load_job_scraper(job, queue)
    tools = await worker_context.build_worker_context(scraper, job, queue=queue, note=note, supervised=True)
    # Whoever started the run is there to be told that its disk is full; a worker would only wait for somebody.
    resources = guard_policy(job.settings, guards_disk="disk_reserve" in job.settings.sources)
    return tools, run_plan(job, resources=resources)


async def _build_for_fleet(fleet_job: FleetJob, note: CrashNote) -> tuple[WorkerContext, WorkerPlan]:
    from shoal.launch.scraper_set import ScraperSet
    from shoal.launch.worker_context import FleetContextFactory, fleet_plan

    scraper_set = ScraperSet.load(fleet_job)
    queue = await _open_queue(fleet_job.settings)
    context = FleetContextFactory(fleet_job, scraper_set, queue).worker_context(note)
    return context, fleet_plan(fleet_job, scraper_set)


async def _open_queue(settings: Settings) -> Queue:
    """The supervisor has reached the queue before: if it is away now, it is waited for."""
    return await reconnecting(lambda: app.open_queue(settings, small=True), inf, errors=TRANSIENT_ERRORS)


if __name__ == "__main__":
    main(build)
