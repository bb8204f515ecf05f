"""ResultStore: results of tasks in a database, for programs that store them themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Self

import msgspec

from shoal.client.results import ResultList, TaskResult, group_by_task, value_of
from shoal.core.typed_task import check_type
from shoal.errors import UsageError
from shoal.store.results import base as stores

_decode = msgspec.json.Decoder().decode


class ResultStore:
    """Results in sqlite:///results.db or postgresql://…; the database is opened on first use."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._store: stores.ResultBackend | None = None

    async def store(self, task: Any, result: Any, type: str = "") -> None:
        """Store the result of a task, or of the task with an id; an earlier result is replaced."""
        store = await self._opened()
        await store.store(_task_id(task), type or getattr(task, "type", ""), result)

    async def get(self, task: Any) -> Any:
        """The stored result of a task, or None; a list where its handler yielded several values."""
        store = await self._opened()
        return value_of([_decode(kept.data) for kept in await store.get(_task_id(task))])

    def aggregate(self, type: str) -> ResultList:
        """All stored results of one type of task: `async for` over them, or `await` a list."""
        check_type(type)
        return ResultList(self._read(type))

    async def _read(self, type: str) -> AsyncIterator[TaskResult]:
        store = await self._opened()
        async for result in group_by_task(store.aggregate(type), type):
            yield result

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None

    async def _opened(self) -> stores.ResultBackend:
        if self._store is None:
            self._store = await stores.open_results(self.url)
        return self._store

    async def __aenter__(self) -> Self:
        await self._opened()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _task_id(task: Any) -> int:
    number = getattr(task, "id", task)
    if isinstance(number, bool) or not isinstance(number, int):
        raise UsageError(f"{task!r:.100} is neither a task nor an id", hint="ids are the numbers that enqueue returns")
    return number
