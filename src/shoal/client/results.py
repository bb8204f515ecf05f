"""Results of typed tasks, read from the queue and from the result store, if there is one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Generator, Iterable, Sequence
from typing import Any, Literal

import msgspec

from shoal.core.run import Run, run_of
from shoal.core.task import State
from shoal.core.typed_task import unwrap
from shoal.queue.base import Queue, StoredRecord, TaskFilter, TaskView
from shoal.queue.daily_runs import list_daily_runs
from shoal.runs.records import RecordsReader
from shoal.runs.result_location import ResultFinder
from shoal.store.results.base import ResultBackend, StoredResult

SLICE = 500
RECORDS_PAGE = 1000
ENDED = frozenset({"done", "dead", "cancelled"})

_decode = msgspec.json.Decoder().decode


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """A task and its outcome.

    value: what the handler returned; where it yielded several things, their list. state: ready, delayed,
    leased, done, dead, cancelled, or gone (removed after its time, or never known to this queue).
    """

    id: int
    type: str = ""
    state: State | Literal["gone"] = "gone"
    value: Any = None
    records: tuple[Any, ...] = ()  # as they are stored
    error: str = ""  # of a task that failed, or failed the last time
    cause: str = ""
    attempts: int = 0
    worker: str = ""  # the last one that had it

    @property
    def ok(self) -> bool:
        return self.state == "done"


class ResultList:
    """Results that are read as they are needed with `async for`, or all at once with `await`."""

    def __init__(self, results: AsyncIterator[TaskResult]) -> None:
        self._results = results

    def __aiter__(self) -> AsyncIterator[TaskResult]:
        return self._results

    def __await__(self) -> Generator[Any, None, list[TaskResult]]:
        return self._all().__await__()

    async def _all(self) -> list[TaskResult]:
        return [result async for result in self._results]


class ResultReader:
    """Reads results from a queue, and from its result store where there is one."""

    def __init__(self, queue: Queue, finder: ResultFinder) -> None:
        self._queue = queue
        self._find_store = finder.find
        self._reader = RecordsReader(queue, None, find_store=finder.find)

    async def views(self, ids: Iterable[int]) -> dict[int, TaskView]:
        """The tasks as the queue sees them; unknown ones are left out."""
        found: dict[int, TaskView] = {}
        for run, tasks in _by_run(ids).items():
            for chunk in _slices(tasks):
                seen = await self._queue.list_tasks(run, where=TaskFilter(ids=tuple(chunk)), limit=SLICE)
                found |= {view.id: view for view in seen}
        return found

    async def read(self, ids: Sequence[int], views: dict[int, TaskView] | None = None) -> list[TaskResult]:
        """Results in the order of the ids."""
        if views is None:
            views = await self.views(dict.fromkeys(ids))
        held = [id for id in dict.fromkeys(ids) if id in views and views[id].records]
        records = await self._records(held)
        gone = [id for id in dict.fromkeys(ids) if id not in views]
        if gone and (store := await self._find_store()) is not None:
            for id in gone:
                records[id] = [_decode(kept.data) for kept in await store.get(id)]
        return [_result(id, views.get(id), records.get(id, ())) for id in ids]

    async def _records(self, ids: Iterable[int]) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = defaultdict(list)
        for run, tasks in _by_run(ids).items():
            for chunk in _slices(tasks):
                after = 0
                while True:
                    records = await self._reader.records(run, after=after, limit=RECORDS_PAGE, tasks=chunk)
                    for record in records:
                        found[record.task].append(_decode(record.data))
                    if len(records) < RECORDS_PAGE:
                        break
                    after = records[-1].seq
        return found

    async def aggregate(self, type: str) -> AsyncIterator[TaskResult]:
        """All results of one type, oldest first; never more than one slice is in memory."""
        runs = await list_daily_runs(self._queue, type)
        if (store := await self._find_store()) is not None:
            known = {run.name for run in runs}
            async for result in group_by_task(self._records_of_past_runs(store, type, known), type):
                yield result
        for run in runs:
            async for result in group_by_task(self._records_of_run(run), type):
                yield result

    async def _records_of_run(self, run: Run) -> AsyncIterator[StoredRecord]:
        after = 0
        while records := await self._reader.records(run.id, after=after, limit=RECORDS_PAGE):
            for record in records:
                yield record
            after = records[-1].seq

    async def _records_of_past_runs(
        self, store: ResultBackend, type: str, known: set[str]
    ) -> AsyncIterator[StoredResult]:
        """Records in the store of runs that the queue no longer has, or never had."""
        async for kept in store.aggregate(type):
            if kept.run not in known:
                yield kept


def _by_run(ids: Iterable[int]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for id in ids:
        found[run_of(id)].append(id)
    return found


def _slices(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    return (ids[at : at + SLICE] for at in range(0, len(ids), SLICE))


async def group_by_task(records: AsyncIterator[StoredRecord | StoredResult], type: str) -> AsyncIterator[TaskResult]:
    """Group consecutive records of the same task into results."""
    task, held = 0, list[Any]()
    async for record in records:
        if record.task != task and held:
            yield _done_result(task, type, held)
            held = []
        task = record.task
        held.append(_decode(record.data))
    if held:
        yield _done_result(task, type, held)


def _done_result(task: int, type: str, records: Sequence[Any]) -> TaskResult:
    return TaskResult(id=task, type=type, state="done", value=value_of(records), records=tuple(records))


def _result(id: int, view: TaskView | None, records: Sequence[Any]) -> TaskResult:
    if view is None:
        state: Literal["done", "gone"] = "done" if records else "gone"
        return TaskResult(id=id, state=state, value=value_of(records), records=tuple(records))
    last = view.history[-1] if view.history else None
    failed = last is not None and last.cause and view.state != "done"
    return TaskResult(
        id=id,
        type=view.kind,
        state=view.state,
        value=value_of(records),
        records=tuple(records),
        error=last.message if last and failed else "",
        cause=view.cause or (last.cause if last and failed else ""),
        attempts=view.attempts,
        worker=view.worker or (last.worker if last else ""),
    )


def value_of(records: Sequence[Any]) -> Any:
    values = [unwrap(record) for record in records]
    return None if not values else values[0] if len(values) == 1 else values
