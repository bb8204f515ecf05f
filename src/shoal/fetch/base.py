"""Fetcher: what a worker asks for pages. A cache or a browser is a fetcher too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from shoal.core.page import Request, Response

Turn = Callable[[], Awaitable[None]]  # what must be waited for before a request goes out: its slot, and robots.txt


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


async def fetch_in_turn(fetcher: Fetcher, request: Request, turn: Turn) -> Response:
    """Fetch when it is the request's turn; a fetcher that may have the response already asks for its turn by itself."""
    own = getattr(fetcher, "fetch_in_turn", None)
    if own is not None:
        response: Response = await own(request, turn)
        return response
    await turn()
    return await fetcher.fetch(request)
