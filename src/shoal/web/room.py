"""Room: what every request shares. It holds nothing that a second server beside it would miss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from shoal.config import Settings
from shoal.control.history import History, Ledger
from shoal.control.runs import find
from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.store.results import ResultStore
from shoal.view.snapshot import Lookout, Snapshot
from shoal.web.access import Caller, Scope
from shoal.web.crew import Crew
from shoal.web.live import Hub
from shoal.web.problem import no_such
from shoal.web.pulse import Pulse

T = TypeVar("T")
FRESH = 1.0  # seconds for which an answer of the queue is given to all who ask the same
KEPT = 1_000  # different questions whose answers are kept for that long


class Gate(Protocol):
    async def admit(self, connection: HTTPConnection, scope: Scope) -> Caller:
        """Who asks, if they may."""
        ...

    async def caller(self, connection: HTTPConnection) -> Caller | None:
        """Who asks, whatever they may."""
        ...

    async def still(self, caller: Caller) -> bool:
        """Whether somebody who was let in may stay."""
        ...

    def touched(self) -> None:
        """Tokens were changed."""
        ...

    def check_origin(self, connection: HTTPConnection) -> None:
        """Refuse what a page of another site asks for."""
        ...


@dataclass(slots=True)
class Answer:
    since: float  # when the oldest of what it is made of was asked for
    until: float
    slow: bool  # it changes so slowly that it may be older than what it is a part of
    answer: asyncio.Future[Any] = field(init=False)


_made_of: ContextVar[Answer | None] = ContextVar("made_of", default=None)


class Room:
    def __init__(
        self,
        queue: Queue,
        settings: Settings,
        *,
        gate: Gate,
        store: ResultStore | None = None,
        name: str = "",
    ) -> None:
        self.queue = queue
        self.settings = settings
        self.store = store
        self.gate = gate
        self.name = name
        self.crew = Crew(queue, settings)
        self.lookout = Lookout(queue, settings)
        self.history = History(queue, stale_after=settings.stale_after)
        self.hub = Hub(self)
        self.pulse = Pulse(queue)
        self._answers: dict[tuple[Any, ...], Answer] = {}
        self._sweep_at = 0.0

    async def once(self, key: tuple[Any, ...], ask: Callable[[], Awaitable[T]], fresh: float = FRESH) -> T:
        """Ask the queue, or share an answer at most `fresh` seconds old with all who asked the same."""
        now = time.monotonic()
        known = self._answers.get(key)
        if known is not None and now - known.since < fresh and not _failed(known.answer):
            shared: T = await _shared(known)
            return shared
        if now >= self._sweep_at or len(self._answers) >= KEPT:
            # Whoever asks for ever new pages must not fill the memory with those nobody will ask for again.
            self._answers = {k: it for k, it in self._answers.items() if now < it.until}
            self._sweep_at = now + FRESH
        known = Answer(now, now + fresh, fresh > FRESH)
        outside = _made_of.set(known)
        try:
            known.answer = asyncio.ensure_future(ask())
        finally:
            _made_of.reset(outside)
        self._answers[key] = known
        known.answer.add_done_callback(_failed)  # whoever asked may be gone: an error is then nobody's
        found: T = await _shared(known)
        return found

    async def snapshot(self) -> Snapshot:
        """The whole fleet, at most a second old."""
        return await self.once(("snapshot",), self.lookout.look)

    async def ledger(self) -> Ledger:
        """What was counted by all workers there ever were, at most a second old."""
        return await self.once(("ledger",), self.history.ledger)

    def touched(self) -> None:
        """Something was changed from here: who asks next sees it."""
        self._answers.clear()

    async def run(self, named: str) -> Run:
        """The run of exactly this name, or that people mean by it; 404."""
        found = await find(self.queue, named)
        if found is None:
            raise no_such("run", named, hint="GET /api/v1/runs lists them")
        return found


async def _shared(known: Answer) -> Any:
    """The answer; what is made of it is as old as it is."""
    found = await asyncio.shield(known.answer)
    whole = _made_of.get()
    if whole is not None and not known.slow:
        whole.since = min(whole.since, known.since)
    return found


def _failed(answer: asyncio.Future[Any]) -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)


def room_in(connection: HTTPConnection) -> Room:
    """The room of the server that this came to."""
    room: Room = connection.app.state.room
    return room


async def room_of(connection: HTTPConnection) -> Room:
    """The same as a dependency; async, because anything else is given to a thread, which takes long."""
    return room_in(connection)


In = Annotated[Room, Depends(room_of)]
