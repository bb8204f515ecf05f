"""ResultStore: results of tasks in a database, for those who keep them by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any, Self

import msgspec

from shoal.core.typed import check_type
from shoal.errors import Usage
from shoal.fleet.results import TaskResult, by_task, value_of
from shoal.store import results as stores

_decode = msgspec.json.Decoder().decode


class ResultStore:
    """In sqlite:///results.db or postgresql://…; opened when first used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store: stores.ResultStore | None = None

    async def store(self, task: Any, result: Any, type: str = "") -> None:
        """Keep the result of a task, or of the task with an id, in place of what was kept for it before."""
        store = await self._opened()
        await store.store(_number(task), type or getattr(task, "type", ""), result)

    async def get(self, task: Any) -> Any:
        """What is kept for a task, None if nothing is; where its handler yielded several things, a list."""
        store = await self._opened()
        return value_of([_decode(kept.data) for kept in await store.get(_number(task))])

    async def aggregate(self, type: str) -> AsyncIterator[TaskResult]:
        """All results of one type of task that are kept here."""
        check_type(type)
        store = await self._opened()
        async for result in by_task(store.aggregate(type), type):
            yield result

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _opened(self) -> stores.ResultStore:
        if self._store is None:
            self._store = await stores.open_results(self.url)
        return self._store

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _number(task: Any) -> int:
    number = getattr(task, "id", task)
    if isinstance(number, bool) or not isinstance(number, int):
        raise Usage(
            f"{task!r:.100} is no task and no id of one", hint="ids are the numbers that enqueue gives back"
        )
    return number
