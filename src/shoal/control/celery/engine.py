"""CeleryEngine: a queue that Celery's processes work on, as servers and workers of that queue see it."""

from __future__ import annotations

import contextlib
from typing import Any

from shoal.config.load import Settings
from shoal.control.celery.broker import Broker
from shoal.control.celery.follow_ups import CeleryFollowUps
from shoal.control.celery.options import read_options
from shoal.control.celery.work_messages import INTERVAL, WorkMessages
from shoal.control.maintenance import OUTBOX_INTERVAL, PeriodicJob
from shoal.core.run import Run
from shoal.errors import QueueUnavailable
from shoal.queue.base import Queue

CRAWL = "shoal.crawl"  # the task that stands for a whole run
WORKER_COMMAND = "celery -A shoal.integrations.celery worker"


class CeleryEngine:
    def __init__(self, queue: Queue, settings: Settings, broker: Broker | None = None, *, at_least: int = 0) -> None:
        """at_least: processes of Celery that are known to be there, though they may be too busy to say so."""
        self._broker = broker or Broker(read_options())
        self._follow_ups = CeleryFollowUps(queue, self._broker, settings.celery_allow)
        self.messages = WorkMessages(queue, self._broker, at_least=at_least)

    def duties(self, *, messages: bool = True) -> list[PeriodicJob]:
        """What whoever maintains the queue does; messages: keep processes of Celery at work on it, too."""
        jobs = [PeriodicJob("celery_follow_ups", OUTBOX_INTERVAL, self._follow_ups.drain)]
        if messages:
            jobs.append(PeriodicJob("celery_messages", INTERVAL, self.messages.keep_enough))
        return jobs

    async def send_follow_ups(self) -> int:
        """Send the tasks that pages asked for."""
        return await self._follow_ups.drain()

    async def announce(self, run: Run) -> None:
        """Have Celery work on a run, under a task with its name: its result says how far it is."""
        with contextlib.suppress(QueueUnavailable):  # the run is in the queue; work messages follow it
            await self._broker.send(CRAWL, kwargs={"run": run.name}, id=run.name)

    async def status(self, *, has_workers: bool) -> dict[str, Any]:
        """Whether Celery can do anything now; has_workers: some work on the queue, and may be too busy to answer."""
        label = self._broker.options.broker_label
        try:
            await self._broker.check()
            found = has_workers or await self._broker.worker_sizes()
        except QueueUnavailable:
            return {"distributed_available": False, "message": f"{label} not available"}
        if not found:
            return {"distributed_available": False, "message": f"no Celery workers are connected: {WORKER_COMMAND}"}
        return {"distributed_available": True, "message": f"{label} connected"}
