"""Front: what a server says before its queue answers, and the way in to the application after that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from shoal.web.problem import Problem


class Front:
    """`inner` is the application; None as long as there is none."""

    def __init__(self, health: Mapping[str, object]) -> None:
        self.inner: ASGIApp | None = None
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.inner is not None:
            await self.inner(scope, receive, send)
        elif scope["type"] == "http":
            await self._wait(scope["path"], send)
        else:
            await send({"type": "websocket.close", "code": 1013})

    async def _wait(self, path: str, send: Send) -> None:
        if path in ("/health", "/api/health"):
            await _say(send, 200, dict(self._health), "application/json")
        elif path in ("/ready", "/api/ready"):
            found = {**self._health, "ready": False, "queue": "no answer yet", "stopping": False}
            await _say(send, 503, found, "application/json")
        else:
            problem = Problem(503, "queue-unavailable", "the queue does not answer yet", hint="ask again")
            await _say(send, 503, problem.document(path), "application/problem+json")


async def _say(send: Send, status: int, document: Mapping[str, Any], kind: str) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(b"cache-control", b"no-store")] + ([(b"retry-after", b"1")] if status == 503 else [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
