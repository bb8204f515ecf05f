"""The entry of a worker process: `python -m shoal.child`, started by a supervisor."""

from __future__ import annotations

import gc

import msgspec

from shoal import app, equip
from shoal.job import Job
from shoal.logs import setup
from shoal.worker.child import main
from shoal.worker.note import Note
from shoal.worker.orders import Orders
from shoal.worker.plan import Plan
from shoal.worker.tools import Tools


async def build(orders: Orders, note: Note) -> tuple[Tools, Plan]:
    job = msgspec.convert(orders.settings, Job)
    settings = job.settings
    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    queue = await app.open_queue(settings, small=True)
    tools = await equip.worker_tools(
        await equip.scraper_of(job, queue), job, queue=queue, note=note, supervised=True
    )
    # Modules and settings live as long as the process: the collector need not look at them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 100)
    return tools, app.plan_for(settings, job.run, stay=job.each)


if __name__ == "__main__":
    main(build)
