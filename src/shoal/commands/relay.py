"""`shoal relay`: stands between RabbitMQ and the ledger until it is stopped."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable

from shoal import app
from shoal.config.load import Settings
from shoal.config.queue_token import queue_ca_file
from shoal.control.broker_duties import BrokerDuties
from shoal.control.carrier.relay import BrokerRelay
from shoal.errors import UsageError
from shoal.launch.signals import stop_on_signals
from shoal.logs import redact
from shoal.queue.broker.broker_url import BrokerUrl
from shoal.queue.reconnect import OUTAGE_TIMEOUT, WaitStopped, reconnecting
from shoal.queue.registry import backend_of

Say = Callable[[str], None]


def is_carried(settings: Settings) -> bool:
    """Whether the queue is one that RabbitMQ carries."""
    return backend_of(settings.queue).name == "rabbitmq"


def relay_command(settings: Settings, say: Say) -> int:
    """Serve until told to stop (SIGTERM, Ctrl-C); answers the exit status."""
    if not is_carried(settings):
        raise UsageError(
            f"a relay stands behind a broker, and the queue is {app.queue_label(settings)}",
            hint="--queue 'amqp://user:password@broker/?ledger=redis://…'",
        )
    return asyncio.run(_relay(settings, say))


async def _relay(settings: Settings, say: Say) -> int:
    stop = asyncio.Event()
    with stop_on_signals(stop.set):
        await relay_until(settings, stop, say)
    say("Stopped.")
    return 0


async def relay_until(settings: Settings, stop: asyncio.Event, say: Say, *, on_ready: Say | None = None) -> None:
    """Open the ledger, waiting for one that is not up yet, and relay until stopped."""

    def note_failure(error: Exception, tries: int) -> None:
        if stop.is_set():
            raise WaitStopped
        if tries == 1:
            say(f"Waiting for the ledger: {error}")

    try:
        url, backend, ledger = await reconnecting(
            lambda: app.open_ledger(settings), OUTAGE_TIMEOUT, on_failure=note_failure
        )
    except WaitStopped:
        return
    words = f"relay · {url} · {url.namespace} · ledger {redact(url.ledger)}"
    try:
        relay = BrokerRelay(ledger, url, backend=backend, ca_file=queue_ca_file(settings))
        async with BrokerDuties(ledger, settings, url).running():
            await relay.run(stop, on_ready=lambda: (on_ready or say)(words), say=say)
    finally:
        await ledger.close()


def policies(settings: Settings) -> list[str]:
    """Commands for whoever runs the broker; nothing is set by shoal itself."""
    url = BrokerUrl.parse(settings.queue)
    name, vhost = url.namespace, shlex.quote(url.address.vhost)
    pattern = re.escape(name)

    def policy(what: str, queues: str, definition: dict[str, object]) -> str:
        words = shlex.quote(json.dumps(definition))
        return f"rabbitmqctl set_policy -p {vhost} {name}-{what} {shlex.quote(queues)} {words} --apply-to queues"

    return [
        "# Requests that nobody answers must not fill the broker:",
        policy("requests", rf"^{pattern}\.requests$", {"max-length-bytes": 256_000_000, "overflow": "drop-head"}),
        "# Queues that no worker has read for a week remove themselves; the ledger keeps the tasks:",
        policy("tasks", rf"^{pattern}\.(tasks|auto)\.", {"expires": 7 * 86_400_000}),
    ]
