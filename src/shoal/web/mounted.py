"""The mounted server: the dashboard and the API as an ASGI application inside another one."""

from __future__ import annotations

import asyncio
import logging
from typing import Self

from starlette.datastructures import MutableHeaders
from starlette.types import Message, Receive, Scope, Send

from shoal.config.load import Settings
from shoal.web.application import Application
from shoal.web.auth.authenticate import HOW_TO_ADD_ONE, is_local
from shoal.web.http.prefix import without_prefix
from shoal.web.http.problem import Problem
from shoal.web.http.security_headers import SECURITY_HEADERS

log = logging.getLogger("shoal.web")

LOCAL = "127.0.0.1"
FIRST_REQUEST_WAIT = 5.0  # seconds for the queue, before a request is told that it does not answer


class MountedServer:
    """An ASGI application that opens its queue with the first request, or when it is entered.

    An application that is mounted hears nothing of its host's start and end: `async with` it in the host's
    lifespan, and it gives back its connections before the host ends.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._application: Application | None = None
        self._opening: asyncio.Task[Application] | None = None

    async def __aenter__(self) -> Self:
        self._begin()
        assert self._opening is not None
        try:
            await self._opening
        except BaseException:
            self._application = self._opening = None
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        application, opening = self._application, self._opening
        self._application = self._opening = None
        if opening is not None and not opening.done():
            opening.cancel()
            await asyncio.wait([opening])
        if application is not None:
            await application.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        application = await self._opened()
        inner = without_prefix(scope)
        client = scope.get("client")
        is_remote = client is None or not is_local(client[0])
        if is_remote and application.authenticator is not None and not await application.authenticator.tokens():
            await _refuse(inner, receive, send)
            return
        await application.startup_gate(inner, receive, _with_headers(send))

    def _begin(self) -> Application:
        if self._application is None:
            self._application = Application(self._settings, host=LOCAL)
            self._opening = asyncio.create_task(self._application.__aenter__())
        return self._application

    async def _opened(self) -> Application:
        """The application, given a moment to open; without its queue it answers 503, and is tried again."""
        application, opening = self._begin(), self._opening
        if opening is not None and not opening.done():
            await asyncio.wait([opening], timeout=FIRST_REQUEST_WAIT)
        if opening is not None and opening.done() and (error := opening.exception()) is not None:
            log.warning("dashboard_failed", extra={"error": str(error), "hint": getattr(error, "hint", "")})
            if self._application is application:
                self._application = self._opening = None
        return application

    async def _live(self, receive: Receive, send: Send) -> None:
        """Served by itself, it is told when to start and to end."""
        while (message := await receive())["type"] == "lifespan.startup":
            await self.__aenter__()
            await send({"type": "lifespan.startup.complete"})
        await self.close()
        await send({"type": message["type"] + ".complete"})


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    problem = Problem(403, "token-required", "without a token, only this machine is answered", hint=HOW_TO_ADD_ONE)
    await problem.response(scope["path"])(scope, receive, send)


def _with_headers(send: Send) -> Send:
    """The headers that a server of our own adds to every answer."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message["headers"])
            for name, value in SECURITY_HEADERS:
                headers.setdefault(name, value)
        await send(message)

    return send_with_headers
