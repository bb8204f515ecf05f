"""Handing on: a page that needs a browser, at a worker that has none, goes on as a task for a worker that has one.

The task is done, and in the same step the one that goes on with it is added: whoever dies meanwhile, the page is
neither lost nor fetched twice. That one is the same page in all that matters, found by the same page as this one.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from shoal.core.capability import BROWSER, capability_names
from shoal.core.run_counters import count_auto
from shoal.core.task import LeasedTask, Outcome, RequestOptions, Task, digest
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.page_counters import page_counters

MIN_TTL = 0.001  # seconds; 0 would be none


class HandedOn(Exception):
    """The page is for a worker with a browser. fetch: what that one is told."""

    def __init__(self, reason: str, fetch: Literal["browser", "auto"] = "auto") -> None:
        super().__init__(reason)
        self.fetch = fetch


def hand_on(attempt: TaskAttempt, handed: HandedOn) -> Outcome:
    """The outcome of a page that is handed on: nothing of it is recorded, and no attempt is spent."""
    task, reason = attempt.task, f"handed on to a worker with a browser: {handed}"
    return Outcome(
        task=task.id,
        lease=task.lease,
        result="done",
        attempt=attempt.history_entry(message=reason),
        found=(_continuation(task, attempt.lane, handed, attempt.context.wall_clock()),),
        lanes=attempt.lane_changes,
        counters=page_counters(attempt) | count_auto("handed_on"),
    )


def _continuation(task: LeasedTask, lane: str, handed: HandedOn, now: int) -> Task:
    return Task(
        url=task.url,
        lane=lane,
        digest=digest(f"{BROWSER} {task.id}"),
        kind=task.kind,
        priority=task.priority,
        depth=task.depth,
        parent=task.parent,
        meta=task.meta,
        ttl=max(MIN_TTL, (task.expires_at - now) / 1e6) if task.expires_at else None,
        request_options=replace(task.request_options or RequestOptions(), fetch=handed.fetch),
        ack=task.ack,
        needs=capability_names({*task.needs, BROWSER}),
        revisit=True,  # an earlier run of the same seen-set may have handed on its own
    )
