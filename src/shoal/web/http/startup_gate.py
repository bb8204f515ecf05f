"""The startup gate: answers until the queue is reachable, then hands requests on to the application."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from shoal.web.http.problem import Problem

# Seconds for which a request waits: a queue that is there is open by then, and who starts is not noticed by clients.
OPENING = 2.0
# Answered at once, whatever else happens.
PROBES = frozenset(("/health", "/ready", "/api/health", "/api/ready"))


class StartupGate:
    def __init__(self, health: Mapping[str, object]) -> None:
        self._app: ASGIApp | None = None
        self._opened = asyncio.Event()
        self._health = health

    def open(self, app: ASGIApp) -> None:
        """The queue answers: from now on the application does."""
        self._app = app
        self._opened.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._app is None and not (scope["type"] == "http" and scope["path"] in PROBES):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._opened.wait(), OPENING)
        if self._app is not None:
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._not_ready(scope["path"], send)
        else:
            await send({"type": "websocket.close", "code": 1013})

    async def _not_ready(self, path: str, send: Send) -> None:
        if path in ("/health", "/api/health"):
            await _send_json(send, 200, dict(self._health), "application/json")
        elif path in ("/ready", "/api/ready"):
            found = {**self._health, "ready": False, "queue": "no answer yet", "stopping": False}
            await _send_json(send, 503, found, "application/json")
        else:
            problem = Problem(503, "queue-unavailable", "the queue does not respond yet", hint="retry")
            await _send_json(send, 503, problem.document(path), "application/problem+json")


async def _send_json(send: Send, status: int, document: Mapping[str, Any], kind: str) -> None:
    body = json.dumps(document).encode()
    headers = [(b"content-type", kind.encode()), (b"content-length", str(len(body)).encode())]
    headers += [(b"cache-control", b"no-store")] + ([(b"retry-after", b"1")] if status == 503 else [])
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
