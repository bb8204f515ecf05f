"""App: the composition root, the only place that turns settings into concrete parts."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

from shoal.config import Settings
from shoal.control.runs import Found, find_or_start
from shoal.core.lane import FREE, Pace
from shoal.core.run import Run
from shoal.core.task import Task
from shoal.core.url import canonical, lane_of
from shoal.errors import InvalidUrl, Usage
from shoal.extract.links import LinkGate, start_tasks
from shoal.extract.scraper import Scraper
from shoal.fetch.guard import AllowPrivate
from shoal.fetch.http import HttpFetcher
from shoal.logs import redact
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
        raise Usage(
            f"queues of the kind {scheme}:// are not known here", hint="--queue sqlite:///path/to/state.db"
        )
    from shoal.queue.sqlite import SqliteQueue

    return await SqliteQueue.open(
        str(path), synchronous="normal" if settings.synchronous == "normal" else "full"
    )


def pace_rule(settings: Settings) -> Callable[[str], Pace]:
    """What a run asks of a host: the given pace, or the default, which private hosts are spared."""
    allowed = AllowPrivate.parse(settings.allow_private)
    asked = Pace(settings.delay, settings.in_flight)
    spared = Pace(
        settings.delay if settings.given("delay", "rate") else FREE.spacing,
        settings.in_flight if settings.given("in_flight") else FREE.max_in_flight,
    )

    def pace(lane: str) -> Pace:
        return spared if allowed.covers(lane) else asked

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


def check_reach(tasks: Sequence[Task], settings: Settings) -> None:
    """Refuse at once what could only fail: start addresses on private hosts where none is allowed."""
    private = AllowPrivate(everything=True).covers
    if AllowPrivate.parse(settings.allow_private) == AllowPrivate() and all(private(t.lane) for t in tasks):
        raise Usage(
            f"{tasks[0].url} is on a private host, and those are not reached unless allowed",
            hint="--allow-private if that is where it should go",
        )


async def begin(
    queue: Queue,
    scraper: Scraper,
    settings: Settings,
    *,
    key: str,
    output: str,
    fresh: bool,
    command: str = "",
) -> tuple[Run, Found, Exporter | None]:
    """Find or start the run of a command, with its output; a refused output leaves no run behind."""
    spec = {"output": output, "start": list(scraper.start), "command": redact(command)}
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


def serve(scraper: Scraper, settings: Settings, fetcher: HttpFetcher, queue: Queue, run: str) -> Served:
    pace = pace_rule(settings)

    async def slot_for(url: str) -> None:
        """robots.txt itself goes out in its task's slot; where it redirects to, it needs one of its own."""
        try:
            lane = lane_of(canonical(url))
        except InvalidUrl:
            return  # the fetcher says what is wrong with it
        if pace(lane).spacing:
            await asyncio.sleep((await queue.reserve(lane, pace(lane))).wait)

    robots = Robots(
        fetcher.fetch, user_agent=settings.user_agent, ignore=settings.ignore_robots, moving=slot_for
    )
    links = LinkGate(scraper.in_scope, settings.max_depth, robots.peek)
    return Served(
        scraper=scraper,
        links=links,
        robots=robots,
        pace=pace,
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
    served = serve(scraper, settings, fetcher, queue, run)

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
