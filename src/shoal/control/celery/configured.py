"""What commands do for Celery where it is the engine; where it is not, nothing of it is loaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from shoal.config.load import Settings
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from shoal.control.maintenance import PeriodicJob


def celery_duties(queue: Queue, settings: Settings) -> list[PeriodicJob]:
    """Of workers that are not Celery's: nobody has to be told to work there, but follow-ups are to be sent."""
    if settings.engine != "celery":
        return []
    from shoal.control.celery.engine import CeleryEngine

    return CeleryEngine(queue, settings).duties(messages=False)


def celery_sender(queue: Queue, settings: Settings) -> Callable[[], Awaitable[int]] | None:
    """What sends the tasks that pages asked for; None where the engine is not Celery."""
    if settings.engine != "celery":
        return None
    from shoal.control.celery.engine import CeleryEngine

    return CeleryEngine(queue, settings).send_follow_ups
