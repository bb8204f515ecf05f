"""The queue backends, one entry each: how a URL leads to it, and how it is opened, checked and described.

A new backend is a folder beside this file and an entry in BACKENDS; nobody else looks at schemes. A backend's
own modules are imported when it is opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import UsageError
from shoal.queue import promises
from shoal.queue.promises import PromiseTable
from shoal.version import install_hint

if TYPE_CHECKING:
    from shoal.queue.base import Finding, Queue


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What a queue is opened with; each backend takes what it has a use for."""

    file: Path | None = None  # of an embedded queue
    small: bool = False  # for workers, of which there are many
    synchronous: str = "full"
    token: str = ""
    ca_file: str = ""


def _no_checks(folder: Path | None) -> Iterable[Finding]:
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    name: str  # in JSON and between servers
    label: str  # for people
    title: str = ""  # the label in full, where others speak its language, too
    schemes: tuple[str, ...]
    example: str  # of a URL
    open: Callable[[str, OpenOptions], Awaitable[Queue]]
    embedded: bool = False  # a file on this machine, else a server
    promises: PromiseTable | None  # None: those of the queue behind it
    extra: str = ""  # what pip installs for it, and the module that it brings
    module: str = ""
    # What `shoal doctor` asks before it is opened, given the folder of the state if the queue is kept there.
    checks: Callable[[Path | None], Iterable[Finding]] = _no_checks


async def _open_sqlite(url: str, options: OpenOptions) -> Queue:
    from shoal.queue.sqlite import SqliteQueue
    from shoal.queue.sqlite.engine import Synchronous

    synchronous: Synchronous = "normal" if options.synchronous == "normal" else "full"
    return await SqliteQueue.open(str(options.file or file_of(url)), synchronous=synchronous, small=options.small)


async def _open_postgres(url: str, options: OpenOptions) -> Queue:
    from shoal.queue.postgres import PostgresQueue

    return await PostgresQueue.open(url, small=options.small)


async def _open_redis(url: str, options: OpenOptions) -> Queue:
    from shoal.queue.redis import RedisQueue

    return await RedisQueue.open(url)


async def _open_http(url: str, options: OpenOptions) -> Queue:
    from shoal.queue.http import HttpQueue

    return await HttpQueue.open(url, token=options.token, ca_file=options.ca_file)


async def _open_rabbitmq(url: str, options: OpenOptions) -> Queue:
    from shoal.queue.rabbitmq import RabbitmqQueue

    return await RabbitmqQueue.open(url, ca_file=options.ca_file)


def _check_sqlite(folder: Path | None) -> Iterable[Finding]:
    from shoal.queue.sqlite.diagnostics import before_opening

    return before_opening(folder)


SQLITE = Backend(
    name="sqlite",
    label="SQLite",
    schemes=("sqlite",),
    example="sqlite:///…",
    open=_open_sqlite,
    embedded=True,
    promises=promises.SQLITE,
    checks=_check_sqlite,
)
BACKENDS = (
    SQLITE,
    Backend(
        name="postgres",
        label="PostgreSQL",
        schemes=("postgresql", "postgres"),
        example="postgresql://…",
        open=_open_postgres,
        promises=promises.POSTGRES,
        extra="postgres",
        module="asyncpg",
    ),
    Backend(
        name="redis",
        label="Redis",
        title="Redis and Valkey",
        schemes=("redis", "rediss", "valkey", "valkeys", "redis+unix"),
        example="redis://…",
        open=_open_redis,
        promises=promises.REDIS,
        extra="redis",
        module="hiredis",
    ),
    Backend(
        name="http",
        label="shoal server",
        schemes=("http", "https"),
        example="https://…",
        open=_open_http,
        promises=None,
    ),
    Backend(
        name="rabbitmq",
        label="RabbitMQ",
        title="RabbitMQ, with a ledger",
        schemes=("amqp", "amqps"),
        example="amqp://…?ledger=…",
        open=_open_rabbitmq,
        promises=None,
    ),
)


def find_backend(url: str) -> Backend | None:
    """The backend that a URL leads to, None for a scheme that nobody knows; what has none is a file."""
    scheme, status, _ = url.partition("://")
    if not status:
        return SQLITE
    return next((backend for backend in BACKENDS if scheme in backend.schemes), None)


def backend_of(url: str) -> Backend:
    """The backend that a URL leads to."""
    if (backend := find_backend(url)) is not None:
        return backend
    schemes = ", ".join(scheme for backend in BACKENDS for scheme in backend.schemes)
    raise UsageError(
        f"queues of the kind {url.partition('://')[0]}:// are not supported",
        hint=f"use one of {schemes}: {', '.join(backend.example for backend in BACKENDS)}",
    )


def file_of(url: str) -> Path | None:
    """The file of an embedded queue, None for any other queue."""
    _, status, rest = url.partition("://")
    if not status:
        return Path(url)
    backend = find_backend(url)
    return Path(rest.partition("?")[0].removeprefix("/")) if backend and backend.embedded else None


async def open_queue(url: str, options: OpenOptions) -> Queue:
    backend = backend_of(url)
    try:
        return await backend.open(url, options)
    except ModuleNotFoundError as error:
        if error.name is None or error.name != backend.module:
            raise
        raise UsageError(
            f"queues of the kind {backend.example} need a package that is not installed: {backend.module}",
            hint=install_hint(backend.extra),
        ) from error
