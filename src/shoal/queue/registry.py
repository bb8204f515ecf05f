"""The queue backends, one entry each: how a URL leads to it, and how it is opened, checked and described.

A new backend is a folder beside this file and an entry in BACKENDS; nobody else looks at schemes. A backend's
own modules are imported when it is opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.core.queue_url import is_sharded
from shoal.errors import UsageError
from shoal.queue import promises
from shoal.queue.promises import PromiseTable
from shoal.version import install_hint

if TYPE_CHECKING:
    from shoal.queue.backup import QueueBackup
    from shoal.queue.base import Finding, Queue


@dataclass(frozen=True, slots=True)
class OpenOptions:
    """What a queue is opened with; each backend takes what it has a use for."""

    file: Path | None = None  # of an embedded queue
    small: bool = False  # for workers, of which there are many
    synchronous: str = "full"
    token: str = ""
    ca_file: str = ""
    hurry: bool = False  # whoever asks does not wait for what is only starting


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
    backup: Callable[[str, OpenOptions], QueueBackup] | None = None  # None: it is kept by the queue behind it


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

    return await RabbitmqQueue.open(url, ca_file=options.ca_file, hurry=options.hurry)


async def _open_shards(url: str, options: OpenOptions) -> Queue:
    from shoal.queue.shards import ShardedQueue
    from shoal.queue.shards.shard_url import shard_urls

    async def open_shard(part: str) -> Queue:
        return await open_queue(part, replace(options, file=file_of(part)))

    return await ShardedQueue.open(shard_urls(url), open_shard)


def _check_sqlite(folder: Path | None) -> Iterable[Finding]:
    from shoal.queue.sqlite.diagnostics import before_opening

    return before_opening(folder)


def _sqlite_backup(url: str, options: OpenOptions) -> QueueBackup:
    from shoal.queue.sqlite.backup import SqliteBackup

    return SqliteBackup(options.file or file_of(url) or Path(url))


def _postgres_backup(url: str, options: OpenOptions) -> QueueBackup:
    from shoal.queue.postgres.backup import PostgresBackup

    return PostgresBackup(url)


def _redis_backup(url: str, options: OpenOptions) -> QueueBackup:
    from shoal.queue.redis.backup import RedisBackup

    return RedisBackup(url)


_REDIS_FAILOVER = ("redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
SQLITE = Backend(
    name="sqlite",
    label="SQLite",
    schemes=("sqlite",),
    example="sqlite:///…",
    open=_open_sqlite,
    embedded=True,
    promises=promises.SQLITE,
    checks=_check_sqlite,
    backup=_sqlite_backup,
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
        backup=_postgres_backup,
    ),
    Backend(
        name="redis",
        label="Redis",
        title="Redis and Valkey",
        schemes=("redis", "rediss", "valkey", "valkeys", "redis+unix", *_REDIS_FAILOVER),
        example="redis://…",
        open=_open_redis,
        promises=promises.REDIS,
        extra="redis",
        module="hiredis",
        backup=_redis_backup,
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
    Backend(
        name="shards",
        label="shards",
        title="Shards: several queues as one",
        schemes=("shards",),
        example="shards:redis://…,redis://…",
        open=_open_shards,
        promises=promises.SHARDS,
    ),
)


def find_backend(url: str) -> Backend | None:
    """The backend that a URL leads to, None for a scheme that nobody knows; what has none is a file."""
    scheme, status, _ = url.partition("://")
    if not status and not is_sharded(url):
        return SQLITE
    scheme = scheme.partition(":")[0]  # shards:redis://…
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
    if not status and not is_sharded(url):
        return Path(url)
    backend = find_backend(url)
    return Path(rest.partition("?")[0].removeprefix("/")) if backend and backend.embedded else None


async def open_queue(url: str, options: OpenOptions) -> Queue:
    backend = backend_of(url)
    with _explained(backend):
        return await backend.open(url, options)


def backup_of(url: str, options: OpenOptions) -> QueueBackup | None:
    """How what a queue holds is copied and put back; None where it is kept by another queue."""
    backend = backend_of(url)
    with _explained(backend):
        return backend.backup(url, options) if backend.backup is not None else None


@contextmanager
def _explained(backend: Backend) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name != backend.module:
            raise
        raise UsageError(
            f"queues of the kind {backend.example} need a package that is not installed: {backend.module}",
            hint=install_hint(backend.extra),
        ) from error
