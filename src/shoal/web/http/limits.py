"""Request limits: rate, size and number. What is too much is refused at once, with a time to retry."""

from __future__ import annotations

import asyncio
import re
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
from shoal.web.http.slots import CallerSlots, HeldSlot, Pool, Slots
from shoal.web.http.startup_gate import PROBES

PROBE_CHECK_INTERVAL = 1.0  # seconds after which a request that waits looks whether its queue is away
# What takes as long as the client likes, each in a pool of its own: at once, and of one caller.
STREAMS = (1_000, 250)
BATCHES = (1_000, 250)
WORKER_WAITS = (8_000, 4_000)  # one for each process of a fleet, which may share a token
DOWNLOADS = (500, 100)
UPLOADS = (32, 16)
BURST, WAITERS = 5, 20  # times the rate at once, times the number at work waiting
# Wait by their nature.
EVENTS, BATCH, WORKER_WAIT = "/api/v1/events", "/api/crawl/batch", "/api/v1/queue/wait"
LONG_RUNNING = frozenset((EVENTS, BATCH, WORKER_WAIT))
is_upload = re.compile(r"/api/v1/runs/[^/]+/tasks").fullmatch
is_download = re.compile(
    r"/api/v1/runs/[^/]+/records\.(?:jsonl|csv)|/runs/[^/]+/dead\.(?:jsonl|csv)|/api/crawl/batch/[^/]+"
).fullmatch
# The last of these says itself whether there is a queue.
NEEDS_NO_QUEUE = ("/static/", "/metrics", "/api/crawl/distributed/status")
QUEUE_API = "/api/v1/queue/"  # workers and producers: as fast as the queue, with messages of their own size


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
        self._stream_slots = CallerSlots(*STREAMS)
        self._long_slots = {
            EVENTS: self._stream_slots, BATCH: CallerSlots(*BATCHES), WORKER_WAIT: CallerSlots(*WORKER_WAITS)
        }  # fmt: skip
        self._download_slots = CallerSlots(*DOWNLOADS)
        self._upload_slots = CallerSlots(*UPLOADS)
        self._body_reader = BodyReader()
        self._streaming: set[asyncio.Task[object]] = set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        try:
            path, waits_for_queue = scope["path"], not scope["path"].startswith(NEEDS_NO_QUEUE)
            if scope["type"] == "http" and scope["method"] == "GET" and path not in LONG_RUNNING and waits_for_queue:
                await self._fail_on_outage(scope, receive, send)
            else:
                await self._apply_limits(scope, receive, send)
        except Problem as problem:
            if scope["type"] == "websocket":
                await _refuse_websocket(problem, scope, receive, send)
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
        name = _caller_name(scope, caller)
        self._check_rate(scope, caller, name)
        size = 0
        slots = self._pool(scope)
        if slots is self._upload_slots:
            receive = limit_stream(receive)
        if scope["type"] == "http" and slots is not self._upload_slots and not path.startswith(QUEUE_API):
            # First: who sends slowly takes nobody's place.
            receive, size = await self._body_reader.read(scope, receive, authenticated=caller is not None)
        try:
            if not await slots.take(name):
                raise server_busy() if slots is self._short_slots else _too_many()
            held = HeldSlot(slots, name)
            try:
                await self._serve(held, scope, receive, send)
            finally:
                held.release()
        finally:
            self._body_reader.bytes_held -= size

    def _pool(self, scope: Scope) -> Pool:
        """What takes long has pools of its own: none of them can be filled at the cost of another."""
        path = scope["path"]
        if scope["type"] == "websocket":
            return self._stream_slots
        if path in self._long_slots:
            return self._long_slots[path]
        if scope["method"] == "POST" and is_upload(path):
            return self._upload_slots
        return self._download_slots if scope["method"] == "GET" and is_download(path) else self._short_slots

    def _check_rate(self, scope: Scope, caller: Caller | None, name: str) -> None:
        """Who asks too often waits."""
        if caller is not None and caller.has_scope("work") and scope["path"].startswith(QUEUE_API):
            return
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
                    self._streaming.add(task)
                    # It may take long, and others need not wait for it.
                    await held.move(self._download_slots, only_from=self._short_slots)
                await asyncio.sleep(0)  # others, too, have their turn between two pieces

        if scope["type"] == "http" and scope["path"] in LONG_RUNNING:
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

    def close(self) -> None:
        """The server stops: what would go on for ever ends now, as if it had ended by itself."""
        self._closing = True
        for task in self._streaming:
            task.cancel()


def _caller_name(scope: Scope, caller: Caller | None) -> str:
    """Whose share it is: a token is what counts, then the address."""
    client = scope.get("client")
    is_known = caller is not None and caller.via != "loopback"
    return f"token {caller.name}" if caller is not None and is_known else f"address {client[0] if client else ''}"


def _too_many() -> Problem:
    return Problem(
        429,
        "too-many-open",
        "too many streams, downloads or waiting requests of this kind are open",
        hint="close some of them, or retry later; limits are listed in docs/api.md",
        headers={"Retry-After": "5"},
    )


async def _refuse_websocket(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    if "websocket.http.response" in scope.get("extensions", {}):
        await problem.response(scope["path"])(scope, receive, send)
    else:
        await send({"type": "websocket.close", "code": 1013, "reason": problem.detail[:100]})


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
