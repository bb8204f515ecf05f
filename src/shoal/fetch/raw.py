"""Fetchers around a shelf of kept answers: one fills it, one asks only for what has changed, one asks nobody.

Redirects are answers like any other: each is kept under its own request, so that a chain can be walked again.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from shoal.core.page import Request, Response
from shoal.core.url import request_digest
from shoal.errors import FetchRefused

KEPT = "x-shoal-kept"  # a header of our own: how an answer that did not come over the wire was come by
NOT_KEPT = "not_kept"

SLOW_DOWN = frozenset((429, 503))  # these say nothing about the page

_OWN_CONDITIONS = frozenset(
    ("if-none-match", "if-modified-since", "if-match", "if-unmodified-since", "if-range", "range")
)
_OF_THE_BODY = frozenset(("content-length", "content-encoding", "content-type", "transfer-encoding"))


class Fetcher(Protocol):
    async def fetch(self, request: Request) -> Response: ...

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class Kept(Protocol):
    @property
    def response(self) -> Response: ...


class Shelf(Protocol):
    @property
    def full(self) -> bool: ...

    def put(self, run: str, digest: bytes, response: Response) -> None: ...

    async def sync(self) -> None: ...

    def get(self, run: str, digest: bytes) -> Response | None: ...

    def has(self, run: str, digest: bytes) -> bool: ...

    def latest(self, digest: bytes) -> Kept | None: ...


def key_of(request: Request) -> bytes:
    """The digest under which an answer to this request is kept; that of the task for a plain GET."""
    return request.key or request_digest(request.url)


class KeepingFetcher:
    """Puts every answer on the shelf; where a page is asked for again, the last one counts."""

    def __init__(self, fetcher: Fetcher, shelf: Shelf, run: str) -> None:
        self._fetcher = fetcher
        self._shelf = shelf
        self._run = run

    async def fetch(self, request: Request) -> Response:
        response = await self._fetcher.fetch(request)
        if response.status not in SLOW_DOWN:
            if self._shelf.full:  # a handler may fetch far more than its page before anything is settled
                await self._shelf.sync()
            self._shelf.put(self._run, key_of(request), response)
        return response

    def note_stall(self, seconds: float) -> None:
        self._fetcher.note_stall(seconds)

    async def close(self) -> None:
        await self._fetcher.close()


class RevalidatingFetcher:
    """Asks for a page only if it has changed since it was kept last, in whatever run."""

    def __init__(self, fetcher: Fetcher, shelf: Shelf) -> None:
        self._fetcher = fetcher
        self._shelf = shelf

    async def fetch(self, request: Request) -> Response:
        kept = self._kept(request)
        conditions = _conditions(kept) if kept is not None else ()
        if kept is None or not conditions:
            return await self._fetcher.fetch(request)
        asked = msgspec.structs.replace(request, headers=request.headers + conditions)
        response = await self._fetcher.fetch(asked)
        return _revalidated(kept, response) if response.status == 304 else response

    def _kept(self, request: Request) -> Response | None:
        """The whole answer, read before we ask: after a 304 there must be a page to go on with."""
        if request.method != "GET" or request.body:
            return None
        names = {name.lower() for name, _ in request.headers}
        if "authorization" in names or not _OWN_CONDITIONS.isdisjoint(names):
            return None
        kept = self._shelf.latest(key_of(request))
        if kept is None or not _may_be_reused(kept.response, names):
            return None
        return kept.response

    def note_stall(self, seconds: float) -> None:
        self._fetcher.note_stall(seconds)

    async def close(self) -> None:
        await self._fetcher.close()


def _may_be_reused(response: Response, sent: set[str]) -> bool:
    """Whether a kept answer is one that a 304 to a request with these headers could mean."""
    if response.status != 200:
        return False
    rules = _words(response, "cache-control")
    return not (
        "no-store" in rules
        or ("private" in rules and "cookie" in sent)
        or not _words(response, "vary").isdisjoint(sent | {"*", "cookie", "authorization"})
    )


def _words(response: Response, name: str) -> set[str]:
    """The words of a header that lists some, whatever it says about each ("private=x" is "private")."""
    lines = ",".join(value for key, value in response.headers if key == name).lower()
    return {word.partition("=")[0].strip() for word in lines.split(",")}


def _conditions(response: Response) -> tuple[tuple[str, str], ...]:
    found = (
        ("if-none-match", response.header("etag")),
        ("if-modified-since", response.header("last-modified")),
    )
    return tuple(pair for pair in found if pair[1])


def _revalidated(kept: Response, answer: Response) -> Response:
    """The kept page, with what the 304 says anew."""
    news = tuple(pair for pair in answer.headers if pair[0] not in _OF_THE_BODY)
    replaced = {name for name, _ in news} | {KEPT}
    headers = tuple(pair for pair in kept.headers if pair[0] not in replaced)
    return Response(
        answer.url,
        kept.status,
        (*headers, *news, (KEPT, "revalidated")),
        kept.body,
        answer.seconds,
        answer.address,
    )


class ReplayFetcher:
    """Answers from what one run kept, and never asks the web."""

    def __init__(self, shelf: Shelf, run: str) -> None:
        self._shelf = shelf
        self._run = run

    async def fetch(self, request: Request) -> Response:
        response = self._shelf.get(self._run, key_of(request))
        if response is None:
            raise FetchRefused(NOT_KEPT, f"run {self._run} did not keep {request.url}")
        return response

    def knows(self, lane: str, url: str) -> bool:
        """Whether a link leads to a page that was kept; to be asked where robots.txt is asked otherwise."""
        return self._shelf.has(self._run, request_digest(url))

    def note_stall(self, seconds: float) -> None: ...

    async def close(self) -> None: ...
