"""Undo of a cancel: a run that was cancelled by mistake goes on, within an hour."""

from __future__ import annotations

from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.base import UNDO_SECONDS, Queue
from shoal.queue.undo import not_cancelled
from shoal.runs.queue_identity import moved_to


def is_undoable(run: Run, now: int) -> bool:
    """Whether its tasks are kept; `now` is the queue's clock."""
    return run.state == "cancelled" and run.finished_at + UNDO_SECONDS * 1_000_000 > now


async def undo_cancel(queue: Queue, run: Run) -> Run:
    """Bring a cancelled run back as it was; UsageError says why that cannot be."""
    if run.state != "cancelled":
        raise not_cancelled(run.name, run.state)
    if place := await moved_to(queue, run):
        raise UsageError(
            f"run {run.name} was moved to {place}: it is not cancelled but goes on there",
            hint=f"see it there: shoal status {run.name} --queue {place}",
        )
    return await queue.set_run(run.id, "undo")
