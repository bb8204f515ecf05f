"""Client: enqueues typed tasks and reads their results, from anywhere that reaches the queue."""

from __future__ import annotations

import asyncio
import secrets
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Self, overload

import msgspec

from shoal import app
from shoal.client.leased_tasks import DequeuedTask, garbled_outcome, settle
from shoal.client.results import ResultList, ResultReader, TaskResult
from shoal.client.wait import OnProgress, TaskProgress, TaskWaiter, WaitTimeout, print_progress, report_progress
from shoal.config.load import Settings
from shoal.config.queue_address import QueueAddress, settings_for
from shoal.control.actions import revive_dead_letters
from shoal.core.lane import Pace, WorkerStatus
from shoal.core.run import Run, run_of
from shoal.core.typed_task import TYPE_PREFIX, Task, check_type, daily_scraper_name
from shoal.errors import UsageError
from shoal.queue.base import LEASE_SECONDS, REAP_EVERY, Queue, TaskFilter
from shoal.queue.daily_runs import ALL_RUNS, DailyRuns, list_daily_runs
from shoal.queue.request_ids import new_request_id
from shoal.runs.result_location import ResultFinder

ADD_BATCH_SIZE = 1000  # tasks added in one step
PAGE_SIZE = 500


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A task that failed for good."""

    id: int
    type: str
    error: str
    cause: str
    payload: dict[str, Any]
    attempts: int
    at: int  # UTC microseconds
    traceback: str = ""


def connect(url: QueueAddress | None = None, **settings: Any) -> Client:
    """A client of a queue: `async with shoal.connect("redis://…") as client`.

    Without a URL it is the queue of the cluster file that SHOAL_CLUSTER names, or that of SHOAL_QUEUE or of the
    settings file. In place of a URL it may be a list of them (shards), what load_config read, or a Redis client or
    connection pool, whose server is used. Any setting may be given.
    """
    return Client(settings_for(url, settings))


class Client:
    """A connection to a queue of typed tasks, opened with `async with`, for any number of calls."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._queue: Queue | None = None
        self._finder: ResultFinder | None = None
        self._daily_runs: DailyRuns | None = None
        self._results: ResultReader | None = None
        self._reaped = float("-inf")

    async def open(self) -> Self:
        if self._queue is None:
            self._queue = await app.open_queue(self.settings)
            self._finder = ResultFinder(self._queue, self.settings)
            self._daily_runs = DailyRuns(self._queue)
            self._results = ResultReader(self._queue, self._finder)
            if self.settings.store:  # what is wrong with it is said at once
                await self._finder.find()
        return self

    async def close(self) -> None:
        queue, finder = self._queue, self._finder
        self._queue = self._finder = None
        if finder is not None:
            await finder.close()
        if queue is not None:
            await queue.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def queue(self) -> Queue:
        if self._queue is None:
            raise UsageError("this client is not open", hint="async with shoal.connect(…) as client: …")
        return self._queue

    # enqueuing

    @overload
    async def enqueue(self, task: Task, /) -> int: ...

    @overload
    async def enqueue(self, *tasks: Task) -> list[int]: ...

    async def enqueue(self, *tasks: Task) -> int | list[int]:
        """Queue a task and return its id; for several tasks, their ids in order."""
        ids = await self.enqueue_many(tasks)
        return ids[0] if len(tasks) == 1 else ids

    async def enqueue_many(self, tasks: Iterable[Task]) -> list[int]:
        """Queue any number of tasks, a thousand at a time, and return their ids in order.

        A task whose key is already known is not queued again: the id of the first one is returned.
        """
        ids: list[int] = []
        batch: list[Task] = []
        for task in tasks:
            if not isinstance(task, Task):
                raise UsageError(
                    f"{task!r:.100} is not a task", hint="shoal.Task(type=…, payload=…); enqueue_many takes a list"
                )
            batch.append(task)
            if len(batch) == ADD_BATCH_SIZE:
                ids += await self._add(batch)
                batch = []
        return ids + (await self._add(batch) if batch else [])

    async def _add(self, batch: Sequence[Task]) -> list[int]:
        _ = self.queue  # says so if it is not open
        assert self._daily_runs is not None
        positions: dict[str, list[int]] = {}
        for position, task in enumerate(batch):
            positions.setdefault(task.type, []).append(position)
        ids = [0] * len(batch)
        for type, chosen in positions.items():
            chunk = [batch[position] for position in chosen]
            cores = [task.to_queue_task() for task in chunk]
            found = await self._daily_runs.add(
                type, cores, _paces(chunk, [core.lane for core in cores]), keyed=[bool(task.key) for task in chunk]
            )
            for position, id in zip(chosen, found, strict=True):
                ids[position] = id
        return ids

    # waiting for results

    async def wait_for_results(
        self,
        ids: int | Iterable[int],
        timeout: float | None = None,
        *,
        on_progress: OnProgress | None = None,
        every: float = 2.0,
        partial: bool = False,
    ) -> list[TaskResult]:
        """Wait until all tasks have ended, well or not, and return their results in the order of the ids.

        When the time is up, TimeoutError says how many are still open and has `results`; with partial=True
        they are simply returned. on_progress is called every `every` seconds, and at the end.
        """
        chosen = [ids] if isinstance(ids, int) else list(ids)
        waiter = TaskWaiter(self._result_reader, chosen)
        ended = await waiter.wait(timeout, on_progress, every)
        results = await waiter.results()
        if ended or partial:
            return results
        raise WaitTimeout(
            f"{waiter.open:,} of {len(chosen):,} tasks are still open after {timeout:g} s ({waiter.progress})",
            results,
            waiter.open,
        )

    async def results(self, ids: Iterable[int]) -> list[TaskResult]:
        """What is known about tasks right now, in the order of their ids."""
        return await self._result_reader.read(list(ids))

    async def gather(
        self, type: str, payloads: Iterable[dict[str, Any]], timeout: float | None = None, **options: Any
    ) -> list[TaskResult]:
        """Queue one task of a type for each payload and wait; results in the order of the payloads."""
        waiting = {name: options.pop(name) for name in ("on_progress", "every", "partial") if name in options}
        tasks = [Task(type=type, payload=payload, **options) for payload in payloads]
        return await self.wait_for_results(await self.enqueue_many(tasks), timeout, **waiting)

    def aggregate(self, type: str) -> ResultList:
        """All results of one type that are still stored, oldest first: `async for` over them, or `await` a list."""
        check_type(type)
        return ResultList(self._result_reader.aggregate(type))

    @property
    def _result_reader(self) -> ResultReader:
        _ = self.queue
        assert self._results is not None
        return self._results

    # inspecting and retrying

    async def stats(self, type: str | None = None) -> TaskProgress:
        """How many tasks of a type, or of all types, are pending, processing, completed and failed."""
        runs = [run.id for run in await self._daily_runs_of(type)]
        counts = await self.queue.stats_of(runs) if runs else []
        return TaskProgress(
            pending=sum(stats.ready for stats in counts),
            processing=sum(stats.leased for stats in counts),
            completed=sum(stats.done for stats in counts),
            failed=sum(stats.failed + stats.cancelled for stats in counts),
        )

    get_stats = stats

    async def monitor(
        self,
        type: str | None = None,
        *,
        every: float = 5.0,
        on_progress: OnProgress = print_progress,
        exit_when_done: bool = False,
    ) -> TaskProgress:
        """Report the stats every few seconds until it is cancelled, or until no task is open."""
        while True:
            progress = await self.stats(type)
            await report_progress(on_progress, progress)
            if exit_when_done and not progress.pending + progress.processing:
                return progress
            await asyncio.sleep(every)

    async def _daily_runs_of(self, type: str | None) -> list[Run]:
        if type is not None:
            check_type(type)
        return await list_daily_runs(self.queue, type or "")

    async def get_dead_letters(self, type: str | None = None, limit: int = 1000) -> list[DeadLetter]:
        """Tasks of a type, or of all types, that failed for good, with the error; `revive` retries them."""
        found: list[DeadLetter] = []
        for run in await self._daily_runs_of(type):
            after = 0
            while len(found) < limit and (
                views := await self.queue.list_tasks(run.id, state="dead", after=after, limit=PAGE_SIZE)
            ):
                found += map(_dead_letter, views)
                after = views[-1].id
        return found[:limit]

    async def revive(self, what: str | Iterable[int]) -> int:
        """Retry dead letters with fresh attempts: all of a type, or some by id; returns how many."""
        if isinstance(what, str):
            check_type(what)
            runs = await list_daily_runs(self.queue, what)
            return sum([await revive_dead_letters(self.queue, run.id) for run in runs])
        by_run: dict[int, list[int]] = {}
        for id in what:
            by_run.setdefault(run_of(id), []).append(id)
        return sum(
            [await revive_dead_letters(self.queue, run, TaskFilter(ids=tuple(ids))) for run, ids in by_run.items()]
        )

    async def workers(self) -> list[WorkerStatus]:
        """The workers registered with the queue, and what they are doing."""
        return await self.queue.workers()

    # leasing tasks without a Worker

    async def dequeue(
        self,
        types: str | Collection[str] | None = None,
        *,
        worker: str = "",
        limit: int = 1,
        lease: float = LEASE_SECONDS,
        timeout: float = 0.0,
        capabilities: Collection[str] = (),
    ) -> list[DequeuedTask]:
        """Lease up to `limit` tasks of some types, or of any, to be settled with complete, fail or release.

        They are ours for `lease` seconds, and for as long again after each `extend`; whatever is not settled
        by then goes to others. If there is none, it waits up to `timeout` seconds. In lanes with a rate, one
        task waits here for its turn; of several, await `task.wait_for_turn()` before each. Tasks that need
        capabilities come only to who has them.
        """
        names = [types] if isinstance(types, str) else list(types or ())
        for name in names:
            check_type(name)
        worker = worker or f"{socket.gethostname()}-{secrets.token_hex(2)}"
        end = time.monotonic() + timeout
        while True:
            await self._reap()
            serves = [daily_scraper_name(name) for name in names] if types is not None else await self._open_types()
            asked = time.monotonic()
            claim = await self.queue.claim(
                worker, limit, lease=lease, serves=serves, capabilities=capabilities, request_id=new_request_id()
            )
            if garbled := [garbled_outcome(task, worker) for task in claim.tasks if task.garbled]:
                await self.queue.settle(garbled)
            leased = [DequeuedTask(task, worker, self.queue, asked) for task in claim.tasks if not task.garbled]
            leased.sort(key=lambda task: task.start_in)
            if leased and limit == 1:
                await leased[0].wait_for_turn()
            left = end - time.monotonic()
            if leased or left <= 0:
                return leased
            soon = left if claim.next_in is None else min(left, max(claim.next_in, 0.01))
            await self.queue.wait(min(soon, 0.5))

    async def _open_types(self) -> list[str]:
        """What tasks of every type are served as; pages are not among them."""
        runs = await self.queue.runs(states=("running", "paused"), limit=ALL_RUNS)
        return sorted({run.scraper for run in runs if run.scraper.startswith(TYPE_PREFIX)})

    async def complete(self, task: DequeuedTask, result: Any = None) -> bool:
        """Settle a task with its result; returns False if its lease had ended: nothing was stored then."""
        return await settle(self.queue, task.outcome_done(result)) != "lost"

    async def fail(self, task: DequeuedTask, error: BaseException | str) -> str:
        """Settle a task that failed as the retry policy says: "retry", "dead", or "lost" with its lease."""
        chosen = self.settings
        return await settle(self.queue, task.outcome_failed(error, chosen.retry_limits, chosen.retry_delay))

    async def release(self, task: DequeuedTask) -> bool:
        """Return a task to the queue unchanged."""
        return await settle(self.queue, task.outcome_released()) != "lost"

    async def extend(self, *tasks: DequeuedTask, lease: float = LEASE_SECONDS) -> list[DequeuedTask]:
        """Extend leases to `lease` seconds from now; returns the tasks that were lost or cancelled."""
        lost: list[DequeuedTask] = []
        by_worker: dict[str, dict[int, list[int]]] = {}
        for task in tasks:
            by_worker.setdefault(task.worker, {}).setdefault(task.leased.lease, []).append(task.id)
        for worker, leases in by_worker.items():
            answer = await self.queue.extend(worker, leases, lease=lease)
            lost += [
                task
                for task in tasks
                if task.worker == worker and (task.leased.lease in answer.lost or task.id in answer.cancelled)
            ]
        return lost

    async def _reap(self) -> None:
        """Return expired leases to the queue: there may be no other process that does."""
        if time.monotonic() - self._reaped > REAP_EVERY:
            self._reaped = time.monotonic()
            await self.queue.reap()


def _paces(tasks: Sequence[Task], lanes: Sequence[str]) -> Mapping[str, Pace]:
    """The pace that the tasks ask of each lane; where they disagree, the slowest wins."""
    paces: dict[str, Pace] = {}
    for task, lane in zip(tasks, lanes, strict=True):
        pace = task.pace()
        if pace is not None and (lane not in paces or paces[lane].spacing < pace.spacing):
            paces[lane] = pace
    return paces


def _dead_letter(view: Any) -> DeadLetter:
    last = view.history[-1] if view.history else None
    return DeadLetter(
        id=view.id,
        type=view.kind,
        error=last.message if last else "",
        cause=view.cause,
        payload=(view.meta or {}).get("payload", {}),
        attempts=view.attempts,
        at=view.finished_at,
        traceback=str((view.evidence or {}).get("traceback", "")),
    )
