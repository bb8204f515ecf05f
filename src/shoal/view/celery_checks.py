"""Checks of Celery: versions that do not fit, a broker that is away, and messages that will be handed out twice."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any

from shoal.config.load import Settings
from shoal.control.celery.broker import Broker
from shoal.control.celery.options import CeleryOptions, read_options
from shoal.errors import ActionRequired
from shoal.logs import redact
from shoal.queue.base import Finding
from shoal.version import install_hint

CLIENTS = {"Redis": "redis", "RabbitMQ": "amqp"}  # by kind of broker: the package through which kombu reaches it
TIMEOUT = 10.0  # seconds for all of it
LONG_SHARE = 0.5  # of the visibility timeout


def has_celery(settings: Settings) -> bool:
    """Whether anybody uses Celery here."""
    return settings.engine == "celery" or bool(os.environ.get("CELERY_BROKER_URL", "").strip())


async def celery_findings() -> list[Finding]:
    try:
        options = read_options()
    except ActionRequired as error:
        return [Finding("celery", "wrong", str(error), error.hint)]
    if not _version("celery"):
        return [Finding("celery", "wrong", "Celery is not installed", install_hint("celery"))]
    found = list(_versions(options))
    if any(finding.level == "wrong" for finding in found):
        return found  # what does not fit cannot be asked
    broker = Broker(options)
    try:
        async with asyncio.timeout(TIMEOUT):
            await broker.check()
            found.append(Finding("celery", "ok", f"broker {redact(options.broker_url)} answers"))
            found.append(_workers(await broker.worker_sizes()))
            found += await broker.ask(lambda connection: list(_redis(connection, options)))
    except ActionRequired as error:
        found.append(Finding("celery", "wrong", str(error), error.hint))
    except TimeoutError:
        words = f"broker {redact(options.broker_url)} does not answer within {TIMEOUT:.0f} s"
        found.append(
            Finding("celery", "wrong", words, "check host and port, and whether the broker blocks connections")
        )
    finally:
        broker.close()
    return found


def _versions(options: CeleryOptions) -> Iterator[Finding]:
    """Whether kombu was made for the client library that is installed: an upgrade of one alone breaks the other."""
    from packaging.requirements import Requirement

    kombu, client = _version("kombu"), CLIENTS.get(options.broker_label, "")
    have = " · ".join(f"{name} {v}" for name in ("celery", "kombu", client) if name and (v := _version(name)))
    yield Finding("celery", "ok", have)
    for line in requires("kombu") or ():
        wanted = Requirement(line)
        if wanted.name != client or (wanted.marker and not wanted.marker.evaluate({"extra": client})):
            continue
        installed = _version(client)
        if not installed:
            words = f"kombu {kombu} reaches {options.broker_label} through {client}, which is not installed"
            yield Finding("celery", "wrong", words, f"pip install '{client}{wanted.specifier}'")
        elif not wanted.specifier.contains(installed, prereleases=True):
            words = f"kombu {kombu} needs {client} {wanted.specifier}, and {client} {installed} is installed"
            yield Finding(
                "celery", "wrong", words, f"pip install '{client}{wanted.specifier}', or upgrade celery and kombu"
            )


def _workers(sizes: dict[str, int]) -> Finding:
    if sizes:
        return Finding("celery", "ok", f"{len(sizes)} Celery workers answer, with {sum(sizes.values())} processes")
    fix = "celery -A shoal.integrations.celery worker"
    return Finding("celery", "warning", "no Celery worker answers: messages wait in the broker", fix)


def _redis(connection: Any, options: CeleryOptions) -> Iterator[Finding]:
    """What kombu keeps in Redis: messages that were handed out and not acknowledged, with the time of each."""
    if options.broker_label != "Redis":
        return
    channel = connection.default_channel
    policy = str(channel.client.info("memory").get("maxmemory_policy", "noeviction"))
    if policy != "noeviction":
        words = f"the broker evicts messages when its memory is full ({policy})"
        yield Finding(
            "celery", "wrong", words, "CONFIG SET maxmemory-policy noeviction, and the same line in redis.conf"
        )
    oldest = channel.client.zrange(channel.unacked_index_key, 0, 0, withscores=True)
    age = time.time() - oldest[0][1] if oldest else 0.0
    limit = options.visibility_timeout
    if age > LONG_SHARE * limit:
        yield Finding(
            "celery",
            "warning",
            f"a message has been in progress for {age:.0f} s: after the visibility timeout of {limit:.0f} s"
            " Redis hands it out again, and its task runs twice",
            f"set the visibility timeout to twice the longest task: CELERY_VISIBILITY_TIMEOUT={2 * age:.0f}s or more",
        )
    else:
        yield Finding("celery", "ok", f"no message is in progress for long (visibility timeout {limit:.0f} s)")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
