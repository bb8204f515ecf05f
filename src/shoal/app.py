"""App: the composition root, the only place that turns settings into concrete parts."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

from shoal.config import Settings
from shoal.control.runs import Found, find_or_start
from shoal.core.lane import FREE, Pace
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.errors import QueueRefused, Usage
from shoal.extract.links import LinkGate, start_tasks
from shoal.extract.scraper import Scraper
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.http import HttpFetcher
from shoal.politeness.robots import Robots
from shoal.queue.base import Queue
from shoal.store.export import Exporter
from shoal.worker.note import Note
from shoal.worker.plan import Plan
from shoal.worker.tools import Served, Tools


async def open_queue(settings: Settings) -> Queue:
    """The queue that the settings name."""
    path = settings.state_file
    if path is None:
        scheme = settings.queue.partition("://")[0]
        raise QueueRefused(
            f"queues of the kind {scheme}:// are not known here", hint="--queue sqlite:///path/to/state.db"
        )
    from shoal.queue.sqlite import SqliteQueue

    return await SqliteQueue.open(
        str(path), synchronous="normal" if settings.synchronous == "normal" else "full"
    )


def pace_rule(settings: Settings) -> Callable[[str], Pace]:
    """What a run asks of a host: the given pace, or the default, which private hosts are spared."""
    allowed = AllowPrivate.parse(settings.allow_private)
    given = Pace(settings.delay, settings.in_flight)

    def pace(lane: str) -> Pace:
        return FREE if not settings.pace_given and allowed.covers(lane) else given

    return pace


def start_of(scraper: Scraper, settings: Settings) -> tuple[list[Task], dict[str, Pace]]:
    """The start URLs as tasks, with the paces of their lanes."""
    tasks, rejected = start_tasks(scraper.start)
    if rejected:
        line, reason = rejected[0]
        raise Usage(f"start address {line!r} of {scraper.name}: {reason}", hint="put it right in the scraper")
    if not tasks:
        raise Usage(
            f"scraper {scraper.name} has no start address", hint='shoal.Scraper("…", start="https://…")'
        )
    rule = pace_rule(settings)
    return tasks, {task.lane: rule(task.lane) for task in tasks}


async def begin(
    queue: Queue, scraper: Scraper, settings: Settings, *, key: str, output: str, fresh: bool
) -> tuple[Run, Found, Exporter | None]:
    """Find or start the run of a command, with its output; a refused output leaves no run behind."""
    spec = {"output": output, "start": list(scraper.start)}
    run, found = await find_or_start(
        queue, scraper=scraper.name, key=key, spec=spec, max_pages=settings.max_pages, fresh=fresh
    )
    if not output:
        return run, found, None
    try:
        return run, found, Exporter(queue, run, output, settings.state_folder, fresh=fresh)
    except BaseException:
        if found == "new":
            await queue.set_run(run.id, "cancel")
            await queue.purge(run=run.id)
        raise


def worker_name() -> str:
    return f"w-{secrets.token_hex(4)}"


def serve(scraper: Scraper, settings: Settings, fetcher: HttpFetcher, run: str) -> Served:
    robots = Robots(fetcher.fetch, user_agent=settings.user_agent, ignore=settings.ignore_robots)
    links = LinkGate(scraper.in_scope, settings.max_depth, robots.peek)
    return Served(
        scraper=scraper,
        links=links,
        robots=robots,
        pace=pace_rule(settings),
        name=run,
        timeout=settings.timeout,
        handler_timeout=settings.handler_timeout,
        retries=None if settings.retries is None else {"*": settings.retries},
    )


async def worker_tools(
    scraper: Scraper, settings: Settings, *, run: str, queue: Queue, note: Note, supervised: bool
) -> Tools:
    fetcher = HttpFetcher(
        user_agent=settings.user_agent,
        allow_private=AllowPrivate.parse(settings.allow_private),
        concurrency=settings.concurrency,
        max_body=settings.max_body,
    )
    served = serve(scraper, settings, fetcher, run)

    async def serve_run(_: int) -> Served:
        return served

    return Tools(
        worker=note.worker,
        queue=queue,
        fetcher=fetcher,
        serve=serve_run,
        note=note,
        open_queue=lambda: open_queue(settings),
        supervised=supervised,
    )


def notes_folder(settings: Settings) -> Path:
    return settings.state_folder / "workers"


def plan_for(settings: Settings, run: Run) -> Plan:
    return Plan(
        concurrency=settings.concurrency,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        serves=(run.name,),
        runs=(run.id,),
    )
