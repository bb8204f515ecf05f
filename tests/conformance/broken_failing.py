"""Queues that break a rule of what is remembered of failing URLs, each in one small place; see broken.py."""

from __future__ import annotations

from conformance.model import ModelQueue
from conformance.model_state import ModelTask
from shoal.queue.base import TaskFilter


class FailuresOfOneRun(ModelQueue):
    """What is remembered goes with the run that failed."""

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        urls = [task.task.url for task in self.tasks.values() if task.run == run]
        await self.forget_failures(urls)
        return await super().purge(run=run, older_than=older_than)


class ExpiryIsNoFailure(ModelQueue):
    """Only outcomes that workers report count."""

    def count_failure(self, task: ModelTask, cause: str) -> None:
        if cause != "expired":
            super().count_failure(task, cause)


class FailuresForEver(ModelQueue):
    """A URL that went well is still taken for one that fails."""

    def forget_failures_of(self, task: ModelTask) -> None:
        pass


class FailuresUnbounded(ModelQueue):
    """Whatever failed once is remembered."""

    def forget_old_failures(self) -> None:
        pass


class RevivedStillFailing(ModelQueue):
    """Reviving a dead letter forgets nothing."""

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
        before = dict(self.all_failures), dict(self.failure_numbers)
        back = await super().revive(run, where, limit=limit)
        self.all_failures, self.failure_numbers = before
        return back


class MovedIsFailed(ModelQueue):
    """A dead letter that comes from another queue counts as a new failure."""

    async def import_run(self, run, tasks, *args, **named):  # type: ignore[no-untyped-def]
        await super().import_run(run, tasks, *args, **named)
        for task in self.tasks.values():
            if task.run == run and task.state == "dead":
                self.count_failure(task, task.cause)
