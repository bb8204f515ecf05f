"""What is left of a task whose row is gone: the seen-set still knows that it was there."""

from __future__ import annotations

from shoal.core.task import DISCARDED
from shoal.queue.base import TaskView


def cancelled_view(run: int, id: int, lane: str = "") -> TaskView:
    """Its row went when the run was cancelled."""
    return TaskView(id=id, run=run, url="", lane=lane, state="cancelled", cause="run cancelled")


def discarded_view(run: int, id: int) -> TaskView:
    """Its dead letter was removed when its retention was over."""
    return TaskView(id=id, run=run, url="", lane="", state="dead", cause=DISCARDED)
