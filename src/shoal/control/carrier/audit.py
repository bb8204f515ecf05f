"""Audit: tasks that the ledger holds to be published, and that neither the broker nor any worker has, go back.

A queue was purged or deleted, the broker lost its disk, a message expired, or a relay died between the claim and the
publishing. A task is given back only when two looks find it so.
"""

from __future__ import annotations

import contextlib
import logging

from shoal.amqp.connection import Connection
from shoal.control.carrier.ahead import Ahead
from shoal.control.carrier.free_runs import FreeRuns
from shoal.control.carrier.holdings import Holdings
from shoal.control.carrier.leases import RELAY
from shoal.core.task import Outcome
from shoal.errors import QueueRefused
from shoal.queue.base import Queue, TaskView
from shoal.queue.broker import names
from shoal.queue.broker.wire import TaskQueue

log = logging.getLogger("shoal.relay")

INTERVAL = 10.0  # seconds between looks
MIN_AGE = 15.0  # seconds for which a task is left alone after it was leased
PAGE = 1_000
MAX_TASKS = 20_000  # looked at at once


class Audit:
    def __init__(self, ledger: Queue, namespace: str, free_runs: FreeRuns, ahead: Ahead, holdings: Holdings) -> None:
        self._ledger = ledger
        self._namespace = namespace
        self._free_runs = free_runs
        self._ahead = ahead
        self._holdings = holdings
        self._missing: set[tuple[int, int]] = set()  # at the last look: task, lease

    async def look(self, connection: Connection, now: float) -> int:
        """How many were given back."""
        await self._free_runs.refresh(now)
        clock = await self._ledger.now()
        delivered = self._holdings.delivered(now)
        missing: dict[tuple[int, int], TaskView] = {}
        for run in self._free_runs.all:
            leased = [view for view in await self._leased(run.id) if view.worker == RELAY]
            for view in leased:
                self._ahead.found_lease(view.lease, now)
                queue = names.task_queue(self._namespace, run.scraper, view.priority, view.ack)
                with contextlib.suppress(QueueRefused):  # it is said where something is published
                    await self._ahead.declare(connection, TaskQueue(queue, run.scraper, view.ack == "auto"))
            if not leased or await self._ahead.depth(connection, run.scraper):
                continue
            for view in leased:
                old = clock - view.lease > MIN_AGE * 1e6  # a lease's number is the time it was taken
                if old and view.id not in delivered and view.id not in self._ahead.unconfirmed:
                    missing[view.id, view.lease] = view
        lost = [view for key, view in missing.items() if key in self._missing]
        self._missing = set(missing)
        if lost:
            log.warning("messages_missing", extra={"tasks": len(lost)})
            for at in range(0, len(lost), PAGE // 2):
                await self._ledger.settle([_give_back(view) for view in lost[at : at + PAGE // 2]])
        return len(lost)

    async def _leased(self, run: int) -> list[TaskView]:
        found: list[TaskView] = []
        after = 0
        while len(found) < MAX_TASKS:
            page = await self._ledger.list_tasks(run, state="leased", after=after, limit=PAGE)
            found += page
            if len(page) < PAGE:
                break
            after = page[-1].id
        return found


def _give_back(view: TaskView) -> Outcome:
    if view.ack == "auto":  # it may have been done: never again. The ledger makes it a dead letter
        return Outcome(task=view.id, lease=view.lease, result="dead", cause="unacknowledged")
    return Outcome(task=view.id, lease=view.lease, result="released")
