"""Fetcher: what a worker asks for pages. A cache or a browser is a fetcher too."""

from __future__ import annotations

from typing import Protocol

from shoal.core.page import Request, Response


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
