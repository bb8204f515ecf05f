"""Coordinator: hands out a list of work, waits for all of it and says how far it is."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Any, Self

from shoal.core.typed import Task
from shoal.fleet.fleet import Fleet, connect
from shoal.fleet.results import TaskResult
from shoal.fleet.waiting import Progress


class Coordinator:
    """To be subclassed with what is worth coordinating; `on_progress` may be replaced."""

    every = 5.0  # seconds between two words on the progress; 0: none

    def __init__(self, url: str | None = None, **settings: Any) -> None:
        self.fleet: Fleet = connect(url, **settings)

    async def __aenter__(self) -> Self:
        await self.fleet.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.fleet.close()

    async def fan_out(self, type: str, payloads: Iterable[dict[str, Any]], **options: Any) -> list[int]:
        """Queue one task of a type for each payload; options are those of shoal.Task."""
        return await self.fleet.enqueue_many(
            Task(type=type, payload=payload, **options) for payload in payloads
        )

    async def wait(
        self, ids: Iterable[int], timeout: float | None = None, *, partial: bool = False
    ) -> list[TaskResult]:
        """Results in order, when all have ended; says how far it is every few seconds."""
        return await self.fleet.wait_for_results(
            ids,
            timeout,
            on_progress=self.on_progress if self.every else None,
            every=self.every or 1.0,
            partial=partial,
        )

    async def wait_for_results(
        self, ids: Iterable[int], timeout: float | None = None, *, partial: bool = False
    ) -> list[TaskResult]:
        """The same as `wait`."""
        return await self.wait(ids, timeout, partial=partial)

    async def aggregate(self, type: str) -> AsyncIterator[TaskResult]:
        async for result in self.fleet.aggregate(type):
            yield result

    def on_progress(self, progress: Progress) -> None:
        sys.stderr.write(f"{progress}\n")
