"""Queues that break a rule of page states, each in one small place; see broken.py."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from conformance.model import ModelQueue
from shoal.queue.base import PageState


class FirstStateStays(ModelQueue):
    """What is saved again does not take the place of the former."""

    async def save_page_states(self, run: int, states: Sequence[PageState]) -> None:
        known = {state.task for state in await self.page_states(run)}
        await super().save_page_states(run, [state for state in states if state.task not in known])


class StatesOutliveRuns(ModelQueue):
    """They are found after their run is gone."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.left: dict[int, list[PageState]] = {}

    async def purge(self, *, run: int | None = None, older_than: float | None = None) -> int:
        self.left |= {id: list(about.page_states.values()) for id, about in self.all_runs.items()}
        return await super().purge(run=run, older_than=older_than)

    async def page_states(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = (), whole: bool = False
    ) -> list[PageState]:
        if run not in self.all_runs:
            return self.left.get(run, [])
        return await super().page_states(run, after=after, limit=limit, tasks=tasks, whole=whole)
