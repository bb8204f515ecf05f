"""Queues that break a rule of push, each in one small place; see broken.py."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from conformance.model import ModelQueue
from conformance.model_state import ModelTask, identity
from shoal.core.lane import Pace
from shoal.core.task import Admission, Task
from shoal.queue.base import PushResult


class PushOfTheKnown(ModelQueue):
    """What waits already is leased when it is pushed once more."""

    async def push(self, run: int, tasks: Sequence[Task], *args: Any, **words: Any) -> PushResult:
        for task in tasks:
            known = self.tasks.get(self.seen.get((run, identity(task.digest)), 0))
            if known is not None and known.state == "ready":
                del self.tasks[known.id], self.seen[run, identity(task.digest)]
        return await super().push(run, tasks, *args, **words)


class PushWithoutAName(ModelQueue):
    """A push that is repeated is not recognised."""

    async def push(self, *args: Any, request_id: str = "", **words: Any) -> PushResult:
        return await super().push(*args, **words)


class PushedToAnybody(ModelQueue):
    """What a task needs is not looked at."""

    def may_push(self, task: ModelTask, has: Collection[str]) -> bool:
        return super().may_push(task, task.task.needs)


class PushIntoPaused(ModelQueue):
    """A run that is paused is pushed all the same."""

    def may_push(self, task: ModelTask, has: Collection[str]) -> bool:
        about = self.all_runs[task.run]
        state, about.run = about.run, replace(about.run, state="running")
        try:
            return super().may_push(task, has)
        finally:
            about.run = state


class PushesTheProbe(ModelQueue):
    """The first task of a lane that was parked may be a pushed one."""

    def may_push(self, task: ModelTask, has: Collection[str]) -> bool:
        lane = self.all_lanes[task.task.lane]
        parked, lane.parked = lane.parked, 0
        try:
            return super().may_push(task, has)
        finally:
            lane.parked = parked


class PushedForFree(ModelQueue):
    """What a run pushes is not held against it."""

    async def push(self, run: int, *args: Any, **words: Any) -> PushResult:
        turn = self.all_runs[run].turn
        result = await super().push(run, *args, **words)
        self.all_runs[run].turn = turn
        return result


class PushIsImpolite(ModelQueue):
    """A push waits for no slot and no place of its lane."""

    def may_push(self, task: ModelTask, has: Collection[str]) -> bool:
        return self.is_served(task.run, None) and set(task.task.needs) <= set(has) and task.due_at <= self.clock()


class PushesOne(ModelQueue):
    """The first of the tasks is leased, the others only wait."""

    async def push(self, run: int, tasks: Sequence[Task], *args: Any, **words: Any) -> PushResult:
        first = await super().push(run, tasks[:1], *args, **words)
        others: list[Admission] = await self.add(run, tasks[1:], args[1] if len(args) > 1 else None)
        return PushResult((*first.answers, *others), first.claim)


class PushSaysAdded(ModelQueue):
    """What was leased is not told apart from what only waits."""

    async def push(
        self, run: int, tasks: Sequence[Task], worker: str, paces: Mapping[str, Pace] | None = None, **words: Any
    ) -> PushResult:
        result = await super().push(run, tasks, worker, paces, **words)
        return replace(result, answers=tuple("added" if it == "leased" else it for it in result.answers))
