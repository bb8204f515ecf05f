"""Room: what every request shares. It holds nothing that a second server beside it would miss."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from starlette.requests import HTTPConnection

from shoal.config import Settings
from shoal.control.runs import find
from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.store.results import ResultStore
from shoal.web.access import Caller, Scope
from shoal.web.problem import no_such

T = TypeVar("T")
FRESH = 1.0  # seconds for which an answer of the queue is given to all who ask the same
KEPT = 1_000  # different questions whose answers are kept for that long


class Gate(Protocol):
    async def admit(self, connection: HTTPConnection, scope: Scope) -> Caller: ...


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
        self._answers: dict[tuple[Any, ...], tuple[float, asyncio.Future[Any]]] = {}

    async def once(self, key: tuple[Any, ...], ask: Callable[[], Awaitable[T]], fresh: float = FRESH) -> T:
        """Ask the queue, or share an answer at most `fresh` seconds old with all who asked the same."""
        now = time.monotonic()
        known = self._answers.get(key)
        if known is not None and now - known[0] < fresh and not _failed(known[1]):
            return await asyncio.shield(known[1])
        if len(self._answers) >= KEPT:
            self._answers = {k: it for k, it in self._answers.items() if now - it[0] < FRESH}
        answer = asyncio.ensure_future(ask())
        answer.add_done_callback(_failed)  # whoever asked may be gone: an error is then nobody's
        self._answers[key] = (now, answer)
        return await asyncio.shield(answer)

    def touched(self) -> None:
        """Something was changed from here: who asks next sees it."""
        self._answers.clear()

    async def run(self, named: str) -> Run:
        """The run of exactly this name, or that people mean by it; 404."""
        found = await find(self.queue, named)
        if found is None:
            raise no_such("run", named, hint="GET /api/v1/runs lists them")
        return found


def _failed(answer: asyncio.Future[Any]) -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)


def room_of(connection: HTTPConnection) -> Room:
    """A dependency: the room of this server."""
    room: Room = connection.app.state.room
    return room
