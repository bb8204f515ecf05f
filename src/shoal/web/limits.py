"""Limits: how much a server takes on at once. What is too much is told so at once, and when to come back."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.config import Settings
from shoal.errors import ShoalError
from shoal.web.access import Caller
from shoal.web.body import Bodies, counted, too_much
from shoal.web.bucket import Buckets
from shoal.web.problem import Problem
from shoal.web.room import Room

BODY = 1_000_000  # bytes of a request
LIST = 16_000_000  # bytes of one with up to 10,000 addresses
UPLOAD = 256_000_000  # bytes of a list of addresses that comes as a stream
BODY_WITHIN = 30.0  # seconds for a whole body that is no stream
LOOK = 1.0  # seconds after which a request that waits looks whether its queue is away
STREAMS = 1_000  # answers that take as long as the client likes, at once
UPLOADS = 32
BURST, QUEUED = 5, 20  # times the rate at once, times the number at work waiting
SILENT = frozenset(("/health", "/ready", "/api/health", "/api/ready"))  # answered whatever else happens
LONG = re.compile(r"/api/v1/events|/api/crawl/batch|/api/v1/queue/wait").fullmatch  # wait by their nature
LISTS = re.compile(r"/api/crawl/batch|/api/scraping/start|/api/v1/runs").fullmatch
UPLOADED = re.compile(r"/api/v1/runs/[^/]+/tasks").fullmatch
NEEDS_NO_QUEUE = ("/static/", "/metrics")
WORK = "/api/v1/queue/"  # workers and producers: as fast as the queue, with messages of their own size


class Slots:
    """So many at work, so many waiting in line."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._free = at_once
        self._most = waiting
        self._line: deque[asyncio.Future[None]] = deque()

    async def take(self) -> bool:
        """False if the line is too long already."""
        if self._free > 0:
            self._free -= 1
            return True
        if len(self._line) >= self._most:
            return False
        turn = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.free()  # it was our turn at the very moment
            raise
        return True

    def free(self) -> None:
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class Held:
    """The slot of one request, which may be given back before its end."""

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots

    def release(self) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.free()


class Limits:
    """Around the application: rate, size and number of requests."""

    def __init__(
        self,
        app: ASGIApp,
        room: Room,
        settings: Settings,
        told: Callable[[Request, Problem], Response] = lambda request, problem: problem.response(),
    ) -> None:
        """told: how a problem is told to whoever asked."""
        self._app = app
        self._told = told
        self._room = room
        self._rates = Buckets(settings.api_rate, settings.api_rate * BURST)
        self._work = Slots(settings.api_at_once, settings.api_at_once * QUEUED)
        self._long = Slots(STREAMS, 0)
        self._uploads = Slots(UPLOADS, 0)
        self._bodies = Bodies()
        self._streaming: set[asyncio.Task[object]] = set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in SILENT:
            await self._app(scope, receive, send)
            return
        try:
            if scope["type"] == "http" and scope["method"] == "GET" and not LONG(scope["path"]):
                await self._impatient(scope, receive, send)
            else:
                await self._limited(scope, receive, send)
        except Problem as problem:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1013, "reason": problem.detail[:100]})
            else:
                scope["app"] = self._app
                await self._told(Request(scope), problem)(scope, receive, send)

    async def _impatient(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Queues are patient with their servers; who asked before one was known to be away is told, too."""
        pulse, loop = self._room.pulse, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                later = loop.call_later(LOOK, lambda: look())

                def look() -> None:
                    nonlocal later
                    if pulse.away:
                        limit.reschedule(0)
                    else:
                        later = loop.call_later(LOOK, look)

                async def begun(message: Message) -> None:
                    later.cancel()
                    await send(message)

                try:
                    await self._limited(scope, receive, begun)
                finally:
                    later.cancel()
        except TimeoutError:
            raise self._away() from None

    def _away(self) -> Problem:
        return Problem(
            503,
            "queue-unavailable",
            self._room.pulse.why or "the queue does not answer",
            hint="ask again soon: the server goes on trying",
            headers={"Retry-After": "2"},
        )

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if self._room.pulse.away and not path.startswith(NEEDS_NO_QUEUE):
            raise self._away()
        caller = await self._caller(scope)
        self._check_rate(scope, caller)
        size = 0
        if scope["type"] == "websocket" or LONG(path):
            slots = self._long
        elif scope["method"] == "POST" and UPLOADED(path):
            slots = self._uploads
            receive = counted(receive)
        else:
            slots = self._work
        if scope["type"] == "http" and slots is not self._uploads and not path.startswith(WORK):
            # First: who sends slowly takes nobody's place.
            receive, size = await self._bodies.read(scope, receive, known=caller is not None)
        try:
            if not await slots.take():
                raise too_much()
            await self._serve(Held(slots), scope, receive, send)
        finally:
            self._bodies.kept -= size

    def _check_rate(self, scope: Scope, caller: Caller | None) -> None:
        """Who asks too often waits; a token is what counts, then the address."""
        if caller is not None and caller.may("work") and scope["path"].startswith(WORK):
            return
        client = scope.get("client")
        name = f"token {caller.name}" if caller is not None and caller.via != "loopback" else ""
        name = name or f"address {client[0] if client else ''}"
        wait = self._rates.take(name)
        if wait:
            raise Problem(
                429,
                "too-often",
                "requests come faster than this server takes them from one caller",
                hint="wait, or let the server take more: --api-rate",
                headers={"Retry-After": str(int(wait) + 1)},
            )

    async def _caller(self, scope: Scope) -> Caller | None:
        try:
            return await self._room.gate.caller(HTTPConnection(scope))
        except (Problem, ShoalError):
            return None  # said where the request is answered

    async def _serve(self, held: Held, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["slot"] = held
        task = asyncio.current_task()
        assert task is not None
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            kind = message["type"]
            started = started or kind == "http.response.start"
            await send(message)
            if kind == "http.response.body" and message.get("more_body"):
                if task not in self._streaming:
                    self._become_stream(task, held)
                await asyncio.sleep(0)  # others, too, have their turn between two pieces

        if scope["type"] == "http" and LONG(scope["path"]):
            self._streaming.add(task)
        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not self._closing:
                raise
            task.uncancel()
            await _end(send, scope, receive, started=started)
        finally:
            self._streaming.discard(task)
            held.release()

    def _become_stream(self, task: asyncio.Task[object], held: Held) -> None:
        """An answer that comes in pieces: it may take long, and others need not wait for it."""
        self._streaming.add(task)
        if len(self._streaming) <= STREAMS:
            held.release()

    def close(self) -> None:
        """The server stops: what would go on for ever ends now, as if it had ended by itself."""
        self._closing = True
        for task in self._streaming:
            task.cancel()


async def _end(send: Send, scope: Scope, receive: Receive, *, started: bool) -> None:
    if started:
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    problem = Problem(
        503,
        "stopping",
        "this server is stopping; what was begun goes on",
        hint="ask again, another may answer",
        headers={"Retry-After": "2"},
    )
    await problem.response(scope["path"])(scope, receive, send)
