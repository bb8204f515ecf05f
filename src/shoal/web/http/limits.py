"""Request limits: rate, size and number. What is too much is refused at once, with a time to retry."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from shoal.config.load import Settings
from shoal.errors import ShoalError
from shoal.web.auth.access import Caller
from shoal.web.context import ServerContext
from shoal.web.http.body import BodyReader, limit_stream, server_busy
from shoal.web.http.problem import Problem
from shoal.web.http.rate_bucket import TokenBuckets

PROBE_CHECK_INTERVAL = 1.0  # seconds after which a request that waits looks whether its queue is away
MAX_STREAMS = 1_000  # answers that take as long as the client likes, at once
MAX_UPLOADS = 32
BURST, WAITERS = 5, 20  # times the rate at once, times the number at work waiting
# Answered whatever else happens.
ALWAYS_ANSWERED = frozenset(("/health", "/ready", "/api/health", "/api/ready"))
# Wait by their nature.
is_long_running = re.compile(r"/api/v1/events|/api/crawl/batch|/api/v1/queue/wait").fullmatch
is_upload = re.compile(r"/api/v1/runs/[^/]+/tasks").fullmatch
# The last of these says itself whether there is a queue.
NEEDS_NO_QUEUE = ("/static/", "/metrics", "/api/crawl/distributed/status")
QUEUE_API = "/api/v1/queue/"  # workers and producers: as fast as the queue, with messages of their own size


class Slots:
    """So many at work, so many waiting in line."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._free = at_once
        self._max_waiting = waiting
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def take(self) -> bool:
        """False if the line is too long already."""
        if self._free > 0:
            self._free -= 1
            return True
        if len(self._waiters) >= self._max_waiting:
            return False
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release()  # it was our turn at the very moment
            raise
        return True

    def release(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


class HeldSlot:
    """The slot of one request, which may be given back before its end."""

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots

    def release(self) -> None:
        slots, self._slots = self._slots, None
        if slots is not None:
            slots.release()


class RequestLimits:
    """Around the application: rate, size and number of requests."""

    def __init__(
        self,
        app: ASGIApp,
        context: ServerContext,
        settings: Settings,
        problem_response: Callable[[Request, Problem], Response] = lambda request, problem: problem.response(),
    ) -> None:
        """problem_response: makes the response to a request that is refused."""
        self._app = app
        self._problem_response = problem_response
        self._context = context
        self._rate_limiter = TokenBuckets(settings.api_rate, settings.api_rate * BURST)
        self._short_slots = Slots(settings.api_at_once, settings.api_at_once * WAITERS)
        self._long_slots = Slots(MAX_STREAMS, 0)
        self._upload_slots = Slots(MAX_UPLOADS, 0)
        self._body_reader = BodyReader()
        self._streaming: set[asyncio.Task[object]] = set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in ALWAYS_ANSWERED:
            await self._app(scope, receive, send)
            return
        try:
            path, waits_for_queue = scope["path"], not scope["path"].startswith(NEEDS_NO_QUEUE)
            if scope["type"] == "http" and scope["method"] == "GET" and not is_long_running(path) and waits_for_queue:
                await self._fail_on_outage(scope, receive, send)
            else:
                await self._apply_limits(scope, receive, send)
        except Problem as problem:
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1013, "reason": problem.detail[:100]})
            else:
                scope["app"] = self._app
                await self._problem_response(Request(scope), problem)(scope, receive, send)

    async def _fail_on_outage(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503 as soon as the queue is known to be down, also to requests that came before that."""
        queue_probe, loop = self._context.queue_probe, asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as limit:
                timer = loop.call_later(PROBE_CHECK_INTERVAL, lambda: check_probe())

                def check_probe() -> None:
                    nonlocal timer
                    if queue_probe.is_down:
                        limit.reschedule(0)
                    else:
                        timer = loop.call_later(PROBE_CHECK_INTERVAL, check_probe)

                async def send_started(message: Message) -> None:
                    timer.cancel()
                    await send(message)

                try:
                    await self._apply_limits(scope, receive, send_started)
                finally:
                    timer.cancel()
        except TimeoutError:
            raise self._queue_unavailable() from None

    def _queue_unavailable(self) -> Problem:
        return Problem(
            503,
            "queue-unavailable",
            self._context.queue_probe.last_error or "the queue does not answer",
            hint="retry soon: the server keeps trying",
            headers={"Retry-After": "2"},
        )

    async def _apply_limits(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if self._context.queue_probe.is_down and not path.startswith(NEEDS_NO_QUEUE):
            raise self._queue_unavailable()
        caller = await self._caller(scope)
        self._check_rate(scope, caller)
        size = 0
        if scope["type"] == "websocket" or is_long_running(path):
            slots = self._long_slots
        elif scope["method"] == "POST" and is_upload(path):
            slots = self._upload_slots
            receive = limit_stream(receive)
        else:
            slots = self._short_slots
        if scope["type"] == "http" and slots is not self._upload_slots and not path.startswith(QUEUE_API):
            # First: who sends slowly takes nobody's place.
            receive, size = await self._body_reader.read(scope, receive, authenticated=caller is not None)
        try:
            if not await slots.take():
                raise server_busy()
            await self._serve(HeldSlot(slots), scope, receive, send)
        finally:
            self._body_reader.bytes_held -= size

    def _check_rate(self, scope: Scope, caller: Caller | None) -> None:
        """Who asks too often waits; a token is what counts, then the address."""
        if caller is not None and caller.has_scope("work") and scope["path"].startswith(QUEUE_API):
            return
        client = scope.get("client")
        name = f"token {caller.name}" if caller is not None and caller.via != "loopback" else ""
        name = name or f"address {client[0] if client else ''}"
        wait = self._rate_limiter.take(name)
        if wait:
            raise Problem(
                429,
                "rate-limited",
                "requests come faster than this server accepts from one caller",
                hint="wait, or raise the server's limit: --api-rate",
                headers={"Retry-After": str(int(wait) + 1)},
            )

    async def _caller(self, scope: Scope) -> Caller | None:
        try:
            return await self._context.authenticator.identify(HTTPConnection(scope))
        except (Problem, ShoalError):
            return None  # said where the request is answered

    async def _serve(self, held: HeldSlot, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["slot"] = held
        task = asyncio.current_task()
        assert task is not None
        started = False

        async def send_watched(message: Message) -> None:
            nonlocal started
            kind = message["type"]
            started = started or kind == "http.response.start"
            await send(message)
            if kind == "http.response.body" and message.get("more_body"):
                if task not in self._streaming:
                    self._become_stream(task, held)
                await asyncio.sleep(0)  # others, too, have their turn between two pieces

        if scope["type"] == "http" and is_long_running(scope["path"]):
            self._streaming.add(task)
        try:
            await self._app(scope, receive, send_watched)
        except asyncio.CancelledError:
            if not self._closing:
                raise
            task.uncancel()
            await _end(send, scope, receive, started=started)
        finally:
            self._streaming.discard(task)
            held.release()

    def _become_stream(self, task: asyncio.Task[object], held: HeldSlot) -> None:
        """An answer that comes in pieces: it may take long, and others need not wait for it."""
        self._streaming.add(task)
        if len(self._streaming) <= MAX_STREAMS:
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
        "server-stopping",
        "this server is shutting down; requests in progress are finished",
        hint="retry, another server may respond",
        headers={"Retry-After": "2"},
    )
    await problem.response(scope["path"])(scope, receive, send)
