"""Acting: what people do to runs, tasks, hosts and workers; logged, and the latest of it kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal

import msgspec

from shoal.core.lane import FOR_GOOD, LaneState, Mark
from shoal.core.run import TASK_BITS, Run
from shoal.core.task import LaneChange, State
from shoal.errors import Usage
from shoal.logs import log, redact
from shoal.queue.base import Queue, RunAction, TaskView, Where

KIND, RING = "actions", "ring"
KEPT, TOLD = 200, 300  # actions, and letters of each of its words
TRIES = 20  # of keeping an action in the ring, where many act at once
WINDOW, WIDEST = 4_000, 64_000  # tasks looked at in one question where a filter may match few
FEW, LONG = 16, 64  # the same where a pattern has so many letters: each address may then take milliseconds
QUICK, SLOW = 0.02, 0.05  # seconds: a question that took less may look at twice as many, or at fewer
AT_ONCE = 500  # tasks changed in one question, so that others get a turn
REVIVED = 2_000  # the same where nobody else asks this process
LONGEST = 20.0  # seconds that one request may change things for; the rest is for the next

Wanted = Literal["drain", "pause", ""]


class Action(msgspec.Struct, frozen=True, omit_defaults=True):
    at: int
    who: str
    what: str  # "pause", "revive", "park" …
    about: str  # the run, task, host or worker
    more: dict[str, Any] = {}


class Changed(msgspec.Struct, frozen=True):
    """How many tasks were changed, or would be; `more`: there may be others, and asking again goes on."""

    count: int
    more: bool = False


class Acting:
    """On behalf of somebody."""

    def __init__(self, queue: Queue, who: str) -> None:
        self._queue = queue
        self.who = who

    async def steer(self, run: Run, action: RunAction) -> Run:
        """pause, resume or cancel."""
        changed = await self._queue.set_run(run.id, action)
        await self._note(action, run.name)
        return changed

    async def purge(self, run: Run) -> None:
        """Remove a run that has ended, with its records."""
        if run.state not in ("finished", "cancelled"):
            raise Usage(
                f"run {run.name} is {run.state}, and only what has ended is removed", hint="cancel it"
            )
        await self._queue.purge(run=run.id)
        await self._note("purge", run.name)

    async def revive(self, run: Run, where: Where = Where(), seconds: float = LONGEST) -> Changed:
        """Dead letters back to work."""

        async def revive(some: Where) -> int:
            return await self._queue.revive(run.id, some)

        changed = await self._in_steps(run, "dead", where, seconds, revive)
        await self._note("revive", run.name, count=changed.count, **_given(where))
        return changed

    async def drop(
        self,
        run: Run,
        where: Where = Where(),
        state: Literal["ready", "dead"] = "ready",
        seconds: float = LONGEST,
    ) -> Changed:
        """Give up what waits, or dead letters."""

        async def drop(some: Where) -> int:
            return await self._queue.drop(run.id, some, state=state, limit=AT_ONCE)

        changed = await self._in_steps(run, state, where, seconds, drop)
        await self._note("drop", run.name, count=changed.count, state=state, **_given(where))
        return changed

    async def _in_steps(
        self, run: Run, state: State, where: Where, seconds: float, change: Callable[[Where], Awaitable[int]]
    ) -> Changed:
        """Some at a time, so that others get their turn, for so long at most."""
        count, ends = 0, time.monotonic() + seconds
        for each in meant(state):
            async for page in matching(self._queue, run, each, where):
                for first in range(0, len(page), AT_ONCE):
                    ids = tuple(view.id for view in page[first : first + AT_ONCE])
                    count += await change(Where(ids=ids))
                    await asyncio.sleep(0)
                if time.monotonic() > ends:
                    return Changed(count, more=True)
        return Changed(count)

    async def revive_task(self, run: Run, task: TaskView) -> int:
        revived = await self._queue.revive(run.id, Where(ids=(task.id,)))
        await self._note("revive", str(task.id), run=run.name, count=revived)
        return revived

    async def drop_task(self, run: Run, task: TaskView) -> int:
        state: Literal["ready", "dead"] = "dead" if task.state == "dead" else "ready"
        dropped = await self._queue.drop(run.id, Where(ids=(task.id,)), state=state, limit=1)
        await self._note("drop", str(task.id), run=run.name, count=dropped)
        return dropped

    async def park(self, host: str, seconds: float | None = None, reason: str = "parked by hand") -> None:
        held = FOR_GOOD if seconds is None else seconds
        await self._queue.set_lane(LaneChange(host, park_for=held, reason=reason))
        await self._note("park", host, seconds=seconds, reason=reason)

    async def release(self, host: str) -> None:
        await self._queue.set_lane(LaneChange(host, park_for=0.0))
        await self._note("release", host)

    async def pace(self, host: str, *, spacing: float | None = None, limit: int | None = None) -> None:
        """Seconds between two requests, and requests at once; below 0 takes back what was set."""
        await self._queue.set_lane(LaneChange(host, rule=spacing, limit=limit))
        said = {"reset": True} if (spacing, limit) == (-1.0, -1) else {"spacing": spacing, "limit": limit}
        await self._note("pace", host, **said)

    async def ask_workers(self, marks: Sequence[Mark], wanted: Wanted) -> list[str]:
        """drain, pause, or go on; says who will hear of it."""
        asked = [mark.id for mark in marks if await self._queue.ask_worker(mark.id, wanted)]
        for id in asked:
            await self._note(wanted or "resume", id)
        return asked

    async def did(self, what: str, about: str, **more: Any) -> None:
        """Tell of something that was done elsewhere: a schedule paused, a template kept, a run submitted."""
        await self._note(what, about, **more)

    async def _note(self, what: str, about: str, **more: Any) -> None:
        said = {name: _cut(redact(value)) for name, value in more.items() if value not in (None, "", (), [])}
        log("action", who=self.who, what=what, about=about, **said)
        await keep(self._queue, Action(await self._queue.now(), self.who, what, _cut(redact(about)), said))


def _cut(value: Any) -> Any:
    """No more of it than people read: the ring is looked at once a second."""
    return value[:TOLD] + "…" if isinstance(value, str) and len(value) > TOLD else value


async def keep(queue: Queue, action: Action) -> None:
    """Put an action into the ring; many may do so at once."""
    for turn in range(TRIES):
        paper = await queue.paper(KIND, RING)
        kept = [action, *_actions(paper.text if paper else "")][:KEPT]
        if await queue.swap(KIND, RING, msgspec.json.encode(kept).decode(), paper.version if paper else 0):
            return
        await asyncio.sleep(0.005 * turn)
    log("action.not_kept", "warning", what=action.what, about=action.about)


async def actions(queue: Queue) -> tuple[list[Action], int]:
    """The latest, newest first, and a number that changes with them."""
    paper = await queue.paper(KIND, RING)
    return (_actions(paper.text), paper.version) if paper else ([], 0)


def _actions(text: str) -> list[Action]:
    try:
        return msgspec.json.decode(text, type=list[Action]) if text else []
    except msgspec.DecodeError:
        return []  # of another version


async def revive_all(queue: Queue, run: int, where: Where = Where()) -> int:
    """All dead letters that match, some at a time: as many as were dead at first, for some may die again."""
    dead, back = (await queue.stats(run)).dead, 0
    while some := await queue.revive(run, where, limit=min(REVIVED, dead - back)):
        back += some
    return back


def meant(state: State) -> tuple[State, ...]:
    """What waits for its time is given up with what is ready."""
    return ("ready", "delayed") if state == "ready" else (state,)


async def matching(
    queue: Queue, run: Run, state: State | None, where: Where, *, after: int = 0, limit: int = 1000
) -> AsyncIterator[list[TaskView]]:
    """Tasks by ascending id, a page at a time, in questions that each look at a bounded number of them."""
    async for page, _ in windows(queue, run, state, where, after=after, limit=limit):
        if page:
            yield page


async def windows(
    queue: Queue, run: Run, state: State | None, where: Where, *, after: int = 0, limit: int = 1000
) -> AsyncIterator[tuple[list[TaskView], int]]:
    """The same with how far it has looked: the id to go on after; 0 at the end."""
    at = max(after, run.id << TASK_BITS)
    size = FEW if "*" in where.url and len(where.url) > LONG else WINDOW
    last = (run.id << TASK_BITS) + (await queue.stats(run.id)).seen
    narrow = where != Where() and not where.ids
    while True:
        upto = at + size if narrow and at + size < last else 0
        began = time.perf_counter()
        page = await queue.look(run.id, state=state, where=where, after=at, upto=upto, limit=limit)
        if len(page) >= limit:
            at = page[-1].id
        elif not upto:
            yield page, 0
            return
        else:
            at = upto
        took = time.perf_counter() - began
        yield page, at
        if took < QUICK:
            size = min(WIDEST, size * 2)
        elif took > SLOW:
            size = max(FEW, size // 4)
        await asyncio.sleep(0)


async def count(
    queue: Queue, run: Run, state: Literal["ready", "dead"], where: Where, seconds: float = 0.5
) -> Changed:
    """How many a filter means, as far as can be told in so many seconds."""
    if where == Where():
        stats = await queue.stats(run.id)
        return Changed(stats.dead if state == "dead" else stats.ready)
    found, ends = 0, time.monotonic() + seconds
    for each in meant(state):
        async for page, at in windows(queue, run, each, where):
            found += len(page)
            if at and time.monotonic() > ends:
                return Changed(found, more=True)
    return Changed(found)


def host_word(named: str) -> str:
    """The name of a host in what people type or paste."""
    return named.strip().lower().removeprefix("https://").removeprefix("http://").partition("/")[0]


async def host(queue: Queue, named: str) -> LaneState | None:
    """The host people mean; None: no run has met it."""
    for name in dict.fromkeys((named, host_word(named))):
        if found := await queue.lanes(names=(name,), limit=1):
            return found[0]
    return None


def choose(marks: Sequence[Mark], named: str) -> list[Mark]:
    """The workers a word means: one, or all processes of one machine's worker; never of two."""
    found = [mark for mark in marks if mark.id == named] or [mark for mark in marks if mark.name == named]
    if found:
        return found
    found = [mark for mark in marks if mark.id.startswith(named)]
    names = sorted({mark.name for mark in found})
    if len(names) > 1:
        raise Usage(
            f"{named} could be any of {', '.join(names[:5])}{' …' if len(names) > 5 else ''}",
            hint="give more of the name",
        )
    return found


def _given(where: Where) -> dict[str, Any]:
    given: dict[str, Any] = msgspec.to_builtins(where)
    if ids := given.pop("ids", ()):
        given["tasks"] = len(ids)
    return given
