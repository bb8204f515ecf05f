"""Fail-over: another server has taken over, and what it had not yet received is repeated and counted.

A replica that follows asynchronously lacks the last changes. Every process repeats what it was told is done in the
last seconds: repeating is harmless where nothing was lost. What was missing is noted in a document for `shoal doctor`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import msgspec

from shoal.core.task import Admission, Outcome, Task, Verdict
from shoal.errors import ShoalError
from shoal.logs import log
from shoal.queue.document_kinds import FAILOVER
from shoal.queue.recent_writes import Paces, RecentAdd, RecentSettle, RecentWrites
from shoal.queue.values import Document

LOG = "log"  # the name of the document
MAX_NOTES = 20
MAX_TASKS = 20  # named in a note
_TRIES = 30  # to write a document that others write, too


class FailoverNote(msgspec.Struct, frozen=True):
    """One fail-over, summed over all processes that noticed it."""

    at: int
    before: str
    after: str
    processes: int = 0
    repeated: int = 0  # outcomes and new tasks of the last seconds
    missing: int = 0  # of these, what the new server did not have; it was added again
    again: int = 0  # of these, tasks whose lease was missing, too: they are executed once more
    records: int = 0  # of outcomes that were missing
    window_ms: int = 0  # how far back the oldest change goes that was missing
    failed: int = 0  # what could not be repeated
    tasks: tuple[int, ...] = ()  # some of those that are executed once more

    def plus(self, other: FailoverNote) -> FailoverNote:
        return FailoverNote(
            at=min(self.at, other.at),
            before=self.before,
            after=self.after,
            processes=self.processes + other.processes,
            repeated=self.repeated + other.repeated,
            missing=self.missing + other.missing,
            again=self.again + other.again,
            records=self.records + other.records,
            window_ms=max(self.window_ms, other.window_ms),
            failed=self.failed + other.failed,
            tasks=(*self.tasks, *other.tasks)[:MAX_TASKS],
        )


@dataclass(frozen=True, slots=True)
class Verbs:
    """The verbs of a queue that recovery needs, as its engine does them."""

    add: Callable[[int, Sequence[Task], Paces], Awaitable[list[Admission]]]
    settle: Callable[[Sequence[Outcome], Paces], Awaitable[list[Verdict]]]
    document: Callable[[str, str], Awaitable[Document | None]]
    compare_and_swap: Callable[[str, str, str | None, int], Awaitable[Document | None]]
    now: Callable[[], Awaitable[int]]


class FailoverRecovery:
    def __init__(self, queue: Verbs) -> None:
        self.writes = RecentWrites()
        self._queue = queue
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, before: str, after: str) -> None:
        """Called where a connection leads to another server than the last one; others go on meanwhile."""
        task = asyncio.create_task(self._recover(before, after, self.writes.take()))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5.0)
        for task in self._tasks:
            task.cancel()

    async def _recover(self, before: str, after: str, writes: Sequence[RecentAdd | RecentSettle]) -> None:
        try:
            note = await self._repeat(before, after, writes)
            log("queue.failover", level="warning", **{name: getattr(note, name) for name in _COUNTS})
            await self._save(note)
        except ShoalError as error:  # the next server may be gone, too; whatever comes after it begins anew
            log("queue.failover", level="error", error=str(error))

    async def _repeat(self, before: str, after: str, writes: Sequence[RecentAdd | RecentSettle]) -> FailoverNote:
        note = FailoverNote(at=await self._queue.now(), before=before, after=after, processes=1)
        newest = writes[-1].at if writes else 0.0
        for write in writes:
            try:
                found = await self._one(write, before, after)
            except ShoalError:  # such as of a run that the new server does not know
                found = FailoverNote(at=note.at, before=before, after=after, failed=1)
            if found.missing or found.again:
                found = msgspec.structs.replace(found, window_ms=round((newest - write.at) * 1000) + 1)
            note = note.plus(msgspec.structs.replace(found, at=note.at))
        return note

    async def _one(self, write: RecentAdd | RecentSettle, before: str, after: str) -> FailoverNote:
        if isinstance(write, RecentAdd):
            answers = await self._queue.add(write.run, write.tasks, write.paces)
            return FailoverNote(
                0,
                before,
                after,
                repeated=len(answers),
                missing=answers.count("added"),
                failed=answers.count("rejected"),
            )
        verdicts = await self._queue.settle(write.outcomes, write.paces)
        pairs = [pair for pair in zip(write.outcomes, verdicts, strict=True) if pair[0].result != "part"]
        missing = [outcome for outcome, verdict in pairs if verdict == "ok"]
        again = [outcome for outcome, verdict in pairs if verdict == "stale"]
        return FailoverNote(
            0,
            before,
            after,
            repeated=len(pairs),
            missing=len(missing),
            again=len(again),
            records=sum(len(outcome.records) for outcome in (*missing, *again)),
            tasks=tuple(outcome.task for outcome in again[:MAX_TASKS]),
        )

    async def _save(self, note: FailoverNote) -> None:
        for _ in range(_TRIES):
            document = await self._queue.document(FAILOVER, LOG)
            notes = read_notes(document)
            same = next((old for old in notes if old.after == note.after), None)
            merged = [old for old in notes if old is not same] + [same.plus(note) if same else note]
            text = msgspec.json.encode(merged[-MAX_NOTES:]).decode()
            if await self._queue.compare_and_swap(FAILOVER, LOG, text, document.version if document else 0):
                return
            await asyncio.sleep(random.random() * 0.1)


_COUNTS = ("before", "after", "repeated", "missing", "again", "failed", "window_ms")


def read_notes(document: Document | None) -> list[FailoverNote]:
    """What is noted, the newest last; whoever may write to the queue may have written something else."""
    try:
        return msgspec.json.decode(document.text, type=list[FailoverNote]) if document else []
    except msgspec.MsgspecError:
        return []


class Recovering(Protocol):
    """An engine whose server may be replaced by another."""

    recovery: FailoverRecovery | None


E = TypeVar("E", bound=Recovering)
P = ParamSpec("P")
T = TypeVar("T")


def recovery_of(
    engine: E,
    *,
    add: Callable[[E, int, Sequence[Task], Paces], Awaitable[list[Admission]]],
    settle: Callable[[E, Sequence[Outcome], Paces], Awaitable[list[Verdict]]],
    document: Callable[[E, str, str], Awaitable[Document | None]],
    compare_and_swap: Callable[[E, str, str, str | None, int], Awaitable[Document | None]],
    now: Callable[[], Awaitable[int]],
) -> FailoverRecovery:
    """Recovery by the functions of a backend, which take its engine first."""
    verbs = Verbs(
        partial(add, engine), partial(settle, engine), partial(document, engine), partial(compare_and_swap, engine), now
    )
    return FailoverRecovery(verbs)


def remembered(
    function: Callable[Concatenate[E, P], Coroutine[Any, Any, list[T]]],
    remember: Callable[Concatenate[RecentWrites, list[T], P], None],
) -> Callable[Concatenate[E, P], Coroutine[Any, Any, list[T]]]:
    """The same verb, whose answers are remembered to repeat it after a fail-over."""

    @wraps(function)
    async def verb(engine: E, /, *args: P.args, **named: P.kwargs) -> list[T]:
        answers = await function(engine, *args, **named)
        if engine.recovery is not None:
            remember(engine.recovery.writes, answers, *args, **named)
        return answers

    return verb
