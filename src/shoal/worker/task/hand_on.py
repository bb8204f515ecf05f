"""Handing on: a page that needs a browser or another exit goes on as a task for a worker that has it.

The task is done, and in the same step the one that goes on with it is added: whoever dies meanwhile, the page is
neither lost nor fetched twice. That one is the same page in all that matters, found by the same page as this one.
"""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from shoal.core.capability import BROWSER, EXIT_PREFIX, capability_names
from shoal.core.routes import with_exit
from shoal.core.run_counters import count_auto
from shoal.core.task import LeasedTask, Outcome, RequestOptions, Task, digest
from shoal.worker.task.attempt import TaskAttempt
from shoal.worker.task.page_counters import page_counters

MIN_TTL = 0.001  # seconds; 0 would be none


class HandedOn(Exception):
    """The page is for a worker with a browser, or for an exit. fetch: what that one is told; "": as it was."""

    def __init__(
        self,
        reason: str,
        fetch: Literal["", "browser", "auto"] = "auto",
        exit: str = "",
        counters: dict[str, int] | None = None,
    ) -> None:
        super().__init__(reason)
        self.fetch = fetch
        self.exit = exit
        self.counters = counters  # None: as for pages that need a browser


def hand_on(attempt: TaskAttempt, handed: HandedOn) -> Outcome:
    """The outcome of a page that is handed on: nothing of it is recorded, and no attempt is spent."""
    task, place = attempt.task, f"the exit {handed.exit}" if handed.exit else "a worker with a browser"
    reason = f"handed on to {place}: {handed}"
    own_pace = attempt.run_context is None or attempt.run_context.exits_have_own_pace
    continued = _continuation(task, attempt.lane, handed, attempt.context.wall_clock())
    return Outcome(
        task=task.id,
        lease=task.lease,
        result="done",
        attempt=attempt.history_entry(message=reason),
        found=(with_exit(continued, has_own_pace=own_pace) if handed.exit else continued,),
        lanes=attempt.lane_changes,
        counters=page_counters(attempt) | (handed.counters or count_auto("handed_on")),
    )


def _continuation(task: LeasedTask, lane: str, handed: HandedOn, now: int) -> Task:
    options = task.request_options or RequestOptions()
    options = replace(options, fetch=handed.fetch or options.fetch, exit=handed.exit or options.exit)
    needs = [name for name in task.needs if not (handed.exit and name.startswith(EXIT_PREFIX))]
    return Task(
        url=task.url,
        lane=lane,
        digest=digest(f"{(handed.exit and EXIT_PREFIX + handed.exit) or BROWSER} {task.id}"),
        kind=task.kind,
        priority=task.priority,
        depth=task.depth,
        parent=task.parent,
        meta=task.meta,
        ttl=max(MIN_TTL, (task.expires_at - now) / 1e6) if task.expires_at else None,
        request_options=options,
        ack=task.ack,
        needs=capability_names(needs if handed.exit else {*needs, BROWSER}),
        revisit=True,  # an earlier run of the same seen-set may have handed on its own
    )
