"""The worker of a run in this very process: for scripts, notebooks and debuggers."""

from __future__ import annotations

from shoal import app
from shoal.extract.scraper import Scraper
from shoal.launch.job import RunJob, run_plan
from shoal.launch.worker_context import build_worker_context
from shoal.queue.base import Queue
from shoal.view import opentelemetry
from shoal.worker.pool.crash_note import CrashNote
from shoal.worker.pool.in_process import InProcessWorker
from shoal.worker.pool.recovery import recover_dead_workers


async def in_process_pool(queue: Queue, job: RunJob, scraper: Scraper) -> InProcessWorker:
    settings = job.settings
    await recover_dead_workers(queue, app.crash_notes_folder(settings))
    note = CrashNote.create(app.crash_notes_folder(settings), app.worker_name())
    context = await build_worker_context(scraper, job, queue=queue, note=note, supervised=False)
    opentelemetry.enable_tracing(context, settings)
    return InProcessWorker(context, run_plan(job))
