"""Failing tasks: those whose URL failed so often before that a run leaves it out (--skip-failing)."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.failing import is_counted
from shoal.core.task import Task
from shoal.queue.base import Failures


async def failing_tasks(queue: Failures, tasks: Sequence[Task], limit: int) -> dict[bytes, int]:
    """Which of these failed at least `limit` times, by digest, and how often; a scraper's own start URLs are exempt."""
    asked = [task for task in tasks if not task.revisit and is_counted(task.url, task.request_options)]
    if not limit or not asked:
        return {}
    found = await queue.failures([task.url for task in asked])
    return {task.digest: about.count for task, about in zip(asked, found, strict=True) if about.count >= limit}
