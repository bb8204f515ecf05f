"""Waiting until a number of tasks have ended, with progress reports."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from shoal.client.results import ENDED, SLICE, ResultReader, TaskResult
from shoal.core.indexable import Indexable
from shoal.queue.base import TaskView

FIRST_PAUSE, MAX_PAUSE = 0.02, 0.5  # seconds between two polls
PAUSE_FACTOR = 4  # a slow poll is followed by a pause that is so many times longer


class TaskProgress(Indexable, frozen=True):
    """How many tasks are pending, processing, completed and failed."""

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.pending + self.processing + self.completed + self.failed

    def keys(self) -> tuple[str, ...]:
        return (*self.__struct_fields__, "total")

    def __str__(self) -> str:
        return (
            f"pending {self.pending:,} · processing {self.processing:,}"
            f" · completed {self.completed:,} · failed {self.failed:,}"
        )


OnProgress = Callable[[TaskProgress], Awaitable[None] | None]


def print_progress(progress: TaskProgress) -> None:
    sys.stderr.write(f"{progress}\n")


class WaitTimeout(TimeoutError):
    """Tasks were still open when the time was up; `results` holds what is known of all, in order."""

    def __init__(self, message: str, results: list[TaskResult], open: int) -> None:
        super().__init__(message)
        self.results = results
        self.open = open


class TaskWaiter:
    """Waits for tasks. It polls the first open ones, and all of them only for a progress report."""

    def __init__(self, results: ResultReader, ids: Sequence[int]) -> None:
        self._results = results
        self._ids = ids
        self._pending: dict[int, TaskView | None] = dict.fromkeys(ids)
        self._total = len(self._pending)
        self._ended: dict[int, TaskView] = {}
        self._gone = 0

    @property
    def open(self) -> int:
        return len(self._pending)

    @property
    def progress(self) -> TaskProgress:
        left = Counter(view.state for view in self._pending.values() if view)
        ended = Counter(view.state for view in self._ended.values())
        return TaskProgress(
            pending=len(self._pending) - left["leased"],
            processing=left["leased"],
            completed=ended["done"],
            failed=ended["dead"] + ended["cancelled"] + self._gone,
        )

    async def refresh(self, *, all: bool = False) -> bool:
        """Poll the tasks; returns whether more have ended than before."""
        before, waiting = len(self._pending), list(self._pending)
        for at in range(0, len(waiting), SLICE):
            chunk = waiting[at : at + SLICE]
            self._update(chunk, await self._results.views(chunk))
            if not all and chunk[0] in self._pending:
                break
        self._gone = self._total - len(self._ended) - len(self._pending)
        return len(self._pending) < before

    def _update(self, ids: Sequence[int], views: Mapping[int, TaskView]) -> None:
        for id in ids:
            view = views.get(id)
            if view is not None and view.state not in ENDED:
                self._pending[id] = view
                continue
            del self._pending[id]
            if view is not None:
                self._ended[id] = view

    async def results(self) -> list[TaskResult]:
        known = self._ended | {id: view for id, view in self._pending.items() if view}
        return await self._results.read(self._ids, known)

    async def wait(self, timeout: float | None, on_progress: OnProgress | None, every: float) -> bool:
        """Poll until all have ended; returns False if the time was up first."""
        clock = asyncio.get_running_loop().time
        began = reported_at = clock()
        pause = FIRST_PAUSE
        while True:
            looked_at = clock()
            timed_out = timeout is not None and looked_at - began >= timeout
            due = on_progress is not None and looked_at - reported_at >= every
            pause = FIRST_PAUSE if await self.refresh(all=timed_out or due) else min(pause * 1.5, MAX_PAUSE)
            now = clock()
            if on_progress and (due or not self._pending):
                reported_at = now
                await report_progress(on_progress, self.progress)
            if not self._pending or timed_out:
                return not self._pending
            rest = max(pause, PAUSE_FACTOR * (now - looked_at))
            if timeout is not None:
                rest = min(rest, max(began + timeout - now, 0.0))
            if on_progress:
                rest = min(rest, max(reported_at + every - now, 0.0))
            await asyncio.sleep(rest)


async def report_progress(on_progress: OnProgress, progress: TaskProgress) -> None:
    answer = on_progress(progress)
    if answer is not None:
        await answer
