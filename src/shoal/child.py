"""The entry of a worker process: `python -m shoal.child`, started by a supervisor."""

from __future__ import annotations

import gc
from typing import Any

import msgspec

from shoal import app
from shoal.config import Settings
from shoal.core.run import Run
from shoal.extract.load import load
from shoal.logs import setup
from shoal.worker.child import Orders, main
from shoal.worker.note import Note
from shoal.worker.plan import Plan
from shoal.worker.tools import Tools


class Job(msgspec.Struct, frozen=True):
    """What a worker process is told to work on."""

    target: str
    run: Run
    settings: Settings

    def orders(self) -> dict[str, Any]:
        made: dict[str, Any] = msgspec.to_builtins(self)
        return made


async def build(orders: Orders, note: Note) -> tuple[Tools, Plan]:
    job = msgspec.convert(orders.settings, Job)
    settings = job.settings
    setup(format=settings.log_format, level=settings.log_level, file=settings.log_file)
    scraper = load(job.target)
    queue = await app.open_queue(settings)
    tools = await app.worker_tools(
        scraper, settings, run=job.run.name, queue=queue, note=note, supervised=True
    )
    # Modules and settings live as long as the process: the collector need not look at them again and again.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    return tools, app.plan_for(settings, job.run)


if __name__ == "__main__":
    main(build)
