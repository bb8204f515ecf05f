"""The health port of a worker answers, whoever else holds connections to it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from wait import HANG, until

from shoal.view import small_server
from shoal.view.health_server import HealthServer
from shoal.view.small_server import MAX_CONNECTIONS


class Watched:
    def health(self) -> Mapping[str, object]:
        return {"status": "ok"}

    def ready(self) -> Mapping[str, object]:
        return {"ready": True}

    def metrics(self) -> str:
        return "x" * 20_000_000


@asynccontextmanager
async def health_port() -> AsyncIterator[HealthServer]:
    async with HealthServer(Watched()) as server:
        await server.start("127.0.0.1", 0)
        yield server


async def connect(server: HealthServer, count: int) -> list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    port = int(server.url.rpartition(":")[2])
    return [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]


async def close(clients: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]) -> None:
    for _, writer in clients:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@pytest.mark.parametrize("sent", [b"", b"GET /health HTTP/1.1\r\n"], ids=["silent", "half a request"])
async def test_hundreds_of_idle_connections_keep_nobody_out(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_server, "TIMEOUT", HANG)
    async with health_port() as server, httpx.AsyncClient(trust_env=False, timeout=HANG) as client:
        idle = await connect(server, 4 * MAX_CONNECTIONS)
        for _, writer in idle:
            writer.write(sent)
        for _ in range(3):
            assert (await client.get(f"{server.url}/health")).json() == {"status": "ok"}
        await until(lambda: server.server.connections <= MAX_CONNECTIONS)
        await close(idle)


async def test_slow_ones_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_server, "TIMEOUT", 0.2)
    async with health_port() as server:
        silent, unread = await connect(server, 2)
        unread[1].write(b"GET /metrics HTTP/1.1\r\n\r\n")  # and never reads all that
        assert await silent[0].read() == b""
        await until(lambda: not server.server.connections)
        await close([silent, unread])
