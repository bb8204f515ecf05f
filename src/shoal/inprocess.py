"""In-process runs, for notebooks and scripts: no child processes, no signal handlers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from shoal import app, equip
from shoal.config import Settings, beneath, load
from shoal.control.crawl import Crawl
from shoal.control.ownership import Ownership
from shoal.control.runs import run_key
from shoal.core.lane import Pace
from shoal.core.stats import Stats
from shoal.core.task import Task
from shoal.extract.scraper import Scraper
from shoal.queue.base import Queue
from shoal.worker.alone import Alone
from shoal.worker.note import Note
from shoal.worker.takeover import take_over

SLICE = 1000


class Result:
    """What a run brought. Iterating gives its records as dicts, read from the store as they are needed."""

    def __init__(self, settings: Settings, run: str, run_id: int, stats: Stats) -> None:
        self.run = run
        self.stats = stats
        self._settings = settings
        self._run_id = run_id

    @property
    def complete(self) -> bool:
        """Whether every page was fetched and handled."""
        return not self.stats.open and not self.stats.dead

    def __iter__(self) -> Iterator[dict[str, Any]]:
        after = 0
        while records := _apart(self._slice(after)):
            yield from (msgspec.json.decode(record.data) for record in records)
            after = records[-1].seq

    async def _slice(self, after: int) -> Any:
        queue = await app.open_queue(self._settings)
        try:
            return await queue.records(self._run_id, after=after, limit=SLICE)
        finally:
            await queue.close()

    def __len__(self) -> int:
        return self.stats.records

    def __repr__(self) -> str:
        stats = self.stats
        pages = f"{stats.done} pages done, {stats.dead} dead, {stats.open} open"
        return f"<Result of run {self.run}: {stats.records} records, {pages}>"


async def run(
    scraper: Scraper, *, output: str | None = None, fresh: bool | None = None, **settings: Any
) -> Result:
    """Crawl in this process and give back the records; any setting of `shoal run` may be named.

    An unfinished run of the same scraper and output goes on. A finished one starts anew, unless
    fresh=False: then its records are given back as they are.
    """
    chosen = beneath(load(settings), scraper.settings, f"scraper {scraper.name}")
    tasks, paces = app.start_of(scraper, chosen)
    place = str(Path(output).resolve()) if output else ""  # noqa: ASYNC240 - no I/O worth a thread
    key = run_key(scraper.name, [task.url for task in tasks], place or "python")
    queue = await app.open_queue(chosen)
    try:
        owner = await Ownership.take(chosen.state_folder, key, f"scraper {scraper.name}")
        try:
            return await _owned(queue, scraper, chosen, key, place, fresh, tasks, paces)
        finally:
            owner.release()
    finally:
        await queue.close()


async def _owned(
    queue: Queue,
    scraper: Scraper,
    settings: Settings,
    key: str,
    output: str,
    fresh: bool | None,
    tasks: list[Task],
    paces: dict[str, Pace],
) -> Result:
    known = await queue.runs(key=key, limit=1)
    if fresh is None:
        fresh = bool(known) and known[0].state in ("finished", "cancelled")
    begun, how, exporter = await app.begin(queue, scraper, settings, key=key, output=output, fresh=fresh)
    try:
        if how != "ended":
            await take_over(queue, app.notes_folder(settings))
            note = Note.create(app.notes_folder(settings), app.worker_name())
            tools = await equip.worker_tools(
                scraper, settings, run=begun.name, queue=queue, note=note, supervised=False
            )
            alone = Alone(tools, app.plan_for(settings, begun))
            crawl = Crawl(queue, begun, alone, output=exporter)
            await crawl.seed(tasks, paces)
            await crawl.drive()
        elif exporter:
            await exporter.drain()
    finally:
        if exporter:
            exporter.close()
    return Result(settings, begun.name, begun.id, await queue.stats(begun.id))


def run_sync(scraper: Scraper, **options: Any) -> Result:
    """`run` for plain scripts; inside a running event loop, `await shoal.run(…)` is the way."""
    return asyncio.run(run(scraper, **options))


def _apart(work: Any) -> Any:
    """Await something short from a place that cannot, also where an event loop runs already (notebooks)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    answer: list[Any] = []
    thread = threading.Thread(target=lambda: answer.append(asyncio.run(work)))
    thread.start()
    thread.join()
    return answer[0]
