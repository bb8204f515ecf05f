"""The state that all requests of a server share. A second server beside this one would miss none of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends
from starlette.requests import HTTPConnection

from shoal.config.load import Settings
from shoal.control.actions import ActionOrigin, UserActions
from shoal.control.celery.engine import CeleryEngine
from shoal.control.history import History, LifetimeCounters
from shoal.control.queue_probe import QueueProbe
from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.runs.identity import resolve_run
from shoal.store.results.base import ResultBackend
from shoal.view.snapshot import FleetMonitor, Snapshot
from shoal.web.auth.access import Caller
from shoal.web.auth.authenticate import TokenAuthenticator
from shoal.web.event_hub import EventHub
from shoal.web.http.problem import not_found
from shoal.web.http.slots import CallerSlots
from shoal.web.server_worker_pool import ServerWorkerPool

T = TypeVar("T")
CACHE_SECONDS = 1.0  # for which one result is shared by all who ask for the same
MAX_CACHED = 1_000  # entries
REPEATS = (20, 10)  # repeated requests that wait for the first of them: at once, and of one caller


@dataclass(slots=True)
class CacheEntry:
    oldest_at: float  # when the oldest of its parts was computed
    expires_at: float
    is_slow: bool  # cached for longer than usual: it does not make an outer entry older
    future: asyncio.Future[Any] = field(init=False)


_outer_entry: ContextVar[CacheEntry | None] = ContextVar("outer_cache_entry", default=None)


class ServerContext:
    def __init__(
        self,
        queue: Queue,
        settings: Settings,
        *,
        authenticator: TokenAuthenticator,
        store: ResultBackend | None = None,
        name: str = "",
    ) -> None:
        self.queue = queue
        self.settings = settings
        self.store = store
        self.authenticator = authenticator
        self.name = name
        self.worker_pool = ServerWorkerPool(queue, settings)
        self.celery = CeleryEngine(queue, settings) if settings.engine == "celery" else None
        self.monitor = FleetMonitor(queue, settings)
        self.history = History(queue, stale_after=settings.stale_after)
        self.hub = EventHub(self)
        self.queue_probe = QueueProbe(queue)
        self.repeat_slots = CallerSlots(*REPEATS)
        self._cache: dict[tuple[Any, ...], CacheEntry] = {}
        self._sweep_at = 0.0

    async def cached(
        self, key: tuple[Any, ...], compute: Callable[[], Awaitable[T]], max_age: float = CACHE_SECONDS
    ) -> T:
        """Compute it, or share a result at most `max_age` seconds old with all who asked the same."""
        now = time.monotonic()
        entry = self._cache.get(key)
        if entry is not None and now - entry.oldest_at < max_age and not _has_failed(entry.future):
            shared: T = await _result_of(entry)
            return shared
        if now >= self._sweep_at or len(self._cache) >= MAX_CACHED:
            # Whoever asks for ever new pages must not fill the memory with those nobody will ask for again.
            self._cache = {k: it for k, it in self._cache.items() if now < it.expires_at}
            self._sweep_at = now + CACHE_SECONDS
        entry = CacheEntry(now, now + max_age, max_age > CACHE_SECONDS)
        token = _outer_entry.set(entry)
        try:
            entry.future = asyncio.ensure_future(compute())
        finally:
            _outer_entry.reset(token)
        self._cache[key] = entry
        entry.future.add_done_callback(_has_failed)  # whoever asked may be gone: an error is then nobody's
        found: T = await _result_of(entry)
        return found

    async def snapshot(self) -> Snapshot:
        """The whole fleet, at most a second old."""
        return await self.cached(("snapshot",), self.monitor.snapshot)

    async def lifetime_counters(self) -> LifetimeCounters:
        """What was counted by all workers there ever were, at most a second old."""
        return await self.cached(("ledger",), self.history.lifetime_counters)

    def actor(self, caller: Caller, via: ActionOrigin = "api") -> UserActions:
        return UserActions(self.queue, caller.name, via)

    def invalidate(self) -> None:
        """Empty the cache: something was changed through this server."""
        self._cache.clear()

    async def find_run(self, name: str) -> Run:
        """The run of exactly this name, or that people mean by it; 404."""
        found = await resolve_run(self.queue, name)
        if found is None:
            raise not_found("run", name, hint="GET /api/v1/runs lists them")
        return found


async def _result_of(entry: CacheEntry) -> Any:
    """The result of an entry; an outer entry that uses it becomes as old as it is."""
    found = await asyncio.shield(entry.future)
    outer = _outer_entry.get()
    if outer is not None and not entry.is_slow:
        outer.oldest_at = min(outer.oldest_at, entry.oldest_at)
    return found


def _has_failed(future: asyncio.Future[Any]) -> bool:
    return future.done() and (future.cancelled() or future.exception() is not None)


def context_of(connection: HTTPConnection) -> ServerContext:
    """The context of the server that this request came to."""
    context: ServerContext = connection.app.state.context
    return context


async def context_dependency(connection: HTTPConnection) -> ServerContext:
    """The same as a dependency; async, because anything else is given to a thread, which takes long."""
    return context_of(connection)


ContextDep = Annotated[ServerContext, Depends(context_dependency)]
