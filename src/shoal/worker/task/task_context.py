"""TaskContext: a typed task as its handler sees it."""

from __future__ import annotations

from typing import Any

from shoal.core.celery_task import CeleryTask
from shoal.core.task import LeasedTask
from shoal.core.typed_task import Task, backoff_of, payload_of, retries_of
from shoal.errors import UsageError
from shoal.worker.task.follow_up_tasks import with_keys


class TaskContext:
    """`payload` says what to do, `client` is what the scraper's `open` gave; `attempt` counts from 1."""

    def __init__(self, task: LeasedTask, run: str, client: Any, progress: dict[int, str]) -> None:
        meta = task.meta or {}
        self.id = task.id
        self.type = task.kind
        self.payload = payload_of(meta)
        self.priority = task.priority
        self.attempt = task.attempts + task.lost + 1
        self.run = run
        self.client = client
        self.cancelled = False  # nobody waits for the result any more: long loops in threads may look at it
        self._meta = meta
        self._progress = progress
        self._enqueued: list[Task] = []
        self.celery_tasks: list[CeleryTask] = []

    def enqueue(self, *tasks: Task | CeleryTask) -> None:
        """More work, queued when this task is settled as done, and not otherwise.

        The same task is queued once, however often this one is tried.
        """
        for task in tasks:
            if isinstance(task, CeleryTask):
                self.celery_tasks.append(task)
                continue
            if not isinstance(task, Task):
                raise UsageError(
                    f"task.enqueue takes tasks, not {type(task).__name__}", hint="shoal.Task(type=…, payload=…)"
                )
            self._enqueued.append(task)

    def progress(self, text: str) -> None:
        """Say what is being done, for `shoal workers`."""
        self._progress[self.id] = str(text)[:200]

    @property
    def own_retries(self) -> int | None:
        return retries_of(self._meta)

    @property
    def own_backoff(self) -> float | None:
        return backoff_of(self._meta)

    @property
    def has_enqueued(self) -> bool:
        return bool(self._enqueued or self.celery_tasks)

    def enqueued_tasks(self) -> list[tuple[Task, str]]:
        """What was asked for, each with the key that makes it the same when this task is tried again."""
        return with_keys(self.id, self._enqueued)

    def __repr__(self) -> str:
        return f"<task {self.id}: {self.type}, attempt {self.attempt}>"
