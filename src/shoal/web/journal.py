"""Journal: every request in the log, where somebody wants that: who asked for what, and what came of it."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.logs import redact

log = logging.getLogger("shoal.access")


class Journal:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        log.setLevel(logging.INFO)  # asked for by itself, whatever else is logged

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            self._note(scope, status, time.monotonic() - began)

    def _note(self, scope: Scope, status: int, seconds: float) -> None:
        query = scope["query_string"].decode("latin-1")
        client = scope.get("client")
        said = {
            "method": scope["method"],
            "path": redact(scope["path"] + (f"?{query}" if query else "")),
            "status": status,
            "ms": round(seconds * 1000, 1),
            "from": client[0] if client else "",
            "caller": getattr(scope.get("state", {}).get("caller"), "name", ""),
        }
        log.info("request", extra=said)
