"""Requests that wait for a queue are told when it is away."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shoal.settings import Settings
from shoal.web import limits
from shoal.web.limits import Limits
from shoal.web.room import Room


class Hall:
    """A room whose queue comes and goes."""

    def __init__(self) -> None:
        self.pulse = SimpleNamespace(away=False, why="Redis cannot be reached")
        self.gate = SimpleNamespace(caller=self.caller)

    async def caller(self, connection: Any) -> None:
        return None


async def ask(app: Any, hall: Hall, *, method: str = "GET") -> tuple[int, dict[str, Any]]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": method, "path": "/api/v1/runs", "headers": [], "query_string": b""}
    await Limits(app, cast(Room, hall), Settings())(scope, receive, send)
    body = b"".join(it.get("body", b"") for it in sent)
    return sent[0]["status"], json.loads(body) if body else {}


async def test_a_request_under_way_is_told_when_its_queue_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOK", 0.01)
    hall, ended = Hall(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        hall.pulse.away = True
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with asyncio.timeout(30):
        status, told = await ask(app, hall)
    assert (status, told["detail"]) == (503, "Redis cannot be reached") and ended.is_set()


async def test_an_answer_that_has_begun_is_not_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOK", 0.01)
    hall = Hall()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        hall.pulse.away = True
        await asyncio.sleep(0.05)
        await send({"type": "http.response.body", "body": b'{"whole": true}'})

    assert await ask(app, hall) == (200, {"whole": True})


async def test_what_changes_something_is_left_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LOOK", 0.01)
    hall = Hall()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        hall.pulse.away = True
        await asyncio.sleep(0.05)
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    assert await ask(app, hall, method="POST") == (201, {})
