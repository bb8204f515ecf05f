"""In-process runs, for notebooks and scripts: no child processes, no signal handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal import app, equip, telemetry
from shoal.closing import refuse_read, rejected_file, write_files
from shoal.config import Settings, beneath, load
from shoal.control.crawl import Crawl
from shoal.control.lock import Lock, kept, only_here
from shoal.control.ownership import Ownership
from shoal.control.runs import run_key
from shoal.core.run import NewRun, Run
from shoal.errors import QueueUnavailable, Usage
from shoal.extract.scraper import Scraper
from shoal.job import Job
from shoal.outlet import Outlet
from shoal.queue.base import Queue
from shoal.reading import Reading
from shoal.result import Result, apart
from shoal.work import Work, spec_of, work_of
from shoal.worker.alone import Alone
from shoal.worker.note import Note
from shoal.worker.takeover import take_over

__all__ = ["Result", "get", "run", "run_sync"]


async def run(
    scraper: Scraper, *, output: str | None = None, fresh: bool | None = None, **settings: Any
) -> Result:
    """Crawl in this process and give back the records; any setting of `shoal run` may be named.

    An unfinished run of the same scraper and output goes on. A finished one starts anew, unless
    fresh=False: then its records are given back as they are.
    """
    return await _run(Work(scraper), load(settings), output, fresh)


def run_sync(scraper: Scraper, **options: Any) -> Result:
    """`run` for plain scripts; inside a running event loop, `await shoal.run(…)` is the way."""
    return asyncio.run(run(scraper, **options))


def get(
    target: str | Iterable[str],
    fields: Mapping[str, str] | None = None,
    *,
    column: str = "",
    output: str | None = None,
    fresh: bool | None = None,
    **settings: Any,
) -> Result:
    """Fetch a list ("urls.csv", addresses) or run a template; also where an event loop runs already."""
    words = (target,) if isinstance(target, str) else tuple(target)
    if not words or not words[0]:
        raise Usage("there is no address to get", hint='shoal.get("urls.txt") or shoal.get(["https://…"])')
    if output:
        refuse_read(str(Path(output).resolve()), words)
    chosen = load(settings)
    work = work_of(chosen, words[0], words[1:], fields or {}, column)
    return apart(lambda: _run(work, chosen, output, fresh))


async def _run(work: Work, settings: Settings, output: str | None, fresh: bool | None) -> Result:
    settings = beneath(settings, work.scraper.settings, work.label)
    urls = [] if work.input else [task.url for task in app.start_of(work.scraper, settings)[0]]
    place = str(Path(output).resolve()) if output else ""  # noqa: ASYNC240 - no I/O worth a thread
    key = run_key(work.scraper.name, [*urls, *work.identity], place or "python")
    queue = await app.open_queue(settings)
    try:
        owner = await Ownership.take(settings.state_folder, key, work.label)
        lock: Lock | None = None
        try:
            name, file = work.scraper.name, settings.state_file is not None
            lock = await only_here(queue, work.scraper.mode, name, key, work.label, file=file)
            return await InProcess(queue, settings, work, place, lock).run(key, fresh)
        finally:
            if lock:
                with contextlib.suppress(QueueUnavailable):
                    await lock.release()
            owner.release()
    finally:
        await queue.close()


class InProcess:
    def __init__(self, queue: Queue, settings: Settings, work: Work, output: str, lock: Lock | None) -> None:
        self._queue = queue
        self._settings = settings
        self._work = work
        self._output = output
        self._lock = lock

    async def run(self, key: str, fresh: bool | None) -> Result:
        queue, settings, work = self._queue, self._settings, self._work
        known = await queue.runs(key=key, limit=1)
        if fresh is None:
            fresh = bool(known) and known[0].state in ("finished", "cancelled")
        spec = await spec_of(queue, work, settings, mode="single", output=self._output)
        new = NewRun(work.scraper.name, key, spec=spec, max_pages=settings.max_pages)
        outlet = await Outlet.open(queue, settings)
        try:
            return await self._begun(outlet, new, fresh)
        finally:
            await outlet.close()

    async def _begun(self, outlet: Outlet, new: NewRun, fresh: bool) -> Result:
        queue, settings = self._queue, self._settings
        begun, how, exporter = await app.begin(
            queue, new, settings, output=self._output, fresh=fresh, records=outlet.records
        )
        outlet.serve(begun, exporter)
        if how != "ended":
            await self._drive(begun, outlet)
        if exporter:
            await write_files(queue, begun, exporter, settings, ())
        return Result(settings, begun.name, begun.id, await queue.stats(begun.id))

    async def _drive(self, run: Run, outlet: Outlet) -> None:
        queue, settings, work = self._queue, self._settings, self._work
        await take_over(queue, app.notes_folder(settings))
        job = Job(run, settings, each=work.input is not None)
        note = Note.create(app.notes_folder(settings), app.worker_name())
        tools = await equip.worker_tools(work.scraper, job, queue=queue, note=note, supervised=False)
        telemetry.trace(tools, settings)
        reading: Reading | None = None
        if work.input is not None:
            place = rejected_file(run, self._output, settings)
            reading = await Reading.begin(queue, run, work.input, settings, rejects=place)
        alone = Alone(tools, app.plan_for(settings, run, stay=job.each))
        crawl = Crawl(queue, run, alone, output=outlet, feed=reading, patience=app.patience_of(settings))
        if work.input is None:
            await crawl.seed(*app.start_of(work.scraper, settings))
        async with kept(self._lock, crawl.stop):
            await crawl.drive()
