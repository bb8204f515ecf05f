"""Results: what has become of typed tasks, read from the queue and from the store beside it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Any, Literal

import msgspec

from shoal.control.records import RecordsReader
from shoal.core.run import Run, run_of
from shoal.core.task import State
from shoal.core.typed import unwrap
from shoal.queue.base import Queue, StoredRecord, TaskView, Where
from shoal.queue.standing import standing_runs
from shoal.store.results import Kept, ResultStore

SLICE = 500
RECORDS = 1000
ENDED = frozenset({"done", "dead", "cancelled"})

_decode = msgspec.json.Decoder().decode


class TaskResult(msgspec.Struct, frozen=True, kw_only=True):
    """A task and what has become of it.

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


class Results:
    """Reads results of one queue, and of its store where there is one."""

    def __init__(self, queue: Queue, store: ResultStore | None = None) -> None:
        self._queue = queue
        self._store = store
        self._reader = RecordsReader(queue, store)

    async def views(self, ids: Iterable[int]) -> dict[int, TaskView]:
        """What the queue knows of tasks; what it does not know is left out."""
        found: dict[int, TaskView] = {}
        for run, tasks in _by_run(ids).items():
            for some in _slices(tasks):
                seen = await self._queue.look(run, where=Where(ids=tuple(some)), limit=SLICE)
                found |= {view.id: view for view in seen}
        return found

    async def of(self, ids: Sequence[int], views: dict[int, TaskView] | None = None) -> list[TaskResult]:
        """In the order of the ids."""
        if views is None:
            views = await self.views(dict.fromkeys(ids))
        held = [id for id in dict.fromkeys(ids) if id in views and views[id].records]
        records = await self._recorded(held)
        if self._store is not None:
            for id in dict.fromkeys(ids):
                if id not in views:
                    records[id] = [_decode(kept.data) for kept in await self._store.get(id)]
        return [_result(id, views.get(id), records.get(id, ())) for id in ids]

    async def _recorded(self, ids: Iterable[int]) -> dict[int, list[Any]]:
        found: dict[int, list[Any]] = defaultdict(list)
        for run, tasks in _by_run(ids).items():
            for some in _slices(tasks):
                after = 0
                while True:
                    records = await self._reader.records(run, after=after, limit=RECORDS, tasks=some)
                    for record in records:
                        found[record.task].append(_decode(record.data))
                    if len(records) < RECORDS:
                        break
                    after = records[-1].seq
        return found

    async def aggregate(self, type: str) -> AsyncIterator[TaskResult]:
        """Everything that tasks of one type brought, the oldest first; no more than a slice is held."""
        runs = await standing_runs(self._queue, type)
        if self._store is not None:
            async for result in by_task(self._left(self._store, type, {run.name for run in runs}), type):
                yield result
        for run in runs:
            async for result in by_task(self._of_run(run), type):
                yield result

    async def _of_run(self, run: Run) -> AsyncIterator[StoredRecord]:
        after = 0
        while records := await self._reader.records(run.id, after=after, limit=RECORDS):
            for record in records:
                yield record
            after = records[-1].seq

    async def _left(self, store: ResultStore, type: str, known: set[str]) -> AsyncIterator[Kept]:
        """What the store has of runs that have gone from the queue, or that never were in it."""
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


async def by_task(records: AsyncIterator[StoredRecord | Kept], type: str) -> AsyncIterator[TaskResult]:
    """Records as results: those of one task follow one another."""
    task, held = 0, list[Any]()
    async for record in records:
        if record.task != task and held:
            yield _brought(task, type, held)
            held = []
        task = record.task
        held.append(_decode(record.data))
    if held:
        yield _brought(task, type, held)


def _brought(task: int, type: str, records: Sequence[Any]) -> TaskResult:
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
