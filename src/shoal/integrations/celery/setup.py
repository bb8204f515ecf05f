"""CelerySetup: what an app was installed with: how its processes reach the queue, and what they may load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from shoal.config.load import Settings, load, with_defaults
from shoal.control.celery.options import CeleryOptions, read_options
from shoal.errors import UsageError

KOMBU_VISIBILITY_TIMEOUT = 3600.0  # seconds, where an app does not say


@dataclass(frozen=True, slots=True)
class CelerySetup:
    settings: Settings  # of the workers
    run_settings: Settings  # the same, with what Celery's variables say about runs that messages start
    options: CeleryOptions
    targets: tuple[str, ...] = ()  # code to load


def setup_for(options: CeleryOptions, scrapers: tuple[str, ...], given: Mapping[str, Any]) -> CelerySetup:
    """The settings of this machine, with the Redis of the broker where no queue is named."""
    flags: dict[str, Any] = {**given, "engine": "celery"}
    plain = load(flags)
    if not plain.is_set("queue"):
        if not options.default_queue:
            raise UsageError(
                f"no queue is named, and {options.broker_label} cannot be one",
                hint="set SHOAL_QUEUE to redis://… or postgresql://…",
            )
        flags["queue"] = options.default_queue
    if not plain.is_set("worker_rate"):
        flags["worker_rate"] = options.task_rate_limit
    if not plain.is_set("name"):
        flags["name"] = "celery"
    settings = load(flags)
    retries = {"retries": options.task_max_retries}
    run_settings = with_defaults(settings, retries, "CELERY_TASK_MAX_RETRIES")
    return CelerySetup(settings, run_settings, options, scrapers or settings.scrapers)


def options_of(app: Any) -> CeleryOptions:
    """What the variables say, but for what an app that somebody else made says itself."""
    conf = app.conf
    transport = conf.broker_transport_options or {}
    found: dict[str, Any] = {
        "broker_url": str(app.connection_for_write().as_uri(include_password=True)),
        "visibility_timeout": float(transport.get("visibility_timeout", KOMBU_VISIBILITY_TIMEOUT)),
    }
    if conf.result_backend:
        found["result_backend"] = str(conf.result_backend)
    return msgspec.structs.replace(read_options(), **found)
