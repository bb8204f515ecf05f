"""Fetchers around a store of raw pages: one fills it, one refetches what has changed, one only replays it.

Redirects are responses like any other, stored under their own requests, so a chain can be walked again.
A page by a browser is stored as it was read there, under the request that it began with.
"""

from __future__ import annotations

from typing import Protocol

from msgspec.structs import replace

from shoal.core.cache_rules import CONDITIONAL_HEADERS, conditions, header_tokens, updated_headers
from shoal.core.page import RENDERED_HEADER, Request, Response
from shoal.core.request_header import names_identity
from shoal.core.url import request_digest
from shoal.errors import FetchRefused
from shoal.fetch.base import Fetcher, Turn, fetch_in_turn, no_turn

STORED_HEADER = "x-shoal-kept"  # a header of our own: where a response came from that was not fetched
NOT_STORED = "not_kept"

THROTTLE_STATUSES = frozenset((429, 503))  # these say nothing about the page


class StoredPage(Protocol):
    @property
    def response(self) -> Response: ...


class PageSink(Protocol):
    @property
    def is_full(self) -> bool: ...

    def put(self, run: str, digest: bytes, response: Response) -> None: ...

    async def sync(self) -> None: ...


class PageStore(PageSink, Protocol):
    def get(self, run: str, digest: bytes) -> Response | None: ...

    def has(self, run: str, digest: bytes) -> bool: ...

    def latest(self, digest: bytes) -> StoredPage | None: ...


def storage_key(request: Request) -> bytes:
    """The digest under which a response to this request is stored; that of the task for a plain GET."""
    return request.key or request_digest(request.url)


class RecordingFetcher:
    """Stores every response; where a page is asked for again, the last one counts."""

    def __init__(self, fetcher: Fetcher, store: PageSink, run: str, *, anonymous_only: bool = False) -> None:
        """anonymous_only: what was fetched with a login is not stored."""
        self._fetcher = fetcher
        self._store = store
        self._run = run
        self._anonymous_only = anonymous_only
        self.name = getattr(fetcher, "name", "http")  # in the counters of a run

    async def fetch(self, request: Request) -> Response:
        return await self.fetch_in_turn(request, no_turn)

    async def fetch_in_turn(self, request: Request, turn: Turn) -> Response:
        response = await fetch_in_turn(self._fetcher, request, turn)
        await self._record(request, response)
        return response

    async def record_rendered(self, request: Request, response: Response) -> None:
        """Store a page as a browser gave it; request: its first navigation."""
        await self._record(request, replace(response, headers=(*response.headers, (RENDERED_HEADER, "yes"))))

    async def _record(self, request: Request, response: Response) -> None:
        if response.status not in THROTTLE_STATUSES and not (self._anonymous_only and _has_login(request)):
            if self._store.is_full:  # a handler may fetch far more than its page before anything is settled
                await self._store.sync()
            self._store.put(self._run, storage_key(request), response)

    def note_stall(self, seconds: float) -> None:
        self._fetcher.note_stall(seconds)

    async def close(self) -> None:
        await self._fetcher.close()


def _has_login(request: Request) -> bool:
    """Whether a request says who asks. Cookies that a site gave to an unknown visitor do not."""
    return any(name.lower() != "cookie" and names_identity(name) for name, _ in request.headers)


class RevalidatingFetcher:
    """Asks for a page only if it has changed since it was last stored, in whatever run."""

    def __init__(self, fetcher: Fetcher, store: PageStore) -> None:
        self._fetcher = fetcher
        self._store = store

    async def fetch(self, request: Request) -> Response:
        stored = self._stored_response(request)
        asking = conditions(stored) if stored is not None else ()
        if stored is None or not asking:
            return await self._fetcher.fetch(request)
        asked = replace(request, headers=request.headers + asking)
        response = await self._fetcher.fetch(asked)
        return _revalidated(stored, response) if response.status == 304 else response

    def _stored_response(self, request: Request) -> Response | None:
        """The whole response, read before we ask: after a 304 there must be a page to go on with."""
        if request.method != "GET" or request.body:
            return None
        names = {name.lower() for name, _ in request.headers}
        if "authorization" in names or not CONDITIONAL_HEADERS.isdisjoint(names):
            return None
        stored = self._store.latest(storage_key(request))
        if stored is None or not _may_be_reused(stored.response, names):
            return None
        return stored.response

    def note_stall(self, seconds: float) -> None:
        self._fetcher.note_stall(seconds)

    async def close(self) -> None:
        await self._fetcher.close()


def _may_be_reused(response: Response, sent: set[str]) -> bool:
    """Whether a stored response is one that a 304 to a request with these headers could mean."""
    if response.status != 200 or response.was_rendered:  # what scripts made of it is not what the server means
        return False
    rules = header_tokens(response, "cache-control")
    return not (
        "no-store" in rules
        or ("private" in rules and "cookie" in sent)
        or not header_tokens(response, "vary").isdisjoint(sent | {"*", "cookie", "authorization"})
    )


def _revalidated(stored: Response, response: Response) -> Response:
    """The stored page, with the headers that the 304 updates."""
    headers = tuple(pair for pair in updated_headers(stored, response) if pair[0] != STORED_HEADER)
    return Response(
        response.url,
        stored.status,
        (*headers, (STORED_HEADER, "revalidated")),
        stored.body,
        response.seconds,
        response.address,
    )


class ReplayFetcher:
    """Replays what one run stored, and never asks the web."""

    name = "replay"  # in the counters of a run

    def __init__(self, store: PageStore, run: str) -> None:
        self._store = store
        self._run = run

    async def fetch(self, request: Request) -> Response:
        response = self._store.get(self._run, storage_key(request))
        if response is None:
            raise FetchRefused(NOT_STORED, f"run {self._run} did not save {request.url}")
        return response

    def knows(self, lane: str, url: str) -> bool:
        """Whether a link leads to a page that was stored; to be asked where robots.txt is asked otherwise."""
        return self._store.has(self._run, request_digest(url))

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...
