"""The duties of whoever maintains a queue that Celery's workers work on."""

from __future__ import annotations

from shoal.config.load import Settings
from shoal.control.celery.broker import Broker
from shoal.control.celery.follow_ups import CeleryFollowUps
from shoal.control.celery.options import read_options
from shoal.control.celery.work_messages import INTERVAL, WorkMessages
from shoal.control.maintenance import OUTBOX_INTERVAL, PeriodicJob
from shoal.queue.base import Queue


def celery_duties(
    queue: Queue, settings: Settings, broker: Broker | None = None, *, messages: bool = True
) -> list[PeriodicJob]:
    """Nothing, unless the engine is Celery. messages: keep processes of Celery at work on the queue, too."""
    if settings.engine != "celery":
        return []
    broker = broker or Broker(read_options())
    follow_ups = CeleryFollowUps(queue, broker, settings.celery_allow)
    jobs = [PeriodicJob("celery_follow_ups", OUTBOX_INTERVAL, follow_ups.drain)]
    if messages:
        jobs.append(PeriodicJob("celery_messages", INTERVAL, WorkMessages(queue, broker).keep_enough))
    return jobs
