"""Fetcher: what a worker asks for pages. A cache or a browser is a fetcher too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoal.core.browser_step import BrowserStep
from shoal.core.page import Request, Response
from shoal.fetch.cookies import Cookie


class VisitNotWanted(Exception):
    """While a page waited for a browser it has become known that it needs none; nothing was asked of its site."""


Turn = Callable[[], Awaitable[None]]  # what must be waited for before a request goes out: its slot, and robots.txt
# Asked before each navigation, redirects included: waits for its turn, and says how to ask; raises what forbids it.
Navigate = Callable[[str], Awaitable[Request]]


class Fetcher(Protocol):
    async def fetch(self, request: Request) -> Response:
        """Exchange one request for one response, within every limit.

        Raises FetchFailed (may pass) or FetchRefused (never will), each with its cause:
        dns, connect, tls, timeout.{connect,headers,total,slow}, too_large, decode,
        bad_response, blocked.{private,scheme,proxy}. HTTP error statuses are answers, not errors.
        """
        ...

    def note_stall(self, seconds: float) -> None:
        """The event loop was blocked for so long: exchanges that timed out meanwhile are not to blame."""
        ...

    async def close(self) -> None: ...


async def no_turn() -> None:
    """For requests that wait for nobody."""


def always_wanted() -> bool:
    """For visits that are not called off."""
    return True


def no_count(size: int) -> None:
    """For visits of which nobody counts what is transferred."""


async def fetch_in_turn(fetcher: Fetcher, request: Request, turn: Turn) -> Response:
    """Fetch when it is the request's turn; a fetcher that may have the response already asks for its turn by itself."""
    own = getattr(fetcher, "fetch_in_turn", None)
    if own is not None:
        response: Response = await own(request, turn)
        return response
    await turn()
    return await fetcher.fetch(request)


class SessionCookies(Protocol):
    """The cookies of one session, which plain requests use, too."""

    def all(self) -> Iterable[Cookie]: ...

    def put(self, cookies: Iterable[Cookie], now: float) -> None:
        """In place of those like them; one that has expired only takes that away."""
        ...


@dataclass(frozen=True, slots=True)
class VisitRequest:
    """What is asked of a browser."""

    url: str
    navigate: Navigate
    steps: tuple[BrowserStep, ...] = ()
    session: str = ""  # whose context it is; those of others are never used
    cookies: SessionCookies | None = None
    counts_subrequests: bool = False
    count_bytes: Callable[[int], None] = no_count  # both ways, with all that the page loads
    is_wanted: Callable[[], bool] = always_wanted  # asked once a browser has room for it


class LivePage(Protocol):
    """A page that is open in a browser, until it is closed."""

    @property
    def response(self) -> Response: ...

    @property
    def subrequests(self) -> int:
        """To its own host, where they are counted."""
        ...

    @property
    def console_errors(self) -> Sequence[str]: ...

    async def perform(self, steps: Sequence[BrowserStep]) -> Response:
        """Take more steps; the page as it is then."""
        ...

    async def responses(self, pattern: str) -> list[Response]:
        """What its scripts were answered so far, by a pattern for the URL."""
        ...

    async def screenshot(self, *, full_page: bool = False) -> bytes: ...

    async def pdf(self) -> bytes: ...

    async def close(self) -> None: ...


class Browser(Protocol):
    """A fetcher whose pages stay open while they are worked on."""

    async def visit(self, request: VisitRequest) -> LivePage:
        """Raises as `Fetcher.fetch` does, with the further cause browser; VisitNotWanted; what `navigate` raises."""
        ...

    async def close(self) -> None: ...
