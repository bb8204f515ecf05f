"""Queues that break a rule of changing a page limit, each in one small place; see broken.py."""

from __future__ import annotations

from conformance.model import ModelQueue
from conformance.model_state import ModelRun, ModelTask, micros
from shoal.core.run import Run
from shoal.queue.base import UNDO_SECONDS, TaskFilter


class LimitBringsNothingBack(ModelQueue):
    """A run that goes on with a higher limit has nothing left."""

    def bring_back(self, about: ModelRun) -> None:
        if about.run.state == "finished":
            for task in self.tasks.values():
                task.kept = None if task.run == about.run.id else task.kept
        super().bring_back(about)


class LimitOfBefore(ModelQueue):
    """It goes on, but under the limit that it had."""

    async def set_max_pages(self, run: int, max_pages: int) -> Run:
        before = self._run(run).run.max_pages
        await super().set_max_pages(run, max_pages)
        return await super().set_max_pages(run, before)


class LimitReachedIsTaken(ModelQueue):
    """A limit that is reached already sets a run to work, only to end it again."""

    async def set_max_pages(self, run: int, max_pages: int) -> Run:
        about, stats = self._run(run), await self.stats(run)
        wanted = max_pages if about.takes_work or not max_pages else max(max_pages, stats.done + stats.failed + 1)
        return await super().set_max_pages(run, wanted)


class LeftoversOfAnHour(ModelQueue):
    """What a limit left is gone as early as what a person cancelled."""

    def stop_at_limit(self, about: ModelRun) -> None:
        super().stop_at_limit(about)
        if about.run.state == "finished":
            about.undo_until = min(about.undo_until, about.run.finished_at + micros(UNDO_SECONDS))


class SitemapsArePages(ModelQueue):
    """A built-in kind takes up a page of its run when it has ended."""

    def takes_page(self, task: ModelTask) -> bool:
        return task.state in ("leased", "done", "dead", "discarded")


class LimitRunsAll(ModelQueue):
    """A run that was paused when its limit ended it is running when it goes on."""

    def bring_back(self, about: ModelRun) -> None:
        if about.run.state == "finished":
            about.before_cancel = "running"
        super().bring_back(about)


class ReviveDropsTheRest(ModelQueue):
    """Reviving dead letters of a run that its limit ended loses what was left."""

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
        self._run(run).undo_until = 0
        return await super().revive(run, where, limit=limit)


class RevivedQueueUp(ModelQueue):
    """What was left takes the pages that the revived give back."""

    async def revive(self, run: int, where: TaskFilter = TaskFilter(), *, limit: int = 10_000) -> int:
        again = await super().revive(run, where, limit=limit)
        for task in self.tasks.values():
            task.comes_first = False
        return again
