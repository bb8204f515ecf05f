"""`shoal relay`: stands between RabbitMQ and the ledger until it is stopped."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import Callable

from shoal.config.load import Settings
from shoal.launch.broker_relay import relay_until, require_carried
from shoal.launch.service_manager import reported_service
from shoal.launch.signals import stop_on_signals
from shoal.queue.broker.broker_url import BrokerUrl

Say = Callable[[str], None]


def relay_command(settings: Settings, say: Say) -> int:
    """Serve until told to stop (SIGTERM, Ctrl-C); answers the exit status."""
    require_carried(settings)
    return asyncio.run(_relay(settings, say))


async def _relay(settings: Settings, say: Say) -> int:
    stop = asyncio.Event()
    with stop_on_signals(stop.set):
        async with reported_service() as report_ready:
            await relay_until(settings, stop, say, lambda: report_ready("relays"))
    say("Stopped.")
    return 0


def policies(settings: Settings) -> list[str]:
    """Commands for whoever runs the broker; nothing is set by shoal itself."""
    require_carried(settings)
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
