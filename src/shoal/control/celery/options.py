"""CeleryOptions: how Celery is set up, from the variables that its users know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from shoal.config.setting import read_value
from shoal.core import units
from shoal.errors import UsageError
from shoal.queue.registry import find_backend

DEFAULT_BROKER = "redis://127.0.0.1:6379/0"
MAX_CONCURRENCY = 1_000
_LABELS = {"amqp": "RabbitMQ", "amqps": "RabbitMQ", "pyamqp": "RabbitMQ", "redis": "Redis", "rediss": "Redis"}


class CeleryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Every CELERY_… variable that is read, with its default."""

    broker_url: str = DEFAULT_BROKER
    result_backend: str = ""  # empty: the broker, where that is Redis
    task_rate_limit: float = 10 / 60  # pages started per second and worker; 0: no limit
    task_max_retries: int = 3
    worker_concurrency: int = 2
    visibility_timeout: float = 120.0  # seconds after which Redis hands out a message again

    @property
    def results_url(self) -> str:
        if self.result_backend:
            return self.result_backend
        return self.broker_url if self.broker_label == "Redis" else "rpc://"

    @property
    def broker_label(self) -> str:
        """For people."""
        scheme = self.broker_url.partition("://")[0]
        return _LABELS.get(scheme.partition("+")[0], "broker")  # redis+socket:// is Redis, too

    @property
    def budget(self) -> float:
        """Seconds for which one message may work: well below half of the time after which it is handed out again."""
        return min(20.0, 0.4 * self.visibility_timeout)

    @property
    def default_queue(self) -> str:
        """The Redis of the broker; empty where the broker cannot hold a queue of ours."""
        backend = find_backend(self.broker_url)
        return self.broker_url if backend is not None and backend.name == "redis" else ""


def read_options(env: Mapping[str, str] | None = None) -> CeleryOptions:
    """What the environment says; UsageError names the variable that is not understood."""
    env = os.environ if env is None else env
    given: dict[str, Any] = {}
    for name, (parse, accepts) in _READERS.items():
        variable = "CELERY_" + name.upper()
        if text := env.get(variable, "").strip():
            given[name] = read_value(parse, text, variable, accepts)
    return CeleryOptions(**given)


def _url(value: object) -> str:
    text = units.text(value)
    if "://" not in text:
        raise ValueError(value)
    return text


def _rate(value: object) -> float:
    return 0.0 if str(value).strip().lower() in ("0", "none") else units.rate(value)


def _at_most(most: int, least: int) -> Callable[[object], int]:
    parse = units.integer(least)

    def bounded(value: object) -> int:
        found = parse(value)
        if found > most:
            raise ValueError(value)
        return found

    return bounded


def _visibility_timeout(value: object) -> float:
    seconds: float = units.seconds()(value)
    if seconds < 5:
        raise UsageError("a visibility timeout below 5 s hands out messages twice", hint="give at least 5s")
    return seconds


_READERS: dict[str, tuple[Callable[[object], Any], str]] = {
    "broker_url": (_url, "a URL such as redis://127.0.0.1:6379/0 or amqp://guest:guest@127.0.0.1//"),
    "result_backend": (_url, "a URL such as redis://127.0.0.1:6379/1"),
    "task_rate_limit": (_rate, "a rate such as 10/m or 2/s; 0 or none is no limit"),
    "task_max_retries": (_at_most(100, 0), "a whole number up to 100"),
    "worker_concurrency": (_at_most(MAX_CONCURRENCY, 1), f"a whole number from 1 to {MAX_CONCURRENCY}"),
    "visibility_timeout": (_visibility_timeout, "seconds, or a duration such as 2m; at least 5s"),
}
