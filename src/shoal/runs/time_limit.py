"""Time limit: a run that takes longer than it may is cancelled by the fleet, and says so."""

from __future__ import annotations

from shoal.core.run import Run
from shoal.core.task import State
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue
from shoal.queue.glance import glance

TIME_LIMIT_KEY = "time_limit"  # of a run's spec: seconds, from its first attempt on
MAX_SECONDS = 1e9  # more than that is no limit
# A task in one of these has been tried, or may have been.
_TRIED_STATES: tuple[State, ...] = ("done", "dead", "delayed", "leased", "ready")


def time_limit(run: Run) -> float:
    """Seconds; 0: none."""
    given = run.spec.get(TIME_LIMIT_KEY)
    if isinstance(given, bool) or not isinstance(given, int | float):
        return 0.0
    return float(given) if 0 < given < MAX_SECONDS else 0.0


async def first_attempt_at(queue: Queue, run: Run) -> int:
    """When the first of its pages was first tried, as far as those that came first tell; 0: none was."""
    found = [await glance(queue.list_tasks(run.id, state=state, limit=1)) for state in _TRIED_STATES]
    return min((views[0].history[0].at for views in found if views and views[0].history), default=0)


async def has_exceeded_time_limit(queue: Queue, run: Run, at: int, began_at: int = 0) -> bool:
    """Whether it had been at work for longer than it may by then. began_at: its first attempt, if that is known."""
    limit = time_limit(run) * 1e6
    if not limit or at - run.created_at <= limit:
        return False
    began_at = began_at or await first_attempt_at(queue, run)
    return bool(began_at) and at - began_at > limit


async def cancel_for_time_limit(queue: Queue, run: Run) -> bool:
    """Cancel it, with a mark that says why; False for one that somebody has set going again since."""
    known = await queue.document(kinds.OVER_TIME, run.name)
    if known is not None and known.text == _mark(run):
        if run.changed_at > known.version:  # the version is when the mark was made
            return False
    elif await queue.compare_and_swap(kinds.OVER_TIME, run.name, _mark(run), known.version if known else 0) is None:
        return False  # another is at it
    await queue.set_run(run.id, "cancel")
    return True


async def was_ended_by_time_limit(queue: Queue, run: Run) -> bool:
    if run.state != "cancelled" or not time_limit(run):
        return False
    known = await queue.document(kinds.OVER_TIME, run.name)
    return known is not None and known.text == _mark(run)


async def remove_orphaned_marks(queue: Queue) -> None:
    """Of runs that are no more."""
    for mark in await queue.documents(kinds.OVER_TIME):
        if not any(run.name == mark.name for run in await queue.runs(name=mark.name, limit=100)):
            await queue.compare_and_swap(kinds.OVER_TIME, mark.name, None, mark.version)


def _mark(run: Run) -> str:
    """Not of a run that had the same name before."""
    return str(run.created_at)
