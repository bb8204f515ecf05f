"""Actions that people take on runs, tasks, hosts and workers; each is logged, and the latest are kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from shoal.control.scaling.scale_documents import ScaleRequest, write_request
from shoal.core.lane import INDEFINITELY, LaneState, WorkerStatus
from shoal.core.run import TASK_BITS, Run
from shoal.core.task import LaneChange, State
from shoal.errors import UsageError
from shoal.logs import log, redact
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue, RunAction, TaskFilter, TaskView
from shoal.runs.undo_cancel import undo_cancel

RING = "ring"
MAX_ACTIONS, MAX_TEXT = 200, 300  # actions, and letters of each of its words
MERGE_WINDOW = 3_600_000_000  # microseconds in which removals of one kind are one action
MAX_ATTEMPTS = 20  # of keeping an action in the ring, where many act at once
WINDOW, MAX_WINDOW = 4_000, 64_000  # tasks looked at in one question where a filter may match few
# The same where a pattern has so many letters: each URL may then take milliseconds.
MIN_WINDOW, LONG_PATTERN = 16, 64
# Seconds: a question that took less may look at twice as many, or at fewer.
FAST_QUERY, SLOW_QUERY = 0.02, 0.05
BATCH_SIZE = 500  # tasks changed in one question, so that others get a turn
REVIVE_BATCH = 2_000  # the same where nobody else asks this process
MAX_SECONDS = 20.0  # seconds that one request may change things for; the rest is for the next

WorkerAction = Literal["drain", "pause", ""]
ActionOrigin = Literal["command", "api", "page", "queue"]


class LoggedAction(msgspec.Struct, frozen=True, omit_defaults=True):
    at: int
    who: str
    what: str  # "pause", "revive", "park" …
    about: str  # the run, task, host or worker
    more: dict[str, Any] = {}
    via: str = ""  # how: command, api, page, or queue for a remote queue


class ChangedTasks(msgspec.Struct, frozen=True):
    """How many tasks were changed, or would be; `more`: there may be others, and asking again goes on."""

    count: int
    more: bool = False


class UserActions:
    """Takes actions on behalf of a user, and logs them."""

    def __init__(self, queue: Queue, who: str, via: ActionOrigin = "api") -> None:
        self._queue = queue
        self.who = who
        self._via = via

    async def control_run(self, run: Run, action: RunAction) -> Run:
        """pause, resume, cancel, or undo of a cancel."""
        changed = await (undo_cancel(self._queue, run) if action == "undo" else self._queue.set_run(run.id, action))
        await self.log_action(action, run.name)
        return changed

    async def set_workers(self, count: int | None) -> None:
        """Have the scaler keep so many workers; None: as many as it takes again."""
        await write_request(self._queue, ScaleRequest(count, self.who, await self._queue.now()))
        await self.log_action("scale", "workers", workers="auto" if count is None else count)

    async def purge(self, run: Run) -> None:
        """Remove a run that has ended, with its records."""
        if run.state not in ("finished", "cancelled"):
            raise UsageError(f"run {run.name} is {run.state}, and only ended runs can be removed", hint="cancel it")
        await self._queue.purge(run=run.id)
        await self.log_action("purge", run.name)

    async def revive(self, run: Run, where: TaskFilter = TaskFilter()) -> ChangedTasks:
        """Dead letters back to work."""

        async def revive(some: TaskFilter) -> int:
            return await self._queue.revive(run.id, some)

        changed = await self._in_batches(run, "dead", where, MAX_SECONDS, revive)
        await self.log_action("revive", run.name, count=changed.count, **filter_details(where))
        return changed

    async def drop(
        self,
        run: Run,
        where: TaskFilter = TaskFilter(),
        state: Literal["ready", "dead"] = "ready",
        seconds: float = MAX_SECONDS,
    ) -> ChangedTasks:
        """Give up what waits, or dead letters."""

        async def drop(some: TaskFilter) -> int:
            return await self._queue.drop(run.id, some, state=state, limit=BATCH_SIZE)

        changed = await self._in_batches(run, state, where, seconds, drop)
        await self.log_action("drop", run.name, count=changed.count, state=state, **filter_details(where))
        return changed

    async def _in_batches(
        self, run: Run, state: State, where: TaskFilter, seconds: float, change: Callable[[TaskFilter], Awaitable[int]]
    ) -> ChangedTasks:
        """Some at a time, so that others get their turn, for so long at most."""
        count, ends = 0, time.monotonic() + seconds
        for each in included_states(state):
            async for page in matching_tasks(self._queue, run, each, where):
                for first in range(0, len(page), BATCH_SIZE):
                    ids = tuple(view.id for view in page[first : first + BATCH_SIZE])
                    count += await change(TaskFilter(ids=ids))
                    await asyncio.sleep(0)
                if time.monotonic() > ends:
                    return ChangedTasks(count, more=True)
        return ChangedTasks(count)

    async def revive_task(self, run: Run, task: TaskView) -> int:
        revived = await self._queue.revive(run.id, TaskFilter(ids=(task.id,)))
        await self.log_action("revive", str(task.id), run=run.name, count=revived)
        return revived

    async def drop_task(self, run: Run, task: TaskView) -> int:
        state: Literal["ready", "dead"] = "dead" if task.state == "dead" else "ready"
        dropped = await self._queue.drop(run.id, TaskFilter(ids=(task.id,)), state=state, limit=1)
        await self.log_action("drop", str(task.id), run=run.name, count=dropped)
        return dropped

    async def park(self, host: str, seconds: float | None = None, reason: str = "parked by hand") -> None:
        held = INDEFINITELY if seconds is None else seconds
        await self._queue.set_lane(LaneChange(host, park_for=held, reason=reason))
        await self.log_action("park", host, seconds=seconds, reason=reason)

    async def release(self, host: str) -> None:
        await self._queue.set_lane(LaneChange(host, park_for=0.0))
        await self.log_action("release", host)

    async def change_lane(self, what: str, change: LaneChange) -> None:
        """Another change of one host, by its name."""
        await self._queue.set_lane(change)
        await self.log_action(what, change.lane)

    async def pace(self, host: str, *, spacing: float | None = None, limit: int | None = None) -> None:
        """Seconds between two requests, and requests at once; below 0 takes back what was set."""
        await self._queue.set_lane(LaneChange(host, spacing_override=spacing, limit=limit))
        details = {"reset": True} if (spacing, limit) == (-1.0, -1) else {"spacing": spacing, "limit": limit}
        await self.log_action("pace", host, **details)

    async def control_workers(self, statuses: Sequence[WorkerStatus], wanted: WorkerAction) -> list[str]:
        """drain, pause, or go on; says who will hear of it."""
        asked = [status.id for status in statuses if await self._queue.command_worker(status.id, wanted)]
        for id in asked:
            await self.log_action(wanted or "resume", id)
        return asked

    async def clear_seen(self, name: str) -> int:
        """Empty a seen-set; says how many URLs were in it."""
        count = await self._queue.clear_seen(name)
        await self.log_action("clear seen-set", name, count=count)
        return count

    async def clear_cache(self, *, host: str = "", keys: Sequence[bytes] = (), about: str = "") -> int:
        """Remove stored responses: with these keys, of a host, or all; says how many there were."""
        count = 0
        while some := await self._queue.cache_clear(host=host, keys=keys):
            count += some
        if count:
            await self.log_action("clear cache", about or host or "all hosts", count=count)
        return count

    async def forget_seen(self, name: str, digests: Sequence[bytes]) -> int:
        """Take tasks out of a seen-set; says how many were in it."""
        count = await self._queue.forget_seen(name, digests)
        await self.log_action("forget seen URLs", name, count=count)
        return count

    async def log_action(self, what: str, about: str, **more: Any) -> None:
        """Also for what was done elsewhere: a schedule paused, a template kept, a run submitted."""
        details = {name: _truncate(redact(value)) for name, value in more.items() if value not in (None, "", (), [])}
        log("action", who=self.who, what=what, about=about, via=self._via, **details)
        now, about = await self._queue.now(), _truncate(redact(about))
        await append_action(self._queue, LoggedAction(now, self.who, what, about, details, self._via))

    async def log_removal(self, what: str, about: str, count: int) -> None:
        """What a worker removes again and again is one action with a sum: the ring has room for others."""
        log("action", who=self.who, what=what, about=about, count=count)
        at = await self._queue.now()
        action = LoggedAction(at, self.who, what, _truncate(redact(about)), {"count": count})
        await append_action(self._queue, action, add_to_since=at - MERGE_WINDOW)


def _truncate(value: Any) -> Any:
    """No more of it than people read: the ring is looked at once a second."""
    return value[:MAX_TEXT] + "…" if isinstance(value, str) and len(value) > MAX_TEXT else value


async def append_action(queue: Queue, action: LoggedAction, add_to_since: int | None = None) -> None:
    """Append an action to the ring of recent ones; many may do so at once.

    add_to_since: its count is added to the same action by the same user, if there is one so young.
    """
    for turn in range(MAX_ATTEMPTS):
        document = await queue.document(kinds.ACTIONS, RING)
        known = _decode_actions(document.text if document else "")
        same = next((it for it in known if add_to_since is not None and _is_same(it, action, add_to_since)), None)
        if same is None:
            kept = [action, *known][:MAX_ACTIONS]
        else:
            kept = [_sum(it, action) if it is same else it for it in known]
        if await queue.compare_and_swap(
            kinds.ACTIONS, RING, msgspec.json.encode(kept).decode(), document.version if document else 0
        ):
            return
        await asyncio.sleep(0.005 * turn)
    log("action.not_kept", "warning", what=action.what, about=action.about)


def _is_same(known: LoggedAction, action: LoggedAction, since: int) -> bool:
    return known.at >= since and (known.who, known.what, known.about) == (action.who, action.what, action.about)


def _sum(known: LoggedAction, action: LoggedAction) -> LoggedAction:
    """With the time of the first, so that nobody is told of it again."""
    count = sum(int(it.more.get("count", 0)) for it in (known, action))
    return msgspec.structs.replace(known, more=known.more | {"count": count})


async def recent_actions(queue: Queue) -> tuple[list[LoggedAction], int]:
    """The latest, newest first, and a number that changes with them."""
    document = await queue.document(kinds.ACTIONS, RING)
    return (_decode_actions(document.text), document.version) if document else ([], 0)


def _decode_actions(text: str) -> list[LoggedAction]:
    try:
        return msgspec.json.decode(text, type=list[LoggedAction]) if text else []
    except msgspec.DecodeError:
        return []  # of another version


async def revive_dead_letters(queue: Queue, run: int, where: TaskFilter = TaskFilter()) -> int:
    """All dead letters that match, some at a time: as many as were dead at first, for some may die again."""
    dead, back = (await queue.stats(run)).dead, 0
    while some := await queue.revive(run, where, limit=min(REVIVE_BATCH, dead - back)):
        back += some
    return back


def included_states(state: State) -> tuple[State, ...]:
    """What waits for its time is given up with what is ready."""
    return ("ready", "delayed") if state == "ready" else (state,)


async def matching_tasks(
    queue: Queue, run: Run, state: State | None, where: TaskFilter, *, limit: int = 1000
) -> AsyncIterator[list[TaskView]]:
    """Tasks by ascending id, a page at a time, in questions that each look at a bounded number of them."""
    async for page, _ in scan_windows(queue, run, state, where, limit=limit):
        if page:
            yield page


async def scan_windows(
    queue: Queue, run: Run, state: State | None, where: TaskFilter, *, after: int = 0, limit: int = 1000
) -> AsyncIterator[tuple[list[TaskView], int]]:
    """The same with how far it has looked: the id to go on after; 0 at the end."""
    at = max(after, run.id << TASK_BITS)
    size = MIN_WINDOW if "*" in where.url and len(where.url) > LONG_PATTERN else WINDOW
    last = (run.id << TASK_BITS) + (await queue.stats(run.id)).seen
    narrow = where != TaskFilter() and not where.ids
    while True:
        upto = at + size if narrow and at + size < last else 0
        began = time.perf_counter()
        page = await queue.list_tasks(run.id, state=state, where=where, after=at, upto=upto, limit=limit)
        if len(page) >= limit:
            at = page[-1].id
        elif not upto:
            yield page, 0
            return
        else:
            at = upto
        took = time.perf_counter() - began
        yield page, at
        if took < FAST_QUERY:
            size = min(MAX_WINDOW, size * 2)
        elif took > SLOW_QUERY:
            size = max(MIN_WINDOW, size // 4)
        await asyncio.sleep(0)


async def count_tasks(
    queue: Queue, run: Run, state: Literal["ready", "dead"], where: TaskFilter, seconds: float = 0.5
) -> ChangedTasks:
    """How many a filter means, as far as can be told in so many seconds."""
    if where == TaskFilter():
        stats = await queue.stats(run.id)
        return ChangedTasks(stats.dead if state == "dead" else stats.ready)
    found, ends = 0, time.monotonic() + seconds
    for each in included_states(state):
        async for page, at in scan_windows(queue, run, each, where):
            found += len(page)
            if at and time.monotonic() > ends:
                return ChangedTasks(found, more=True)
    return ChangedTasks(found)


def parse_host(named: str) -> str:
    """The name of a host in what people type or paste."""
    return named.strip().lower().removeprefix("https://").removeprefix("http://").partition("/")[0]


async def find_host(queue: Queue, named: str) -> LaneState | None:
    """The lane people mean, a host or host@exit; None: no run has met it."""
    for name in dict.fromkeys((named, parse_host(named))):
        if found := await queue.lanes(names=(name,), limit=1):
            return found[0]
    return None


def find_workers(
    statuses: Sequence[WorkerStatus], named: str, *, hint: str = "give more of the name"
) -> list[WorkerStatus]:
    """The workers a word means: one, or all processes of one machine's worker; never of two."""
    found = [it for it in statuses if it.id == named] or [it for it in statuses if it.name == named]
    if found:
        return found
    found = [status for status in statuses if status.id.startswith(named)]
    names = sorted({status.name for status in found})
    if len(names) > 1:
        raise UsageError(f"{named} could be any of {', '.join(names[:5])}{' …' if len(names) > 5 else ''}", hint=hint)
    return found


def filter_details(where: TaskFilter) -> dict[str, Any]:
    given: dict[str, Any] = msgspec.to_builtins(where)
    if ids := given.pop("ids", ()):
        given["tasks"] = len(ids)
    return given
