"""Queues that break a rule of the retention of dead letters, each in one small place; see broken.py."""

from __future__ import annotations

from msgspec.structs import replace

from conformance.model import ModelQueue
from conformance.model_state import identity
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats


class DeadForEver(ModelQueue):
    """Dead letters stay, whatever their retention."""

    def discard(self) -> None:
        pass


class DeadWithinAMinute(ModelQueue):
    """A retention may be so short that late answers are not known any more."""

    async def start_run(self, new: NewRun) -> Run:
        run = await super().start_run(new)
        self.all_runs[run.id].run = replace(run, dead_retention=new.dead_retention)
        return self.all_runs[run.id].run


class DiscardedForgotten(ModelQueue):
    """What was removed is new when it is found again."""

    def discard(self) -> None:
        before = {task.id for task in self.tasks.values() if task.state == "discarded"}
        super().discard()
        for task in self.tasks.values():
            if task.state == "discarded" and task.id not in before:
                self.seen.pop((task.run, identity(task.task.digest)), None)


class DiscardedUncounted(ModelQueue):
    """The account does not say what was removed."""

    async def stats(self, run: int) -> Stats:
        return replace(await super().stats(run), discarded=0)


class DiscardedCancelled(ModelQueue):
    """What was removed counts as cancelled: nobody sees that it failed."""

    async def stats(self, run: int) -> Stats:
        stats = await super().stats(run)
        return replace(stats, discarded=0, cancelled=stats.cancelled + stats.discarded)


class DiscardedMakesRoom(ModelQueue):
    """Under a page limit what was removed may be had once more."""

    def pages_left(self, run: int, *, strict: bool) -> int:
        gone = sum(task.run == run and task.state == "discarded" for task in self.tasks.values())
        return super().pages_left(run, strict=strict) + (gone if self.all_runs[run].run.max_pages else 0)


class DiscardedByItsAge(ModelQueue):
    """The retention counts from when a task was added, not from when it died."""

    def discard(self) -> None:
        for task in self.tasks.values():
            if task.state == "dead":
                task.finished_at = task.added_at
        super().discard()
