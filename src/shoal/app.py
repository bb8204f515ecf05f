"""The composition root: the only place that turns settings into concrete parts."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from shoal.config.load import Settings
from shoal.config.local_token import find_token
from shoal.config.queue_token import check_database_passwords, queue_ca_file, queue_token
from shoal.core.capability import BROWSER
from shoal.core.lane import CACHE_PREFIX, UNLIMITED_PACE, Pace, host_of_lane
from shoal.core.name_format import file_name_of
from shoal.core.routes import Routes
from shoal.core.run import Run
from shoal.core.session_options import SessionOptions
from shoal.core.task import Task
from shoal.core.task_kind import is_fetched
from shoal.core.typed_task import TYPE_PREFIX
from shoal.core.url import UrlNormalizer
from shoal.errors import ActionRequired, UsageError
from shoal.extract.scraper import Scraper
from shoal.fetch.guard import PrivateNetworkPolicy, looks_private
from shoal.logs import log, redact
from shoal.queue import registry
from shoal.queue.backup import QueueBackup
from shoal.queue.base import Queue
from shoal.queue.broker.broker_url import LEDGER_OF_RELAY, BrokerUrl
from shoal.queue.reconnect import OUTAGE_TIMEOUT
from shoal.queue.registry import OpenOptions
from shoal.sources.start_task import start_tasks

if TYPE_CHECKING:
    from shoal.store.raw.page_store import RawPageStore


async def open_queue(settings: Settings, *, small: bool = False, hurry: bool = False) -> Queue:
    """Open the queue that the settings name; `small` is for workers, which need few connections each.

    `hurry` is for people who look at it: what is not there is said at once, also if it may be starting.
    """
    return await registry.open_queue(settings.queue, _open_options(settings, small=small, hurry=hurry))


def open_backup(settings: Settings) -> QueueBackup | None:
    """How the queue that the settings name is copied and put back; None where another queue keeps it."""
    return registry.backup_of(settings.queue, _open_options(settings))


def _open_options(settings: Settings, *, small: bool = False, hurry: bool = False) -> OpenOptions:
    check_database_passwords(settings, os.environ)
    token = queue_token(settings) or find_token(settings.queue)
    return OpenOptions(settings.state_file, small, settings.synchronous, token, queue_ca_file(settings), hurry)


async def open_ledger(settings: Settings) -> tuple[BrokerUrl, str, Queue]:
    """The queue behind a broker, as only a relay opens it: the broker's URL, what it is kept in, and the queue."""
    url = BrokerUrl.parse(settings.queue)
    if url.ledger == LEDGER_OF_RELAY:
        raise UsageError(
            "ledger=relay is for workers and producers: the relay itself must know where the ledger is",
            hint="amqp://…?ledger=redis://… (or postgresql://…, sqlite:///…)",
        )
    backend = registry.backend_of(url.ledger)
    if backend.promises is None:
        raise UsageError(
            f"a ledger is a Redis, PostgreSQL or SQLite queue, and {backend.example} is another one",
            hint="amqp://…?ledger=redis://… (or postgresql://…, sqlite:///…)",
        )
    options = OpenOptions(registry.file_of(url.ledger), False, settings.synchronous)
    return url, backend.name, await registry.open_queue(url.ledger, options)


@contextlib.asynccontextmanager
async def opened_queue(settings: Settings, *, small: bool = False, hurry: bool = False) -> AsyncIterator[Queue]:
    """The same, closed in the end."""
    queue = await open_queue(settings, small=small, hurry=hurry)
    try:
        yield queue
    finally:
        await queue.close()


def pace_rule(settings: Settings) -> Callable[[str], Pace]:
    """The pace of each lane: the given one, or the default, from which private hosts are exempt; routes win."""
    routes = route_rules(settings)
    allowed = PrivateNetworkPolicy.parse(settings.allow_private)
    default = Pace(settings.delay, settings.in_flight)
    exempt = Pace(
        settings.delay if settings.is_set("delay", "rate") else UNLIMITED_PACE.spacing,
        settings.in_flight if settings.is_set("in_flight") else UNLIMITED_PACE.max_in_flight,
    )

    @lru_cache(maxsize=10_000)  # asked with every answer
    def pace(lane: str) -> Pace:
        if lane.startswith((TYPE_PREFIX, CACHE_PREFIX)):  # typed tasks without a host, pages that nobody is asked for
            return UNLIMITED_PACE
        return routes.pace(lane, exempt if allowed.covers(host_of_lane(lane)) else default)

    return pace


async def give_paces(queue: Queue, run: Run, tasks: Sequence[Task], pace: Callable[[str], Pace]) -> None:
    """Tell the queue what a run asks of lanes from now on; `tasks`: some of them, which the run may have."""
    by_lane = {task.lane: task for task in tasks}
    # Only what the run has: others were left out on purpose, and would be added.
    ids = await queue.ids(run.id, [task.digest for task in by_lane.values()])
    known = [task for task, number in zip(by_lane.values(), ids, strict=True) if number]
    if known:
        await queue.add(run.id, known, {task.lane: pace(task.lane) for task in known})


def rewrite_rule(settings: Settings) -> UrlNormalizer:
    return UrlNormalizer(sort_query=settings.sort_query, drop_tracking=settings.drop_tracking)


def route_rules(settings: Settings, scraper: Scraper | None = None) -> Routes:
    """The rules of a run; where its scraper is known, its handlers say as well what is fetched by a browser."""
    if scraper is not None and (scraper.declares_fetch or scraper.exits):
        return Routes(
            settings.routes,
            lambda url, kind: scraper.fetch_of(url, kind) or settings.fetch,
            lambda url, kind: scraper.exit_of(url, kind) or settings.exit,
            exits_have_own_pace=settings.exit_pace == "exit",
            sessions=settings.sessions,
            session=settings.session,
        )
    if settings.sessions or settings.session:
        return _make_routes(
            settings.routes, settings.fetch, settings.exit, settings.exit_pace, settings.sessions, settings.session
        )
    return _routes(settings.routes, settings.fetch, settings.exit, settings.exit_pace)


@lru_cache(maxsize=16)  # asked for several times for each run
def _routes(lines: tuple[str, ...], fetch: str, exit: str, exit_pace: str) -> Routes:
    return _make_routes(lines, fetch, exit, exit_pace, {}, "")


def _make_routes(
    lines: tuple[str, ...], fetch: str, exit: str, exit_pace: str, sessions: Mapping[str, SessionOptions], session: str
) -> Routes:
    return Routes(
        lines,
        (lambda url, kind: fetch) if fetch == BROWSER else None,
        (lambda url, kind: exit) if exit else None,
        exits_have_own_pace=exit_pace == "exit",
        sessions=sessions,
        session=session,
    )


def seed_tasks(scraper: Scraper, settings: Settings) -> tuple[list[Task], dict[str, Pace]]:
    """The start URLs as tasks, with the paces of their lanes; they are fetched whatever a seen-set has."""
    tasks, rejected = start_tasks(
        scraper.start, rewrite=rewrite_rule(settings), revisit=True, routes=route_rules(settings, scraper)
    )
    tasks += [msgspec.structs.replace(seed.to_queue_task(), revisit=True) for seed in scraper.seeds]
    if rejected:
        line, reason = rejected[0]
        raise UsageError(f"start URL {line!r} of {scraper.name}: {reason}", hint="fix it in the scraper")
    if not tasks:
        raise UsageError(f"scraper {scraper.name} has no start URL", hint='shoal.Scraper("…", start="https://…")')
    rule = pace_rule(settings)
    return tasks, {task.lane: rule(task.lane) for task in tasks}


def refuse_private_start(tasks: Sequence[Task], settings: Settings) -> None:
    """Refuse start URLs that could only fail: all of them are on private hosts, and none is allowed."""
    pages = [task for task in tasks if is_fetched(task.kind)]
    if not pages or PrivateNetworkPolicy.parse(settings.allow_private) != PrivateNetworkPolicy():
        return
    if all(looks_private(host_of_lane(task.lane)) for task in pages):
        raise UsageError(
            f"{pages[0].url} is on a private host, which is refused unless allowed",
            hint="--allow-private, if this is intended",
        )


def queue_outage_timeout(settings: Settings) -> float:
    """Seconds that the queue may be out of reach: servers come back, a file does not."""
    return OUTAGE_TIMEOUT if settings.state_file is None else 0.0


def queue_label(settings: Settings) -> str:
    """Where the queue is, for people: a file, or a URL without its password."""
    return str(settings.state_file or redact(settings.queue))


def open_raw_store(settings: Settings) -> RawPageStore:
    """The store of saved pages; imported late, because few commands need it."""
    from shoal.store.raw.page_store import RawPageStore

    return RawPageStore(settings.state_folder / "raw", durable=settings.synchronous == "full")


def bounded_raw_folder(settings: Settings) -> Path:
    """Where the pages of lists are kept within a bound."""
    return settings.state_folder / "raw" / "lists"


def open_saved_pages(settings: Settings, *, strict: bool = False) -> list[RawPageStore]:
    """Every store of saved pages there is: of those that were asked for, and of lists. None is made.

    One of lists that cannot be opened is left out, unless this is strict: nobody relies on it.
    """
    from shoal.store.raw.file import FILE_NAME
    from shoal.store.raw.page_store import RawPageStore

    lists = bounded_raw_folder(settings)
    stores = [open_raw_store(settings)] if (settings.state_folder / "raw" / FILE_NAME).exists() else []
    if (lists / FILE_NAME).exists():
        try:
            stores.append(RawPageStore(lists, durable=False))
        except ActionRequired as error:
            if strict:
                raise
            log("pages_not_kept", "warning", folder=str(lists), why=str(error), hint=error.hint)
    return stores


def cookie_file(settings: Settings, run: Run) -> Path:
    """Where the worker processes of a run share its cookies."""
    return settings.state_folder / "cookies" / file_name_of(run.name)


def worker_name() -> str:
    return f"w-{secrets.token_hex(4)}"


def crash_notes_folder(settings: Settings) -> Path:
    """Where workers on this machine keep their crash notes: one folder for each queue."""
    return settings.state_folder / "workers"


def rate_file(settings: Settings, worker: str) -> Path:
    """Where the processes of a worker count the pages that they start."""
    return settings.state_folder / "rates" / worker
