"""The access log, if it is switched on: every request, its caller, status and duration."""

from __future__ import annotations

import logging
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.logs import redact

log = logging.getLogger("shoal.access")


class AccessLog:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        log.setLevel(logging.INFO)  # asked for by itself, whatever else is logged

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.monotonic(), 0

        async def send_and_note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_note_status)
        finally:
            self._log_request(scope, status, time.monotonic() - began)

    def _log_request(self, scope: Scope, status: int, seconds: float) -> None:
        query = scope["query_string"].decode("latin-1")
        client = scope.get("client")
        fields = {
            "method": scope["method"],
            "path": redact(scope["path"] + (f"?{query}" if query else "")),
            "status": status,
            "ms": round(seconds * 1000, 1),
            "from": client[0] if client else "",
            "caller": getattr(scope.get("state", {}).get("caller"), "name", ""),
        }
        log.info("request", extra=fields)
