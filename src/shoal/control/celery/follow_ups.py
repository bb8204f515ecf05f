"""Celery follow-ups: tasks of somebody's own Celery app that settled pages asked for, sent out of the outbox."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from shoal.control.celery.broker import Broker
from shoal.core.celery_task import KIND, CeleryMessage
from shoal.core.glob import Glob
from shoal.errors import UsageError
from shoal.queue.base import Queue, StoredEntry

log = logging.getLogger("shoal.celery")

PAGE_SIZE = 100
MAX_WARNED = 1_000
_decode = msgspec.json.Decoder(CeleryMessage).decode


class CeleryFollowUps:
    """Sends them. Any number may do it at once: what is sent twice has the same id."""

    def __init__(self, queue: Queue, broker: Broker, allowed: Sequence[str]) -> None:
        self._queue = queue
        self._broker = broker
        self._allowed = [Glob(pattern) for pattern in allowed]
        self._warned: set[str] = set()

    async def drain(self) -> int:
        """Send what waits; says how many entries are done with. What is not allowed here stays for others."""
        done = after = 0
        while page := await self._queue.outbox(KIND, after=after, limit=PAGE_SIZE):
            finished = [entry.seq for entry in page if await self._send(entry)]
            done += await self._queue.acknowledge(finished) if finished else 0
            after = page[-1].seq
            if len(page) < PAGE_SIZE:
                break
        return done

    async def _send(self, entry: StoredEntry) -> bool:
        """Whether it is done with: sent, or nothing that could ever be."""
        try:
            message = _decode(entry.data)
        except (msgspec.MsgspecError, UsageError) as error:
            details = {"run": entry.run, "key": entry.key[:200], "error": str(error)[:300]}
            log.warning("celery_task_not_understood", extra=details)
            return True
        task = message.task
        if not any(pattern.fullmatch(task.name) for pattern in self._allowed):
            self._warn(task.name)
            return False
        await self._broker.send(task.name, task.args, task.kwargs, id=message.id, queue=task.queue)
        return True

    def _warn(self, name: str) -> None:
        if name not in self._warned and len(self._warned) < MAX_WARNED:
            self._warned.add(name)
            hint = f"SHOAL_CELERY_ALLOW={name} where workers or the server run, if this is intended"
            log.warning("celery_task_not_allowed", extra={"task": name, "hint": hint})
