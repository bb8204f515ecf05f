"""Fleet: typed tasks given to whatever workers there are, from anywhere that reaches the queue."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, overload

import msgspec

from shoal import app
from shoal.config import Settings, load
from shoal.control.acting import revive_all
from shoal.core.lane import Mark, Pace
from shoal.core.run import run_of
from shoal.core.typed import Task, check_type, standing_name
from shoal.errors import Usage
from shoal.fleet.held import HeldTask, settle
from shoal.fleet.results import Results, TaskResult
from shoal.fleet.waiting import NotAllDone, OnProgress, Progress, Waiting
from shoal.queue.base import LEASE, REAP_EVERY, Queue, Where
from shoal.queue.standing import Standing, standing_runs
from shoal.store.results import ResultStore, open_results

BATCH = 1000  # tasks added in one step
PAGE = 500


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A task that was given up."""

    id: int
    type: str
    error: str
    cause: str
    payload: dict[str, Any]
    attempts: int
    at: int  # UTC microseconds
    traceback: str = ""


def connect(url: str | None = None, **settings: Any) -> Fleet:
    """The fleet of a queue: `async with shoal.connect("redis://…") as fleet`.

    Without an address it is the queue that SHOAL_QUEUE or the settings file names; any setting may be named.
    """
    return Fleet(load({"queue": url, **settings}))


class Fleet:
    """Opened with `async with`; one connection for any number of calls."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._queue: Queue | None = None
        self._store: ResultStore | None = None
        self._standing: Standing | None = None
        self._results: Results | None = None
        self._reaped = float("-inf")

    async def open(self) -> Self:
        if self._queue is None:
            self._queue = await app.open_queue(self.settings)
            if self.settings.store:
                self._store = await open_results(self.settings.store)
            self._standing = Standing(self._queue)
            self._results = Results(self._queue, self._store)
        return self

    async def close(self) -> None:
        queue, store = self._queue, self._store
        self._queue = self._store = None
        if store is not None:
            await store.close()
        if queue is not None:
            await queue.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def queue(self) -> Queue:
        if self._queue is None:
            raise Usage("this fleet is not open", hint="async with shoal.connect(…) as fleet: …")
        return self._queue

    # giving work

    @overload
    async def enqueue(self, task: Task, /) -> int: ...

    @overload
    async def enqueue(self, *tasks: Task) -> list[int]: ...

    async def enqueue(self, *tasks: Task) -> int | list[int]:
        """Queue a task and give back its id; of several, their ids in order."""
        ids = await self.enqueue_many(tasks)
        return ids[0] if len(tasks) == 1 else ids

    async def enqueue_many(self, tasks: Iterable[Task]) -> list[int]:
        """Queue any number of tasks, a thousand in one step; their ids in order.

        A task whose key is known is not queued again: its id is that of the first.
        """
        ids: list[int] = []
        batch: list[Task] = []
        for task in tasks:
            if not isinstance(task, Task):
                raise Usage(
                    f"{task!r:.100} is not a task",
                    hint="shoal.Task(type=…, payload=…); enqueue_many takes a list",
                )
            batch.append(task)
            if len(batch) == BATCH:
                ids += await self._add(batch)
                batch = []
        return ids + (await self._add(batch) if batch else [])

    async def _add(self, batch: Sequence[Task]) -> list[int]:
        _ = self.queue  # says so if it is not open
        assert self._standing is not None
        places: dict[str, list[int]] = {}
        for place, task in enumerate(batch):
            places.setdefault(task.type, []).append(place)
        ids = [0] * len(batch)
        for type, chosen in places.items():
            some = [batch[place] for place in chosen]
            cores = [task.core() for task in some]
            found = await self._standing.add(
                type,
                cores,
                _paces(some, [core.lane for core in cores]),
                keyed=[bool(task.key) for task in some],
            )
            for place, id in zip(chosen, found, strict=True):
                ids[place] = id
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
        """The results of tasks in the order of their ids, when all have ended, well or not.

        When the time is up, TimeoutError says how many are open and holds `results`; with partial=True
        they are simply given back. on_progress is told every so many seconds, and at the end.
        """
        chosen = [ids] if isinstance(ids, int) else list(ids)
        waiting = Waiting(self._read, chosen)
        ended = await waiting.wait(timeout, on_progress, every)
        results = await waiting.results()
        if ended or partial:
            return results
        raise NotAllDone(
            f"{waiting.open:,} of {len(chosen):,} tasks are still open after {timeout:g} s"
            f" ({waiting.progress})",
            results,
            waiting.open,
        )

    async def results(self, ids: Iterable[int]) -> list[TaskResult]:
        """What is known of tasks now, in the order of their ids."""
        return await self._read.of(list(ids))

    async def gather(
        self, type: str, payloads: Iterable[dict[str, Any]], timeout: float | None = None, **options: Any
    ) -> list[TaskResult]:
        """Queue one task of a type for each payload and wait; results in the order of the payloads."""
        waiting = {name: options.pop(name) for name in ("on_progress", "every", "partial") if name in options}
        tasks = [Task(type=type, payload=payload, **options) for payload in payloads]
        return await self.wait_for_results(await self.enqueue_many(tasks), timeout, **waiting)

    async def aggregate(self, type: str) -> AsyncIterator[TaskResult]:
        """All results of one type that are still kept, the oldest first, read as they are needed."""
        check_type(type)
        async for result in self._read.aggregate(type):
            yield result

    @property
    def _read(self) -> Results:
        _ = self.queue
        assert self._results is not None
        return self._results

    # looking and acting

    async def stats(self, type: str) -> Progress:
        """How many tasks of a type are pending, processing, completed and failed."""
        check_type(type)
        total = Progress()
        for run in await standing_runs(self.queue, type):
            stats = await self.queue.stats(run.id)
            total = Progress(
                total.pending + stats.ready,
                total.processing + stats.leased,
                total.completed + stats.done,
                total.failed + stats.dead + stats.cancelled,
            )
        return total

    async def get_dead_letters(self, type: str, limit: int = 1000) -> list[DeadLetter]:
        """Tasks of a type that were given up, with the error; `revive` gives them another try."""
        check_type(type)
        found: list[DeadLetter] = []
        for run in await standing_runs(self.queue, type):
            after = 0
            while len(found) < limit and (
                views := await self.queue.look(run.id, state="dead", after=after, limit=PAGE)
            ):
                found += map(_letter, views)
                after = views[-1].id
        return found[:limit]

    async def revive(self, what: str | Iterable[int]) -> int:
        """Dead letters back to work with fresh attempts: those of a type, or by id; says how many."""
        if isinstance(what, str):
            check_type(what)
            runs = await standing_runs(self.queue, what)
            return sum([await revive_all(self.queue, run.id) for run in runs])
        by_run: dict[int, list[int]] = {}
        for id in what:
            by_run.setdefault(run_of(id), []).append(id)
        return sum([await revive_all(self.queue, run, Where(ids=tuple(ids))) for run, ids in by_run.items()])

    async def workers(self) -> list[Mark]:
        """The workers that the queue knows, with what they do."""
        return await self.queue.workers()

    # by hand

    async def dequeue(
        self,
        types: str | Collection[str],
        *,
        worker: str = "",
        limit: int = 1,
        lease: float = LEASE,
        timeout: float = 0.0,
    ) -> list[HeldTask]:
        """Take up to `limit` tasks of some types, to be settled with complete, fail or release.

        They are ours for `lease` seconds, and for as long again after each `extend`; whatever is not settled
        by then goes to others. Without any, it waits up to `timeout` seconds. In lanes with a rate, one
        task waits here for its turn; of several, await `task.turn()` before each.
        """
        names = [types] if isinstance(types, str) else list(types)
        for name in names:
            check_type(name)
        serves = [standing_name(name) for name in names]
        worker = worker or f"{socket.gethostname()}-{secrets.token_hex(2)}"
        end = time.monotonic() + timeout
        while True:
            await self._reap()
            asked = time.monotonic()
            claim = await self.queue.claim(
                worker, limit, lease=lease, serves=serves, request_id=secrets.token_hex(16)
            )
            held = [HeldTask(task, worker, self.queue, asked) for task in claim.tasks]
            held.sort(key=lambda task: task.start_in)
            if held and limit == 1:
                await held[0].turn()
            left = end - time.monotonic()
            if held or left <= 0:
                return held
            soon = left if claim.next_in is None else min(left, max(claim.next_in, 0.01))
            await self.queue.wait(min(soon, 0.5))

    async def complete(self, task: HeldTask, result: Any = None) -> bool:
        """Settle a task with its result; False: its lease had ended, and nothing was stored."""
        return await settle(self.queue, task.outcome_done(result)) != "lost"

    async def fail(self, task: HeldTask, error: BaseException | str) -> str:
        """Settle a task that failed as the retry policy says: "retry", "dead", or "lost" with its lease."""
        chosen = self.settings
        return await settle(self.queue, task.outcome_failed(error, chosen.retry_limits, chosen.retry_delay))

    async def release(self, task: HeldTask) -> bool:
        """Give a task back as it was."""
        return await settle(self.queue, task.outcome_released()) != "lost"

    async def extend(self, *tasks: HeldTask, lease: float = LEASE) -> list[HeldTask]:
        """Keep tasks for another `lease` seconds from now; says which are lost or were cancelled."""
        lost: list[HeldTask] = []
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
        """Whoever works by hand may be the only one there is to give back what others have lost."""
        if time.monotonic() - self._reaped > REAP_EVERY:
            self._reaped = time.monotonic()
            await self.queue.reap()


def _paces(tasks: Sequence[Task], lanes: Sequence[str]) -> Mapping[str, Pace]:
    """What the tasks ask of their lanes; where they disagree the slowest counts."""
    paces: dict[str, Pace] = {}
    for task, lane in zip(tasks, lanes, strict=True):
        pace = task.pace()
        if pace is not None and (lane not in paces or paces[lane].spacing < pace.spacing):
            paces[lane] = pace
    return paces


def _letter(view: Any) -> DeadLetter:
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
