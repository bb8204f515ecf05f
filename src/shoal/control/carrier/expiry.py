"""Expiry: how long a published task may wait in the broker, and what becomes of one that waited for longer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.amqp.connection import Connection
from shoal.amqp.errors import NotAmqp
from shoal.amqp.message import Message
from shoal.core.task import Attempt, LeasedTask, Outcome
from shoal.logs import log
from shoal.queue.base import Queue
from shoal.queue.broker import names
from shoal.queue.broker.topology import declare_queue
from shoal.queue.broker.wire import decode_task
from shoal.queue.request_cost import unstorable

PREFETCH = 500
EXPIRED = "expired"  # the cause in the ledger, and the broker's word
WORDS = "its TTL ran out while it waited in RabbitMQ"


async def time_left(ledger: Queue, tasks: Sequence[LeasedTask]) -> dict[int, int]:
    """Milliseconds for which tasks may wait, of those that have a TTL."""
    expiring = {task.id: task.expires_at for task in tasks if task.expires_at}
    if not expiring:
        return {}
    now = await ledger.now()
    return {task: max(0, (at - now) // 1000) for task, at in expiring.items()}


class ExpiredTasks:
    """Tells the ledger what expired in the broker, by the TTL of a message or of its queue: the smaller wins there."""

    def __init__(self, ledger: Queue, namespace: str) -> None:
        self._ledger = ledger
        self._queue = names.expired(namespace)

    async def serve(self, connection: Connection) -> None:
        """For as long as the connection lasts."""
        await declare_queue(connection, self._queue, names.QUORUM)
        channel = await connection.channel(prefetch=PREFETCH, confirms=False)
        inbox: asyncio.Queue[Message] = asyncio.Queue()
        await channel.consume(self._queue, inbox.put_nowait, tag="expired")
        while True:
            getting = asyncio.ensure_future(inbox.get())
            await asyncio.wait((getting, channel.closed), return_when=asyncio.FIRST_COMPLETED)
            if channel.closed.done():
                getting.cancel()
                raise channel.closed.result()
            batch = [getting.result()]
            while not inbox.empty():
                batch.append(inbox.get_nowait())
            await self._settle(batch)
            channel.ack(batch[-1].tag, multiple=True)

    async def _settle(self, batch: Sequence[Message]) -> None:
        """Fenced by the lease: of a task that went another way meanwhile, nothing changes."""
        now = await self._ledger.now()
        outcomes = {}
        for message in batch:
            try:
                task, reason = decode_task(message.body), _reason(message.properties.headers)
                if what := unstorable((task.id, task.lease)):
                    raise msgspec.ValidationError(what)
            except (msgspec.MsgspecError, NotAmqp, UnicodeDecodeError):
                log("expired.not_understood", "warning", queue=self._queue, bytes=len(message.body))
                continue
            outcomes[task.id] = _outcome(task, reason, now)
        if outcomes:
            await self._ledger.settle(list(outcomes.values()))


def _reason(headers: dict[str, Any]) -> str:
    """Why the broker took a message out of its queue."""
    deaths = headers.get("x-death")
    first = deaths[0] if isinstance(deaths, list) and deaths else {}
    return str(first.get("reason", "")) if isinstance(first, dict) else ""


def _outcome(task: LeasedTask, reason: str, now: int) -> Outcome:
    if reason != EXPIRED:  # the broker's own limits: the ledger hands it out anew
        return Outcome(task=task.id, lease=task.lease, result="released")
    return Outcome(
        task=task.id, lease=task.lease, result="dead", cause=EXPIRED, attempt=Attempt(now, "", EXPIRED, WORDS)
    )
