"""CachingFetcher: a fetcher around a fetcher that asks the site only for what the fleet does not have already."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec.structs import replace

from shoal.core import cache_rules
from shoal.core.page import Request, Response
from shoal.core.url import lane_of
from shoal.errors import ShoalError
from shoal.fetch.base import Fetcher, Turn, no_turn
from shoal.fetch.cached_response import MAX_SIZE, pack_response, unpack_response
from shoal.fetch.single_flight import SingleFlight

log = logging.getLogger("shoal.fetch")

KEYS_PER_LOOK = 500
HIT, MISS, REVALIDATED = "hit", "miss", "revalidated"  # Response.cache


class StoredEntry(Protocol):
    @property
    def age(self) -> float: ...
    @property
    def fresh_for(self) -> float: ...
    @property
    def data(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class CacheStore:
    """Where entries are, whatever keeps them. Either may raise ShoalError: a cache can be done without."""

    get: Callable[[Sequence[bytes]], Awaitable[Sequence[StoredEntry | None]]]
    look: Callable[[Sequence[bytes]], Awaitable[Sequence[StoredEntry | None]]]  # the same without data
    put: Callable[[bytes, str, str, bytes, float], Awaitable[bool]]  # key, host, URL, data, seconds it is fresh for


@dataclass(frozen=True, slots=True)
class _Found:
    response: Response
    is_fresh: bool


class CachingFetcher:
    """Requests with `cache` are answered from the store where they may be; all others pass through."""

    def __init__(
        self, fetcher: Fetcher, store: CacheStore, flights: SingleFlight, *, user_agent: str, max_body: int = MAX_SIZE
    ) -> None:
        self._fetcher = fetcher
        self._store = store
        self._flights = flights
        self._user_agent = user_agent
        self._max_body = max_body
        self._is_failing = False
        self.name = getattr(fetcher, "name", "http")  # in the counters of a run

    async def fetch(self, request: Request) -> Response:
        return await self.fetch_in_turn(request, no_turn)

    async def fetch_in_turn(self, request: Request, turn: Turn) -> Response:
        if not request.cache or not cache_rules.is_shareable_request(request):
            await turn()
            return await self._fetcher.fetch(request)
        key = cache_rules.cache_key(request, self._user_agent)
        found = await self._find(key, request)
        if found is not None and found.is_fresh:
            return replace(found.response, cache=HIT)
        async with self._flights.turn(key):
            found = await self._find(key, request)  # again: somebody may have been first
            if found is not None and found.is_fresh:
                return replace(found.response, cache=HIT)
            await turn()
            return await self._ask(key, request, found.response if found is not None else None)

    async def would_answer(self, requests: Sequence[Request]) -> list[bool]:
        """Which requests the cache would answer by itself: tasks that are added for these wait for no host."""
        chosen = [
            (at, cache_rules.cache_key(request, self._user_agent))
            for at, request in enumerate(requests)
            if request.cache and cache_rules.is_shareable_request(request)
        ]
        found = [False] * len(requests)
        try:
            for first in range(0, len(chosen), KEYS_PER_LOOK):
                some = chosen[first : first + KEYS_PER_LOOK]
                for (at, _), entry in zip(some, await self._store.look([key for _, key in some]), strict=True):
                    asked = requests[at].cache
                    found[at] = entry is not None and cache_rules.is_fresh(entry.age, entry.fresh_for, asked)
        except ShoalError as error:
            self._note_failure(error)
        return found

    async def forget(self, request: Request) -> None:
        """What was stored for a request is not the page it asks for."""
        if not request.cache or not cache_rules.is_shareable_request(request):
            return
        try:  # nothing can be read of an entry without data
            key = cache_rules.cache_key(request, self._user_agent)
            await self._store.put(key, lane_of(request.url), request.url, b"", 0.0)
        except ShoalError as error:
            self._note_failure(error)

    def note_stall(self, seconds: float) -> None:
        self._fetcher.note_stall(seconds)

    async def close(self) -> None:
        await self._fetcher.close()

    async def _find(self, key: bytes, request: Request) -> _Found | None:
        try:
            (entry,) = await self._store.get([key])
        except ShoalError as error:
            self._note_failure(error)
            return None
        self._is_failing = False
        response = unpack_response(entry.data, request.url, self._max_body) if entry is not None else None
        if entry is None or response is None or not cache_rules.is_shareable(response):
            return None
        return _Found(response, cache_rules.is_fresh(entry.age, entry.fresh_for, request.cache))

    async def _ask(self, key: bytes, request: Request, stored: Response | None) -> Response:
        conditions = cache_rules.conditions(stored) if stored is not None else ()
        asked = replace(request, headers=request.headers + conditions) if conditions else request
        response = await self._fetcher.fetch(asked)
        if response.status == 304 and stored is not None and conditions:
            response = replace(
                response,
                status=stored.status,
                headers=cache_rules.updated_headers(stored, response),
                body=stored.body,
                cache=REVALIDATED,
            )
        else:
            response = replace(response, cache=MISS)
        await self._keep(key, request, response)
        return response

    async def _keep(self, key: bytes, request: Request, response: Response) -> None:
        fresh_for = cache_rules.fresh_for(response, time.time())
        if not cache_rules.is_shareable(response) or not cache_rules.is_worth_keeping(
            response, fresh_for, request.cache
        ):
            self._flights.mark_unshared(key)
            return
        try:
            host = lane_of(request.url)
            if await self._store.put(key, host, request.url, pack_response(response), fresh_for):
                self._flights.mark_shared(key)
            else:
                self._flights.mark_unshared(key)  # it is too large
        except ShoalError as error:
            self._flights.mark_unshared(key)
            self._note_failure(error)

    def _note_failure(self, error: ShoalError) -> None:
        """Said once until it works again: the pages are fetched from their sites meanwhile."""
        if not self._is_failing:
            log.warning("cache_failing", extra={"error": str(error)})
        self._is_failing = True
