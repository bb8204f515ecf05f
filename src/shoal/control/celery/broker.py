"""Broker: sends messages to Celery, and says whether anybody is there to receive them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from shoal.control.celery.options import CeleryOptions
from shoal.errors import QueueUnavailable, UsageError
from shoal.logs import redact
from shoal.version import install_hint

T = TypeVar("T")

CONNECT_TIMEOUT = 2.0  # seconds
ANSWER_TIMEOUT = 5.0  # seconds that Redis has for an answer: one that stands still would hold a thread for ever
PING_TIMEOUT = 1.0  # seconds that workers have for their answer
# Nothing of ours is ever pickled, and nothing that is pickled is read.
CONTENT = {
    "task_serializer": "json",
    "result_serializer": "json",
    "event_serializer": "json",
    "accept_content": ["json"],
    "result_accept_content": ["json"],
}


def celery_app(options: CeleryOptions) -> Any:
    """An app for these options, without any tasks."""
    try:
        from celery import Celery
    except ModuleNotFoundError as error:
        raise UsageError(f"Celery is not installed: {error.name}", hint=install_hint("celery", "redis")) from error
    _check_transport(options.broker_url)
    _check_backend(options.results_url)
    app = Celery("shoal", broker=options.broker_url, backend=options.results_url, set_as_current=False)
    transport = {"visibility_timeout": options.visibility_timeout} if options.broker_label == "Redis" else {}
    app.conf.update(
        **CONTENT,
        broker_transport_options=transport,
        result_backend_transport_options=transport,
        broker_connection_retry_on_startup=True,
        worker_concurrency=options.worker_concurrency,
        worker_prefetch_multiplier=1,  # what is fetched ahead waits for the visibility timeout if its worker dies
        task_track_started=True,
        worker_send_task_events=True,
        task_send_sent_event=True,
        result_expires=86_400,
    )
    return app


def _for_questions(options: CeleryOptions) -> Any:
    """The app of those who ask and send, and consume nothing."""
    app = celery_app(options)
    if options.broker_label == "Redis":
        timeouts = {"socket_connect_timeout": CONNECT_TIMEOUT, "socket_timeout": ANSWER_TIMEOUT}
        app.conf.broker_transport_options = {**app.conf.broker_transport_options, **timeouts}
    return app


def _check_transport(url: str) -> None:
    """Kombu would say so when it first connects, and with its own words only."""
    from kombu.transport import get_transport_cls

    scheme = url.partition("://")[0]
    try:
        get_transport_cls(scheme.partition("+")[0])  # redis+socket:// is Redis, too
    except (KeyError, ImportError) as error:
        raise UsageError(
            f"CELERY_BROKER_URL: kombu cannot use {scheme}:// ({error.args[0]})", hint="give redis://… or amqp://…"
        ) from error


def _check_backend(url: str) -> None:
    """Celery would say no more than that there is no module of that name."""
    from celery.app.backends import by_url
    from celery.exceptions import ImproperlyConfigured

    try:
        by_url(url)
    except (ImportError, ImproperlyConfigured) as error:
        raise UsageError(
            f"CELERY_RESULT_BACKEND: Celery cannot use {url.partition('://')[0]}:// ({error})",
            hint="give redis://…, or what that backend needs is to be installed",
        ) from error


class Broker:
    """Kombu waits where it stands, so everything here is done in threads."""

    def __init__(self, options: CeleryOptions, app: Any = None) -> None:
        self.options = options
        self._app = app or _for_questions(options)

    async def send(
        self,
        name: str,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        queue: str = "",
        expires: float | None = None,
    ) -> None:
        """Send a task by its name; QueueUnavailable where the broker does not take it."""

        def send() -> None:
            where = {"queue": queue} if queue else {}
            with self._translated():
                self._app.send_task(
                    name,
                    args=list(args),
                    kwargs=dict(kwargs or {}),
                    task_id=id,
                    expires=expires,
                    # Only the worker is told: nobody waits for a result here, and a result backend that is away
                    # would hold up what is sent, and end in an error of which Celery says that it is for ever.
                    ignore_result=True,
                    headers={"ignore_result": False},
                    retry=True,
                    retry_policy={"max_retries": 1, "interval_start": 0.1},
                    serializer="json",
                    **where,
                )

        await asyncio.to_thread(send)

    async def check(self) -> None:
        """QueueUnavailable where the broker cannot be reached."""

        def connect() -> None:
            with self._translated(), self._app.connection_for_read(connect_timeout=CONNECT_TIMEOUT) as connection:
                connection.ensure_connection(max_retries=1, interval_start=0.1, timeout=CONNECT_TIMEOUT)

        await asyncio.to_thread(connect)

    async def worker_sizes(self) -> dict[str, int]:
        """How many tasks each Celery worker that answers does at once, by its name."""

        def ask() -> dict[str, int]:
            with self._translated():
                found = self._app.control.inspect(timeout=PING_TIMEOUT).stats() or {}
            return {str(name): _pool_size(stats) for name, stats in found.items()}

        return await asyncio.to_thread(ask)

    async def ask(self, question: Callable[[Any], T]) -> T:
        """What somebody wants to know of a connection to the broker."""

        def connected() -> T:
            with self._translated(), self._app.connection_for_read(connect_timeout=CONNECT_TIMEOUT) as connection:
                return question(connection)

        return await asyncio.to_thread(connected)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _broker_errors(self._app) as error:
            label = self.options.broker_label
            raise QueueUnavailable(
                f"{label} not available: {redact(str(error))[:300]}",
                hint=f"is the broker up? CELERY_BROKER_URL is {redact(self.options.broker_url)}",
            ) from error

    def close(self) -> None:
        self._app.close()


def _broker_errors(app: Any) -> tuple[type[Exception], ...]:
    """What its transport raises where the broker is away, and what Celery makes of that."""
    from kombu.exceptions import KombuError

    connection = app.connection_for_write()
    return (OSError, KombuError, *connection.connection_errors, *connection.channel_errors)


def _pool_size(stats: object) -> int:
    pool = stats.get("pool") if isinstance(stats, dict) else None
    size = pool.get("max-concurrency") if isinstance(pool, dict) else None
    return size if isinstance(size, int) and 0 < size < 10_000 else 1
