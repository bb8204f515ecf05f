"""TaskPostponed: what is raised for a task that goes back to the queue at no cost."""

from __future__ import annotations


class TaskPostponed(Exception):
    """The task cannot go on at this moment, through no fault of its own."""
