"""The result of each URL of a request, in the order in which they were given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any, Literal

import msgspec

from shoal.core.run import Run
from shoal.core.task import Task
from shoal.logs import redact
from shoal.queue.base import Queue, TaskFilter, TaskView
from shoal.runs.records import RecordsReader
from shoal.store.results.base import ResultBackend
from shoal.web.submit.url_lists import UrlList

PAGES_AT_ONCE = 25  # pages whose records are held at once: a page may have been taken whole
MAX_RECORDS = 100  # records of one page in an answer
SLICE = 200

Status = Literal["success", "failed", "pending"]
JsonObject = dict[str, Any]


class ResultCounts:
    """Counts results as they go by."""

    def __init__(self) -> None:
        self.counts: dict[Status, int] = {"success": 0, "failed": 0, "pending": 0}
        self.workers: set[str] = set()

    def add(self, result: JsonObject) -> None:
        self.counts[result["status"]] += 1
        if result["worker_id"]:
            self.workers.add(result["worker_id"])

    def document(self) -> JsonObject:
        counts = {str(status): count for status, count in self.counts.items()}
        return {"total": sum(counts.values()), **counts, "workers_used": len(self.workers)}


class UrlResults:
    """Reads results of one run; holds a few pages at a time, however many there are."""

    def __init__(self, queue: Queue, store: ResultBackend | None, run: Run, url_list: UrlList, content: str) -> None:
        self._queue = queue
        self._run = run
        self._url_list = url_list
        self._content = content  # the field of a record that is the page's content; empty: there is none
        self._records = RecordsReader(queue, store, run)

    async def check(self) -> None:
        """Say now what would keep us from reading records, before anything was answered."""
        await self._records.records(self._run.id, limit=1)

    async def iterate(self) -> AsyncIterator[JsonObject]:
        async for some in self._url_list.in_batches():
            digests = [task.digest for _, task in some if isinstance(task, Task)]
            ids = iter(await self._queue.ids(self._run.id, digests) if digests else ())
            numbered = [(url, task, next(ids) if isinstance(task, Task) else 0) for url, task in some]
            views = await self._views({number for _, _, number in numbered if number})
            for first in range(0, len(numbered), PAGES_AT_ONCE):
                few = numbered[first : first + PAGES_AT_ONCE]
                found = await self._records_by_task([views[number] for _, _, number in few if number in views])
                for url, task, number in few:
                    yield self._result(url, task, views.get(number), number, found.get(number, ()))

    async def of_task(self, url: str, number: int) -> JsonObject | None:
        """The result of one task by its number; None while it is open."""
        views = await self._views({number})
        view = views.get(number)
        if view is not None and view.state in ("ready", "delayed", "leased"):
            return None
        found = await self._records_by_task(list(views.values()))
        return self._result(url, "", view, number, found.get(number, ()))

    async def _views(self, ids: Collection[int]) -> dict[int, TaskView]:
        if not ids:
            return {}
        where = TaskFilter(ids=tuple(sorted(ids)))
        return {one.id: one for one in await self._queue.list_tasks(self._run.id, where=where, limit=len(ids))}

    async def _records_by_task(self, views: Collection[TaskView]) -> dict[int, list[JsonObject]]:
        """The records of some tasks, of each the first ones."""
        tasks = {view.id for view in views if view.state == "done" and view.records}
        found: dict[int, list[JsonObject]] = {task: [] for task in tasks}
        after, more = 0, bool(tasks)
        while more:
            page = await self._records.records(self._run.id, after=after, limit=SLICE, tasks=tasks)
            for record in page:
                if len(found.get(record.task, ())) < MAX_RECORDS:
                    found.setdefault(record.task, []).append(msgspec.json.decode(record.data))
            after, more = (page[-1].seq, len(page) == SLICE) if page else (after, False)
        return found

    def _result(
        self, url: str, task: Task | str, view: TaskView | None, number: int, records: Collection[JsonObject]
    ) -> JsonObject:
        last = view.history[-1] if view is not None and view.history else None
        status = self._status(task, view, number)
        taken = [dict(record) for record in records]
        content = taken[0].get(self._content) if taken and self._content else None
        if isinstance(content, str | None):  # a field that is called so may be anything
            for record in taken:
                record.pop(self._content, None)
        result: JsonObject = {
            "url": url,
            "status": status,
            "content": content if isinstance(content, str) else None,
            "worker_id": (last.worker if last else view.worker if view else "") or None,
            "http_status": (last.status if last else 0) or None,
            "error": None if status == "success" else self._error(task, view, status),
            "record": taken[0] if taken else None,
        }
        return result | ({"more": taken[1:]} if taken[1:] else {})

    def _status(self, task: Task | str, view: TaskView | None, number: int) -> Status:
        if view is None:
            if number or isinstance(task, str) or self._run.state in ("finished", "cancelled"):
                return "failed"
            return "pending"
        if view.state in ("ready", "delayed", "leased"):
            return "pending"
        return "success" if view.state == "done" else "failed"

    def _error(self, task: Task | str, view: TaskView | None, status: Status) -> str | None:
        if isinstance(task, str) and view is None:
            return task
        if view is None:
            return None if status == "pending" else f"not fetched: the run is {self._run.state}"
        last = view.history[-1] if view.history else None
        if view.state == "cancelled":
            return f"cancelled: {view.cause}" if view.cause else "cancelled"
        cause, message = view.cause, last.message if last else ""
        if status == "pending":
            if last is None or not last.cause:
                return None
            cause = last.cause
        full_error = f"{cause}: {message}" if message and message != cause else cause
        return str(redact(full_error.replace("blocked.private", "refused: private address", 1)))
