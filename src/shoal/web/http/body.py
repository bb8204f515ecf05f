"""Request bodies, read whole before the application sees them; limits for each, and for all together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

from starlette.types import Message, Receive, Scope

from shoal.web.http.problem import Problem

MAX_BODY = 1_000_000  # bytes of a request
MAX_LIST_BODY = 8_000_000  # of one that may name ten thousand URLs
MAX_ANONYMOUS_BODY = 16_000  # of one from nobody we know: enough to log in
MAX_UPLOAD = 256_000_000  # of a list of URLs that comes as a stream
MAX_TOTAL = 64_000_000  # of all that are being read or worked on
READ_TIMEOUT = 30.0  # seconds
takes_list = re.compile(r"/api/crawl/batch|/api/v1/runs|/api/scraping/start|/submit").fullmatch


class BodyReader:
    """`bytes_held` is what all bodies being read or worked on take now."""

    def __init__(self) -> None:
        self.bytes_held = 0

    async def read(self, scope: Scope, receive: Receive, *, authenticated: bool) -> tuple[Receive, int]:
        """The request with its whole body at hand, and the bytes to give back when it is answered."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return receive, 0
        limit = MAX_LIST_BODY if takes_list(scope["path"]) else MAX_BODY
        if not authenticated:
            limit = MAX_ANONYMOUS_BODY
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or int(length) > limit:
            raise request_too_large(limit)
        parts: list[bytes] = []
        taken = 0
        try:
            async with asyncio.timeout(READ_TIMEOUT):
                more = True
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        return _replay_first(message, receive), taken
                    part = message.get("body", b"")
                    taken += len(part)
                    self.bytes_held += len(part)
                    if taken > limit:
                        raise request_too_large(limit)
                    if self.bytes_held > MAX_TOTAL:
                        raise server_busy()
                    parts.append(part)
                    more = message.get("more_body", False)
        except (Problem, asyncio.CancelledError):
            self.bytes_held -= taken
            raise
        except TimeoutError:
            self.bytes_held -= taken
            raise Problem(408, "request-timeout", "the request body did not arrive in time", headers=CLOSE) from None
        return _replay_first({"type": "http.request", "body": b"".join(parts), "more_body": False}, receive), taken


CLOSE = {"Connection": "close"}


def limit_stream(receive: Receive, limit: int = MAX_UPLOAD) -> Callable[[], Awaitable[Message]]:
    """A stream that may have so many bytes."""
    taken = 0

    async def read() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b"") or b"")
        if taken > limit:
            raise request_too_large(limit)
        return message

    return read


def _replay_first(first: Message, then: Receive) -> Receive:
    waiting = [first]

    async def receive() -> Message:
        return waiting.pop() if waiting else await then()

    return receive


def request_too_large(limit: int) -> Problem:
    return Problem(
        413,
        "request-too-large",
        f"this request may have {limit:,} bytes",
        hint="send many URLs as a stream: POST /api/v1/runs/RUN/tasks",
        headers=CLOSE,
    )


def server_busy() -> Problem:
    return Problem(
        429, "server-busy", "this server is at its limit", hint="retry in a second", headers={"Retry-After": "1"}
    )
