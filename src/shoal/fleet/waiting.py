"""Waiting: until a number of tasks have ended, with word of how far they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from shoal.fleet.results import ENDED, SLICE, Results, TaskResult
from shoal.queue.base import TaskView

FIRST, LONGEST = 0.02, 0.5  # seconds between two looks
SHARE = 4  # a look that took long is followed by a pause that is so many times longer


class Progress(msgspec.Struct, frozen=True):
    """How far a number of tasks are."""

    pending: int = 0
    processing: int = 0
    completed: int = 0
    failed: int = 0

    @property
    def total(self) -> int:
        return self.pending + self.processing + self.completed + self.failed

    def __str__(self) -> str:
        return (
            f"pending {self.pending:,} · processing {self.processing:,}"
            f" · completed {self.completed:,} · failed {self.failed:,}"
        )


OnProgress = Callable[[Progress], Awaitable[None] | None]


class NotAllDone(TimeoutError):
    """Tasks were still open when the time was up; `results` holds what is known of all, in order."""

    def __init__(self, message: str, results: list[TaskResult], open: int) -> None:
        super().__init__(message)
        self.results = results
        self.open = open


class Waiting:
    """Looks at the first that are open; at all of them only for a word on the progress."""

    def __init__(self, results: Results, ids: Sequence[int]) -> None:
        self._results = results
        self._ids = ids
        self._left: dict[int, TaskView | None] = dict.fromkeys(ids)
        self._total = len(self._left)
        self._ended: dict[int, TaskView] = {}
        self._gone = 0

    @property
    def open(self) -> int:
        return len(self._left)

    @property
    def progress(self) -> Progress:
        left = Counter(view.state for view in self._left.values() if view)
        ended = Counter(view.state for view in self._ended.values())
        return Progress(
            pending=len(self._left) - left["leased"],
            processing=left["leased"],
            completed=ended["done"],
            failed=ended["dead"] + ended["cancelled"] + self._gone,
        )

    async def look(self, *, all: bool = False) -> bool:
        """See what has become of them; True if more have ended than before."""
        before, waiting = len(self._left), list(self._left)
        for at in range(0, len(waiting), SLICE):
            some = waiting[at : at + SLICE]
            self._seen(some, await self._results.views(some))
            if not all and some[0] in self._left:
                break
        self._gone = self._total - len(self._ended) - len(self._left)
        return len(self._left) < before

    def _seen(self, ids: Sequence[int], views: Mapping[int, TaskView]) -> None:
        for id in ids:
            view = views.get(id)
            if view is not None and view.state not in ENDED:
                self._left[id] = view
                continue
            del self._left[id]
            if view is not None:
                self._ended[id] = view

    async def results(self) -> list[TaskResult]:
        known = self._ended | {id: view for id, view in self._left.items() if view}
        return await self._results.of(self._ids, known)

    async def wait(self, timeout: float | None, on_progress: OnProgress | None, every: float) -> bool:
        """Look until all have ended; False if the time was up before."""
        clock = asyncio.get_running_loop().time
        began = told = clock()
        pause = FIRST
        while True:
            asked = clock()
            up = timeout is not None and asked - began >= timeout
            due = on_progress is not None and asked - told >= every
            pause = FIRST if await self.look(all=up or due) else min(pause * 1.5, LONGEST)
            now = clock()
            if on_progress and (due or not self._left):
                told = now
                await _tell(on_progress, self.progress)
            if not self._left or up:
                return not self._left
            rest = max(pause, SHARE * (now - asked))
            if timeout is not None:
                rest = min(rest, max(began + timeout - now, 0.0))
            if on_progress:
                rest = min(rest, max(told + every - now, 0.0))
            await asyncio.sleep(rest)


async def _tell(on_progress: OnProgress, progress: Progress) -> None:
    answer = on_progress(progress)
    if answer is not None:
        await answer
