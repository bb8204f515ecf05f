"""The entry of a worker process: `python -m shoal.child`, started by a supervisor."""

from __future__ import annotations

import asyncio
import gc
import time

import msgspec

from shoal import app, equip, telemetry
from shoal.config import Settings
from shoal.job import Duty, Job
from shoal.logs import setup
from shoal.queue.base import Queue
from shoal.worker.child import main
from shoal.worker.note import Note
from shoal.worker.orders import Orders
from shoal.worker.patience import Patience
from shoal.worker.plan import Plan
from shoal.worker.settler import PASSING
from shoal.worker.tools import Tools


async def build(orders: Orders, note: Note) -> tuple[Tools, Plan]:
    job = msgspec.convert(orders.settings, Job | Duty)
    settings = job.settings
    setup(
        format=settings.log_format,
        level=settings.log_level,
        file=settings.log_file,
        fields={"worker": orders.worker},
    )
    tools, plan = await (_of_run(job, note) if isinstance(job, Job) else _of_fleet(job, note))
    telemetry.trace(tools, settings)
    # Modules and settings live as long as the process: the collector need not look at them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    return tools, plan


async def _of_run(job: Job, note: Note) -> tuple[Tools, Plan]:
    queue = await app.open_queue(job.settings, small=True)
    scraper = await equip.scraper_of(job, queue)
    tools = await equip.worker_tools(scraper, job, queue=queue, note=note, supervised=True)
    return tools, app.plan_for(job.settings, job.run, stay=job.each)


async def _of_fleet(duty: Duty, note: Note) -> tuple[Tools, Plan]:
    from shoal.repertoire import Repertoire
    from shoal.serving import Serving, plan_of

    repertoire = Repertoire.load(duty)
    queue = await _opened(duty.settings)
    return Serving(duty, repertoire, queue).tools(note), plan_of(duty, repertoire)


async def _opened(settings: Settings) -> Queue:
    """The supervisor has reached the queue before: if it is away now, it is waited for."""
    patience = Patience(time.monotonic, float("inf"))
    while True:
        try:
            return await app.open_queue(settings, small=True)
        except PASSING:
            await asyncio.sleep(patience.pause() or 1.0)


if __name__ == "__main__":
    main(build)
