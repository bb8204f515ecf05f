"""Coordinator: enqueues many tasks, waits for all of them and reports progress."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from shoal.client.client import Client, connect
from shoal.client.results import ResultList, TaskResult
from shoal.client.wait import TaskProgress, print_progress
from shoal.config.queue_address import QueueAddress
from shoal.core.typed_task import Task


class Coordinator:
    """Base class for programs that enqueue many tasks and wait; `on_progress` may be overridden."""

    every = 5.0  # seconds between two progress reports; 0: none

    def __init__(self, url: QueueAddress | None = None, **settings: Any) -> None:
        self.client: Client = connect(url, **settings)

    async def __aenter__(self) -> Self:
        await self.client.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.client.close()

    async def fan_out(self, type: str, payloads: Iterable[dict[str, Any]], **options: Any) -> list[int]:
        """Queue one task of a type for each payload; options are those of shoal.Task."""
        return await self.client.enqueue_many(Task(type=type, payload=payload, **options) for payload in payloads)

    async def wait(
        self, ids: Iterable[int], timeout: float | None = None, *, partial: bool = False
    ) -> list[TaskResult]:
        """Wait for all tasks and return their results in order; progress is reported every few seconds."""
        return await self.client.wait_for_results(
            ids, timeout, on_progress=self.on_progress if self.every else None, every=self.every or 1.0, partial=partial
        )

    async def wait_for_results(
        self, ids: Iterable[int], timeout: float | None = None, *, partial: bool = False
    ) -> list[TaskResult]:
        """The same as `wait`."""
        return await self.wait(ids, timeout, partial=partial)

    async def monitor(self, type: str | None = None, *, exit_when_done: bool = False) -> TaskProgress:
        """Report the progress of a type, or of all, every few seconds until cancelled or until none is open."""
        return await self.client.monitor(
            type, every=self.every or 1.0, on_progress=self.on_progress, exit_when_done=exit_when_done
        )

    def aggregate(self, type: str) -> ResultList:
        """All stored results of one type: `async for` over them, or `await` a list."""
        return self.client.aggregate(type)

    def on_progress(self, progress: TaskProgress) -> None:
        print_progress(progress)
