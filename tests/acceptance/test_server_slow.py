"""Clients that are slow, huge or many: they are let go, and everybody else is served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from server_process import running_server
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from wait import HANG, until

from shoal.config.load import load
from shoal.web.http import body, guard, limits
from shoal.web.http.listen import bind_socket
from shoal.web.server import Server

POST = b"POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\n"
GET = b"GET /stats HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    patience = {"SWEEP_INTERVAL": 0.05, "HEAD_TIMEOUT": 0.5, "BODY_WINDOW": 0.5, "WRITE_TIMEOUT": 0.5}
    for name, seconds in patience.items():
        monkeypatch.setattr(guard, name, seconds)


@pytest.fixture
async def server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> AsyncIterator[Server]:
    """A server in this process, and some addresses that only tests need."""
    monkeypatch.chdir(tmp_path)
    settings = load(getattr(request, "param", {}), env={})
    async with Server(settings, listen_socket=bind_socket("127.0.0.1:0"), maintenance=False) as made:
        assert made.app is not None
        made.app.add_api_route("/endless", _endless)
        made.app.add_api_route("/ticking", _ticking)
        made.app.state.asked, made.app.state.go = asyncio.Semaphore(0), asyncio.Event()
        made.app.add_api_route("/held", _held)
        made.app.add_api_route("/api/v1/runs/{run}/tasks", _swallow, methods=["POST"])
        yield made


async def _endless() -> Response:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"x" * 100_000

    return StreamingResponse(parts(), media_type="text/event-stream")


async def _ticking() -> Response:
    async def parts() -> AsyncIterator[bytes]:
        while True:
            yield b"tick\n"
            await asyncio.sleep(0.01)

    return StreamingResponse(parts(), media_type="text/event-stream")


async def _held(request: Request) -> Response:
    request.app.state.asked.release()
    await request.app.state.go.wait()
    return Response("awake")


async def _swallow(run: str) -> Response:
    return Response("swallowed")


class Client:
    """A connection on which anything can be said, at any pace."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self._writer = reader, writer

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def heard(self) -> bytes:
        """Everything until the other end closes."""
        async with asyncio.timeout(HANG):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def status(self) -> int:
        async with asyncio.timeout(HANG):
            head = await self.reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1])

    async def answer(self) -> int:
        """The status of an answer that was read whole."""
        async with asyncio.timeout(HANG):
            head = await self.reader.readuntil(b"\r\n\r\n")
            await self.reader.readexactly(int(re.search(rb"content-length: (\d+)", head)[1]))  # type: ignore[index]
        return int(head.split()[1])

    def close(self) -> None:
        self._writer.close()


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[Client]:
    client = Client(*await asyncio.open_connection("127.0.0.1", port))
    try:
        yield client
    finally:
        client.close()


async def drip(client: Client, data: bytes, pause: float = 0.1) -> None:
    """One byte after the other, for ever."""
    for number in range(10_000):
        await client.say(data[number % len(data) :][:1])
        await asyncio.sleep(pause)


SLOW = {
    "says nothing": (b"", b""),
    "says its head byte by byte": (b"", GET),
    "sends empty lines": (b"", b"\r\n"),
    "sends empty lines after a request": (GET + b"\r\n", b"\r\n"),
    "begins a second head and stops": (GET + b"\r\n" + GET, b""),
    "sends its body byte by byte": (
        b"POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5000\r\n\r\n", b"x",
    ),
    "sends a chunked body byte by byte": (
        b"POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n", b"x",
    ),
    "never sends the body it promised": (
        b"POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n", b"",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("how", SLOW)
async def test_a_client_is_let_go_that(server: Server, how: str) -> None:
    first, then = SLOW[how]
    async with connected(server.port) as client:
        await client.say(first)
        dripping = asyncio.create_task(drip(client, then)) if then else None
        said = await client.heard()
        assert said.count(b"HTTP/1.1 408") == 1, said
        if dripping:
            dripping.cancel()


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_reads_nothing_is_let_go(server: Server) -> None:
    async with connected(server.port) as client:
        await client.say(b"GET /endless HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert await client.status() == 200
        await until(lambda: not any(isinstance(it, guard.GuardedConnection) for it in server.connections))


async def test_a_head_may_not_be_long(server: Server) -> None:
    for head in (b"X: " + b"x" * 20_000, b"\r\n".join(b"X%d: 1234567890" % n for n in range(2000))):
        async with connected(server.port) as client:
            await client.say(GET + head + b"\r\n\r\n")
            assert b" 431 " in (await client.heard()).partition(b"\r\n")[0]
    async with connected(server.port) as client:
        dripped = asyncio.create_task(client.say(b"GET /" + b"x" * 1_000_000))
        assert b" 431 " in (await client.heard()).partition(b"\r\n")[0]
        dripped.cancel()


@pytest.mark.parametrize(
    "how", [b"Content-Length: 1000001", b"Transfer-Encoding: chunked", b"Content-Length: 99999999999999"]
)
async def test_a_body_may_not_be_large(server: Server, how: bytes) -> None:
    async with connected(server.port) as client:
        await client.say(b"POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\n" + how + b"\r\n\r\n")
        sending = asyncio.create_task(client.say((b"fa00\r\n" + b"x" * 0xFA00 + b"\r\n") * 20))
        assert await client.status() == 413
        sending.cancel()


async def test_all_bodies_together_may_not_be_large_either(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body, "MAX_TOTAL", 2_500_000)
    whole = POST + b"Connection: close\r\nContent-Length: 900000\r\n\r\n" + b"x" * 900_000

    async def is_answered(status: int) -> bool:
        async with connected(server.port) as client:
            await client.say(whole)
            return await client.status() == status

    async with connected(server.port) as first, connected(server.port) as second:
        for client in (first, second):
            await client.say(whole[:-1])  # all but the end, which will not come
        await until(lambda: is_answered(429))  # when both have arrived
    await until(lambda: is_answered(422))  # whoever went has left nothing behind


async def test_a_body_may_come_after_its_answer(server: Server) -> None:
    head = b"POST /api/v1/runs/r/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 60000\r\n\r\n"
    async with connected(server.port) as client:
        for _ in range(3):
            await client.say(head + b"x" * 20_000)
            assert await client.answer() == 404
            await client.say(b"x" * 20_000)
            await asyncio.sleep(0.05)  # so that the rest comes by itself
            await client.say(b"x" * 20_000)
            await asyncio.sleep(0.05)
        await client.say(head + b"x" * 20_000)
        assert await client.answer() == 404
        await client.say(b"x" * 40_000 + GET + b"Connection: close\r\n\r\n")
        assert b" 200 OK" in await client.heard()


async def test_what_is_no_http_is_a_problem(server: Server) -> None:
    for words in (
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"CONNECT x:1 HTTP/1.1\r\n\r\n",
    ):
        async with connected(server.port) as client:
            await client.say(words)
            said = await client.heard()
            assert b" 400 " in said.partition(b"\r\n")[0] and b"application/problem+json" in said
            assert b"nosniff" in said


@pytest.mark.parametrize("server", [{"api_at_once": "2"}], indirect=True)
async def test_so_many_are_at_work_so_many_wait_and_the_others_are_told_when_to_come_back(server: Server) -> None:
    answers: list[bytes] = []

    async def ask() -> None:
        async with connected(server.port) as client:
            await client.say(b"GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            answers.append(await client.heard())

    asking = asyncio.gather(*(ask() for _ in range(60)))
    await until(lambda: len(answers) == 60 - (2 + 2 * limits.WAITERS))
    refused = answers[0]
    assert {said.split()[1] for said in answers} == {b"429"}
    server.app.state.go.set()  # type: ignore[union-attr]
    await asking
    assert [said.split()[1] for said in answers].count(b"200") == 2 + 2 * limits.WAITERS == 42
    assert b"retry-after: 1" in refused.lower() and b"application/problem+json" in refused
    assert await _status(server, "/health") == 200


@pytest.mark.parametrize("server", [{"api_at_once": "1"}], indirect=True)
async def test_streams_and_slow_senders_take_nobody_s_place(server: Server) -> None:
    async with contextlib.AsyncExitStack() as stack:
        for number in range(10):
            client = await stack.enter_async_context(connected(server.port))
            if number % 2:
                await client.say(b"GET /ticking HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            else:
                await client.say(b"POST /api/v1/tokens HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n")
        assert await _status(server, "/api/v1/tokens") == 200  # streams never end


@pytest.mark.parametrize("server", [{"api_rate": "1"}], indirect=True)
async def test_who_asks_too_often_waits(server: Server) -> None:
    began = time.monotonic()
    statuses = await asyncio.gather(*(_status(server, "/api/v1/tokens") for _ in range(40)))
    most = limits.BURST + time.monotonic() - began + 1
    assert limits.BURST <= statuses.count(200) <= most and set(statuses) == {200, 429}
    assert await _status(server, "/health") == 200


async def test_told_to_stop_it_ends_streams_and_finishes_requests(server: Server) -> None:
    async with connected(server.port) as stream, connected(server.port) as held:
        await stream.say(b"GET /ticking HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        assert await stream.status() == 200
        reading = asyncio.create_task(stream.heard())
        await held.say(b"GET /held HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await server.app.state.asked.acquire()  # type: ignore[union-attr]
        closing = asyncio.create_task(server.close())
        await asyncio.sleep(0.05)
        server.app.state.go.set()  # type: ignore[union-attr]
        await asyncio.wait_for(closing, HANG)
        assert (await held.heard()).endswith(b"awake")
        assert (await reading).endswith(b"0\r\n\r\n")  # as if it had ended by itself


async def _status(server: Server, path: str) -> int:
    async with connected(server.port) as client:
        await client.say(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        return await client.status()


async def test_two_hundred_slow_clients_are_closed_while_others_are_served(tmp_path: Path) -> None:
    with running_server(f"sqlite:///{tmp_path}/queue.db") as made:
        clients = [Client(*await asyncio.open_connection("127.0.0.1", made.port)) for _ in range(200)]
        try:
            await asyncio.gather(*(client.say(GET) for client in clients))
            closing = asyncio.gather(*(client.heard() for client in clients))
            while not closing.done():
                async with connected(made.port) as other:
                    await other.say(GET + b"\r\n")
                    assert await other.status() == 200
                await asyncio.sleep(0.25)
            assert all(b" 408 " in said.partition(b"\r\n")[0] for said in closing.result())
            assert json.loads(made.get("/ready").text)["ready"]
        finally:
            for client in clients:
                client.close()
