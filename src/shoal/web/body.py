"""Bodies: what comes with requests, read whole before anybody works on it; limits for each, and for all."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Scope

from shoal.web.problem import Problem

USUAL = 1_000_000  # bytes of a request
LISTED = 8_000_000  # of one that may name ten thousand addresses
STRANGER = 16_000  # of one from nobody we know: enough to log in
UPLOAD = 256_000_000  # of a list of addresses that comes as a stream
ALL = 64_000_000  # of all that are being read or worked on
WITHIN = 30.0  # seconds
WITH_LISTS = re.compile(r"/api/crawl/batch|/api/v1/runs|/api/scraping/start|/submit").fullmatch


class Bodies:
    """`kept` is what all of them take at this moment."""

    def __init__(self) -> None:
        self.kept = 0

    async def read(self, scope: Scope, receive: Receive, *, known: bool) -> tuple[Receive, int]:
        """The request with its whole body at hand, and the bytes to give back when it is answered."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return receive, 0
        limit = (LISTED if WITH_LISTS(scope["path"]) else USUAL) if known else STRANGER
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limit:
            raise too_large(limit)
        parts: list[bytes] = []
        taken = 0
        try:
            async with asyncio.timeout(WITHIN):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return _given(message, receive), taken
                    part = message.get("body", b"")
                    taken += len(part)
                    self.kept += len(part)
                    if taken > limit:
                        raise too_large(limit)
                    if self.kept > ALL:
                        raise too_much()
                    parts.append(part)
                    more = message.get("more_body", False)
        except (Problem, asyncio.CancelledError):
            self.kept -= taken
            raise
        except TimeoutError:
            self.kept -= taken
            raise Problem(
                408, "too-slow", "the body of the request did not come in time", headers=CLOSE
            ) from None
        return _given({"type": "http.request", "body": b"".join(parts), "more_body": False}, receive), taken


CLOSE = {"Connection": "close"}


def counted(receive: Receive, limit: int = UPLOAD) -> Callable[[], Awaitable[Message]]:
    """A stream that may have so many bytes."""
    taken = 0

    async def read() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b"") or b"")
        if taken > limit:
            raise too_large(limit)
        return message

    return read


def _given(first: Message, then: Receive) -> Receive:
    waiting = [first]

    async def receive() -> Message:
        return waiting.pop() if waiting else await then()

    return receive


def too_large(limit: int) -> Problem:
    return Problem(
        413,
        "too-large",
        f"this request may have {limit:,} bytes",
        hint="send many addresses as a stream: POST /api/v1/runs/RUN/tasks",
        headers=CLOSE,
    )


def too_much() -> Problem:
    return Problem(
        429,
        "too-much-at-once",
        "this server has as much to do as it can",
        hint="ask again in a second",
        headers={"Retry-After": "1"},
    )
