"""The names of everything that shoal has in a broker; all begin with the namespace."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from shoal.core.task import Ack, band

MAX_NAME = 180  # bytes of the part that a scraper's name takes
_plain = re.compile(r"[\w:.-]+", re.ASCII).fullmatch

# A relay that is away for long finds no stale requests: each says for how long it counts.
REQUEST_ARGUMENTS: dict[str, Any] = {"x-queue-type": "classic"}
# Said explicitly: RabbitMQ 4 would drop what was delivered 20 times, and relays and workers may die more often.
QUORUM: dict[str, Any] = {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000}


def task_arguments(namespace: str) -> dict[str, Any]:
    """What expires in a queue of tasks, by a message's TTL or by a policy, goes where the relay tells the ledger."""
    return {
        **QUORUM,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": expired(namespace),
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",  # without it, the strategy is not kept
    }


def expired(namespace: str) -> str:
    """The queue of tasks that waited for too long."""
    return f"{namespace}.expired"


def requests(namespace: str) -> str:
    """The queue of the verbs that workers and producers ask for."""
    return f"{namespace}.requests"


def relays(namespace: str) -> str:
    """The exchange by which all relays learn what workers hold."""
    return f"{namespace}.relays"


def hints(namespace: str) -> str:
    """The exchange by which workers learn that there may be work."""
    return f"{namespace}.hints"


def task_queue(namespace: str, scraper: str, priority: int, ack: Ack) -> str:
    """The queue of the tasks of a scraper or type, of one band of priorities and one way of acknowledgement."""
    name = scraper
    if not _plain(scraper) or len(scraper) > MAX_NAME:
        # Whatever a scraper is called, no two share a queue and no name is too long for the broker.
        name = re.sub(r"[^\w:.-]+", "_", scraper, flags=re.ASCII)[:100]
        name += "~" + hashlib.sha256(scraper.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{namespace}.{'auto' if ack == 'auto' else 'tasks'}.{name}.{band(priority)}"
