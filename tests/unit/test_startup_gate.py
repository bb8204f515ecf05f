"""The startup gate: who asks a server that has just started waits for its queue, and probes do not."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from starlette.responses import PlainTextResponse

from shoal.web.http import startup_gate
from shoal.web.http.startup_gate import StartupGate


def asking(gate: StartupGate) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://shoal.example")


async def test_a_request_that_comes_before_the_queue_is_open_waits_for_it() -> None:
    gate = StartupGate({"status": "ok"})
    async with asking(gate) as client:
        waiting = asyncio.create_task(client.get("/stats"))
        for _ in range(20):
            await asyncio.sleep(0)  # it has its turn, as often as it wants
        assert (await client.get("/api/health")).json() == {"status": "ok"}
        assert (await client.get("/api/ready")).status_code == 503
        assert not waiting.done()
        gate.open(PlainTextResponse("figures"))
        assert (await waiting).text == "figures"


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(startup_gate, "OPENING", 0.01)
    async with asking(StartupGate({})) as client:
        answer = await client.get("/stats")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:shoal:problem:queue-unavailable")
