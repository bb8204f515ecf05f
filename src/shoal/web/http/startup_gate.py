"""The startup gate: answers until the queue is reachable, then hands requests on to the application."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from shoal.web.http.problem import Problem


class StartupGate:
    """`app` is the application; None until there is one."""

    def __init__(self, health: Mapping[str, object]) -> None:
        self.app: ASGIApp | None = None
        self._health = health

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.app is not None:
            await self.app(scope, receive, send)
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
