"""Requests that wait for a queue are told when it is away."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from wait import HANG

from shoal.config.settings import Settings
from shoal.web.auth.access import Caller
from shoal.web.context import ServerContext
from shoal.web.http import limits
from shoal.web.http.limits import RequestLimits


class FakeContext:
    """A context whose queue comes and goes."""

    def __init__(self) -> None:
        self.queue_probe = SimpleNamespace(is_down=False, last_error="Redis cannot be reached")
        self.authenticator = SimpleNamespace(identify=self.identify)

    async def identify(self, connection: Any) -> None:
        return None


class Clients:
    """Requests of several callers to one server, none of which is answered before `finish`."""

    def __init__(self) -> None:
        self.context = FakeContext()
        self.context.authenticator.identify = self._identify
        self._limits = RequestLimits(self._app, cast(ServerContext, self.context), Settings())
        self._finish, self._tasks = asyncio.Event(), list[asyncio.Task[None]]()
        self.sent: list[tuple[str, int]] = []  # paths and statuses

    async def _identify(self, connection: Any) -> Caller | None:
        name = connection.headers.get("caller")
        return Caller(name, frozenset({"read"})) if name else None

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] not in ("/stats", "/api/v1/runs"):
            await self._finish.wait()
        kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
        await send({"type": f"{kind}.start", "status": 200, "headers": []})
        await send({"type": f"{kind}.body", "body": b""})

    async def ask(self, path: str, caller: str = "", address: str = "192.0.2.1", method: str = "GET") -> int:
        """What is answered; 0 if it is at work."""
        told: list[Any] = []

        async def send(message: Any) -> None:
            told.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope = {
            "type": "websocket" if path == "/ws" else "http", "method": method, "path": path, "query_string": b"",
            "headers": [(b"caller", caller.encode())] if caller else [], "client": (address, 1),
            "extensions": {"websocket.http.response": {}},
        }  # fmt: skip
        task = asyncio.create_task(self._limits(scope, receive, send))
        self._tasks.append(task)
        for _ in range(5):
            await asyncio.sleep(0)
        if told and told[0]["status"] == 429:
            assert dict(told[0]["headers"])[b"retry-after"].isdigit()
        return told[0]["status"] if told else 0

    async def finish(self) -> None:
        self._finish.set()
        await asyncio.gather(*self._tasks)


async def ask(app: Any, context: FakeContext, *, method: str = "GET") -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": method, "path": "/api/v1/runs", "headers": [], "query_string": b""}
    await RequestLimits(app, cast(ServerContext, context), Settings())(scope, receive, send)
    body = b"".join(it.get("body", b"") for it in sent)
    return sent[0]["status"], json.loads(body) if body else {}


async def test_a_request_under_way_is_told_when_its_queue_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROBE_CHECK_INTERVAL", 0.01)
    context, ended = FakeContext(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        context.queue_probe.is_down = True
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(HANG):
        status, told = await ask(app, context)
    assert (status, told["detail"]) == (503, "Redis cannot be reached") and ended.is_set()


async def test_an_answer_that_has_begun_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROBE_CHECK_INTERVAL", 0.01)
    context = FakeContext()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        context.queue_probe.is_down = True
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b'{"whole": true}'})

    assert await ask(app, context) == (200, {"whole": True})


async def test_what_changes_something_is_left_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PROBE_CHECK_INTERVAL", 0.01)
    context = FakeContext()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        context.queue_probe.is_down = True
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    assert await ask(app, context, method="POST") == (201, {})


WAITING = [
    ("/api/v1/events", "GET", "STREAMS"),
    ("/ws", "GET", "STREAMS"),
    ("/api/crawl/batch", "POST", "BATCHES"),
    ("/api/v1/queue/wait", "POST", "WORKER_WAITS"),
    ("/api/v1/runs/books/records.csv", "GET", "DOWNLOADS"),
    ("/api/v1/runs/books/records.jsonl", "GET", "DOWNLOADS"),
    ("/runs/books/dead.csv", "GET", "DOWNLOADS"),
    ("/api/crawl/batch/b-1", "GET", "DOWNLOADS"),
    ("/api/v1/runs/books/tasks", "POST", "UPLOADS"),
]


@pytest.mark.parametrize(("path", "method", "pool"), WAITING)
async def test_a_caller_who_takes_all_they_can_stops_nobody_else(path: str, method: str, pool: str) -> None:
    clients, share = Clients(), getattr(limits, pool)[1]
    asked = [await clients.ask(path, "greedy", f"192.0.2.{number % 250}", method) for number in range(share + 5)]
    assert asked == [0] * share + [429] * 5
    assert await clients.ask(path, "other", method=method) == 0
    assert await clients.ask(path, "", method=method) == 0  # an address is a caller, too
    for other, how, theirs in WAITING:
        if theirs != pool:
            assert await clients.ask(other, "greedy", method=how) == 0, other
    assert await clients.ask("/stats", "greedy") == await clients.ask("/api/v1/runs", "other", method="POST") == 200
    await clients.finish()
    assert await clients.ask(path, "greedy", method=method) == 200  # what has ended makes room


async def test_a_full_pool_stops_no_other_pool() -> None:
    clients = Clients()
    asked = [await clients.ask("/api/v1/events", f"token-{number // 100}") for number in range(limits.STREAMS[0] + 1)]
    assert (asked.count(0), asked[-1]) == (limits.STREAMS[0], 429)
    for path, method, pool in WAITING:
        assert await clients.ask(path, "new", method=method) == (429 if pool == "STREAMS" else 0), path
    assert await clients.ask("/stats", "new") == 200
    await clients.finish()
