"""App: the composition root, the only place that turns settings into concrete parts."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from shoal.config import Settings
from shoal.control.patience import SERVER
from shoal.control.runs import Found, find_or_start, sown
from shoal.core.lane import FREE, Pace
from shoal.core.run import NewRun, Run
from shoal.core.task import Task
from shoal.core.typed import PREFIX
from shoal.core.url import Rewrite
from shoal.errors import Usage
from shoal.extract.links import start_tasks
from shoal.extract.scraper import Scraper
from shoal.fetch.guard import AllowPrivate, looks_private
from shoal.logs import redact
from shoal.queue.base import Queue
from shoal.store.base import Ledger
from shoal.store.export import Exporter
from shoal.worker.plan import Plan

if TYPE_CHECKING:
    from shoal.store.raw import RawShelf

TEMPLATE = "template"  # the kind under which queues keep templates


async def open_queue(settings: Settings, *, small: bool = False) -> Queue:
    """The queue that the settings name; `small` for workers, of which there are many."""
    path = settings.state_file
    if settings.queue.startswith(("http://", "https://")):
        from shoal.queue.http import HttpQueue

        return await HttpQueue.open(settings.queue, token=settings.token, ca_file=settings.ca_file)
    if path is None:
        return await _open_server(settings.queue, small=small)
    from shoal.queue.sqlite import SqliteQueue

    synchronous: Literal["normal", "full"] = "normal" if settings.synchronous == "normal" else "full"
    return await SqliteQueue.open(str(path), synchronous=synchronous, small=small)


async def _open_server(url: str, *, small: bool) -> Queue:
    scheme = url.partition("://")[0]
    try:
        if scheme in ("postgresql", "postgres"):
            from shoal.queue.postgres import PostgresQueue

            return await PostgresQueue.open(url, small=small)
        if scheme in ("redis", "rediss", "valkey", "valkeys", "redis+unix"):
            from shoal.queue.redis import RedisQueue

            return await RedisQueue.open(url)
    except ModuleNotFoundError as error:
        extra = {"asyncpg": "postgres", "hiredis": "redis"}.get(error.name or "")
        if extra is None:
            raise
        raise Usage(
            f"queues of the kind {scheme}:// need a package that is not installed: {error.name}",
            hint=f"pip install 'shoal[{extra}]'",
        ) from error
    raise Usage(
        f"queues of the kind {scheme}:// are not known here",
        hint="sqlite:///path/to/state.db, postgresql://…, redis://…, or https://… of a shoal server",
    )


def pace_rule(settings: Settings) -> Callable[[str], Pace]:
    """What a run asks of a host: the given pace, or the default, which private hosts are spared."""
    allowed = AllowPrivate.parse(settings.allow_private)
    asked = Pace(settings.delay, settings.in_flight)
    spared = Pace(
        settings.delay if settings.given("delay", "rate") else FREE.spacing,
        settings.in_flight if settings.given("in_flight") else FREE.max_in_flight,
    )

    @lru_cache(maxsize=10_000)  # asked with every answer
    def pace(lane: str) -> Pace:
        if lane.startswith(PREFIX):  # typed tasks without a host
            return FREE
        return spared if allowed.covers(lane) else asked

    return pace


def rewrite_rule(settings: Settings) -> Rewrite:
    return Rewrite(sort_query=settings.sort_query, drop_tracking=settings.drop_tracking)


def start_of(scraper: Scraper, settings: Settings) -> tuple[list[Task], dict[str, Pace]]:
    """The start URLs as tasks, with the paces of their lanes."""
    tasks, rejected = start_tasks(scraper.start, rewrite=rewrite_rule(settings))
    tasks += [seed.core() for seed in scraper.seeds]
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
    pages = [task for task in tasks if task.kind == "page"]
    if not pages or AllowPrivate.parse(settings.allow_private) != AllowPrivate():
        return
    if all(looks_private(task.lane) for task in pages):
        raise Usage(
            f"{pages[0].url} is on a private host, and those are not reached unless allowed",
            hint="--allow-private if that is where it should go",
        )


async def begin(
    queue: Queue, new: NewRun, settings: Settings, *, output: str, fresh: bool, records: Ledger | None = None
) -> tuple[Run, Found, Exporter | None]:
    """Find or start the run of a command, with its output; a refused output leaves no run behind.

    records: where the output reads them, if not from the queue alone.
    """
    run, found = await find_or_start(queue, new, fresh=fresh)
    if not output:
        return run, found, None
    try:
        return (
            run,
            found,
            Exporter(
                records or queue,
                run,
                output,
                settings.state_folder,
                fresh=fresh,
                csv_safe=settings.csv_safe,
            ),
        )
    except BaseException:
        if found == "new":
            await queue.set_run(run.id, "cancel")
            await queue.purge(run=run.id)
            await sown(queue, run.name)
        raise


def patience_of(settings: Settings) -> float:
    """Seconds that the queue may be out of reach: servers come back, a file does not."""
    return SERVER if settings.state_file is None else 0.0


def place_words(settings: Settings) -> str:
    """Where the state is, for people: a file, or an address without its password."""
    return str(settings.state_file or redact(settings.queue))


def raw_shelf(settings: Settings) -> RawShelf:
    """Where kept pages are; opened by few, so loaded late."""
    from shoal.store.raw import RawShelf

    return RawShelf(settings.state_folder / "raw", durable=settings.synchronous == "full")


def cookie_file(settings: Settings, run: Run) -> Path:
    """Where the worker processes of a run share its cookies."""
    return settings.state_folder / "cookies" / run.name


def worker_name() -> str:
    return f"w-{secrets.token_hex(4)}"


def notes_folder(settings: Settings) -> Path:
    """Where workers on this machine leave their notes, apart for every queue: they are given back there."""
    return settings.state_folder / "workers"


def plan_for(settings: Settings, run: Run, *, stay: bool = False) -> Plan:
    """stay: there may be more to come when nothing is open."""
    return Plan(
        name=run.name,
        concurrency=settings.concurrency,
        lease=settings.lease,
        heartbeat=settings.heartbeat,
        serves=(run.name,),
        runs=(run.id,),
        stop_when_empty=not stay,
        batch_size=settings.batch_size,
        hints=settings.state_file is None,
        titles=(run.scraper,),
    )
