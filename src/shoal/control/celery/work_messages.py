"""Work messages: each lets a process of Celery work on the queue for a while. Kept up, so that a killed fleet is too.

Every message has a ticket: a document that says which message it is and until when it counts. Whoever works on it
renews the ticket; one that ran out, because its worker or the broker's memory is gone, is replaced by a new
message. What was sent too often finds its ticket taken and ends at once.
"""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Iterable

import msgspec

from shoal.control.celery.broker import Broker
from shoal.control.maintenance import RUNNING_STATES
from shoal.core.stats import Stats
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.runs.identity import is_server_run, is_single_process

WORK = "shoal.work"  # the name of the task
INTERVAL = 2.0  # seconds between two looks
WAIT = 30.0  # seconds that a message may wait in the broker before another is sent in its place
RENEWED_FOR = 20.0  # seconds for which a ticket counts after its worker was last heard of
PAGES_PER_MESSAGE = 16  # that one process has in progress at once
SIZES_KEPT = 30.0  # seconds for which the size of Celery's workers need not be asked for again
MAX_RUNS = 1_000


class Ticket(msgspec.Struct, frozen=True):
    message: str
    until: int  # UTC microseconds, by the queue's clock


def messages_needed(stats: Iterable[Stats], sizes: Iterable[int]) -> int:
    """As many as there is work for, and as leave every worker with several processes one for other tasks."""
    counts = list(stats)
    claimable = sum(one.claimable for one in counts)
    waiting = sum(one.ready - one.delayed for one in counts)
    capacity = sum(max(1, size - 1) for size in sizes)
    return min(capacity, max(math.ceil(claimable / PAGES_PER_MESSAGE), 1 if waiting > 0 else 0))


class WorkMessages:
    """Any number of processes may keep them up at once: one of them wins the ticket and sends."""

    def __init__(self, queue: Queue, broker: Broker, *, at_least: int = 0) -> None:
        """at_least: processes that are known to be there, though they may be too busy to say so."""
        self._queue = queue
        self._broker = broker
        self._at_least = at_least
        self._sizes: tuple[int, ...] = ()
        self._asked_at = -math.inf

    async def keep_enough(self) -> int:
        """Send what is missing; says how many."""
        runs = await self._queue.runs(states=RUNNING_STATES, limit=MAX_RUNS)
        shared = [run.id for run in runs if not is_single_process(run) and not is_server_run(run)]
        stats = await self._queue.stats_of(shared) if shared else []
        if not any(one.ready > one.delayed for one in stats):
            return 0
        needed = messages_needed(stats, await self._worker_sizes())
        now = await self._queue.now()
        found = {document.name: document for document in await self._queue.documents(kinds.CELERY_WORK)}
        sent = 0
        for number in range(needed):
            name = f"{number:04}"
            document = found.get(name)
            if _ticket(document).until < now and await self._send(name, document, now):
                sent += 1
        return sent

    async def renew(self, name: str, message: str) -> bool:
        """Say that this message is being worked on; False: another has taken its place."""
        document, now = await self._queue.document(kinds.CELERY_WORK, name), await self._queue.now()
        if document is None or _ticket(document).message != message:
            return False
        text = _encoded(Ticket(message, now + int(RENEWED_FOR * 1e6)))
        return await self._queue.compare_and_swap(kinds.CELERY_WORK, name, text, document.version) is not None

    async def finish(self, name: str, message: str) -> None:
        """Say that this message has ended; what is left to do is up to the next look."""
        document = await self._queue.document(kinds.CELERY_WORK, name)
        if document is not None and _ticket(document).message == message:
            await self._queue.compare_and_swap(kinds.CELERY_WORK, name, None, document.version)

    async def _send(self, name: str, document: Document | None, now: int) -> bool:
        message = str(uuid.uuid4())
        text = _encoded(Ticket(message, now + int(WAIT * 1e6)))
        version = document.version if document else 0
        if await self._queue.compare_and_swap(kinds.CELERY_WORK, name, text, version) is None:
            return False  # another was quicker
        await self._broker.send(
            WORK, kwargs={"ticket": name, "seconds": self._broker.options.budget}, id=message, expires=WAIT
        )
        return True

    async def _worker_sizes(self) -> tuple[int, ...]:
        now = time.monotonic()
        if now - self._asked_at > SIZES_KEPT or not self._sizes:
            self._sizes, self._asked_at = tuple((await self._broker.worker_sizes()).values()), now
        return self._sizes or (self._at_least,) * bool(self._at_least)


def _encoded(ticket: Ticket) -> str:
    return msgspec.json.encode(ticket).decode()


def _ticket(document: Document | None) -> Ticket:
    """What it says; one that nobody can read has run out."""
    if document is not None:
        try:
            return msgspec.json.decode(document.text, type=Ticket)
        except msgspec.MsgspecError:
            pass
    return Ticket("", 0)
