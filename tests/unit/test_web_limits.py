"""Requests that wait for a queue are told when it is away."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from wait import HANG

from shoal.config.settings import Settings
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
