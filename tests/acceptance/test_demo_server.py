"""The demo server on real sockets and as a real process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from urllib.request import urlopen

import pytest
import uvloop
from wait import HANG

from shoal.demo.messages import SiteResponse
from shoal.demo.server import Server, serve
from shoal.demo.site import Site

COMMAND = [sys.executable, "-m", "shoal.demo.server"]


class Client:
    """A connection that reads answers strictly by their framing."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, text: str) -> tuple[int, dict[str, str], bytes]:
        self.send(text)
        return await self.answer(head_only=text.startswith("HEAD"))

    def send(self, text: str) -> None:
        self.writer.write(text.replace("\n", "\r\n").encode())

    async def answer(self, *, head_only: bool = False) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = (line.partition(": ") for line in head[1:] if line)
        headers = {name: value for name, _, value in fields}
        status = int(head[0].split()[1])
        if head_only or status == 304:
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, await self.chunked()
        if "content-length" in headers:
            return status, headers, await self.reader.readexactly(int(headers["content-length"]))
        return status, headers, await self.reader.read()

    async def chunked(self) -> bytes:
        body = bytearray()
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            assert await self.reader.readexactly(2) == b"\r\n"
        assert await self.reader.readexactly(2) == b"\r\n"
        return bytes(body)

    async def ended(self) -> bool:
        return await self.reader.read(1) == b""


@asynccontextmanager
async def connected(server: Server) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(server.host, server.port)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


def get(target: str, *headers: str, method: str = "GET", version: str = "1.1") -> str:
    return f"{method} {target} HTTP/{version}\n" + "".join(f"{h}\n" for h in ("Host: demo", *headers)) + "\n"


class Fixed(Site):
    """A site that says one thing only."""

    def __init__(self, answer: SiteResponse) -> None:
        super().__init__(products=1, profiles=1)
        self.fixed = answer

    def answer(self, *request: object) -> SiteResponse:  # type: ignore[override]
        return self.fixed


Promise = Callable[[Server], Awaitable[None]]
PROMISES: list[Promise] = []


def promise(func: Promise) -> Promise:
    """Declare what must hold on every event loop."""
    PROMISES.append(func)
    return func


@promise
async def one_connection_serves_many_requests(server: Server) -> None:
    async with connected(server) as client:
        for path in server.site.all_paths()[:40]:
            status, headers, body = await client.ask(get(path))
            assert (status, headers["connection"]) == (200, "keep-alive")
            assert body == server.site.answer("GET", path, {"host": "demo"}).body
    assert set(server.hits.values()) == {1}


@promise
async def pipelined_requests_are_answered_in_order(server: Server) -> None:
    targets = ["/slow/120", "/health", "/big/64", "/drip/1", "/gone/1", "/catalogue/", "/slow/1", "/health"]
    async with connected(server) as client:
        client.send("".join(map(get, targets)))
        answers = [await client.answer() for _ in targets]
    assert [status for status, _, _ in answers] == [200, 200, 200, 200, 404, 200, 200, 200]
    assert b"120 ms" in answers[0][2]
    assert len(answers[2][2]) == 64 * 1024
    assert b"Drop 1." in answers[3][2]
    assert answers[7][2] == answers[1][2]


@promise
async def a_flood_of_pipelined_requests_is_answered_in_full(server: Server) -> None:
    async with connected(server) as client:
        # More than one read of the socket, so that the server must stop listening and go on again.
        client.send(get("/slow/50") + get("/catalogue/", "Padding: " + "x" * 500) * 3000)
        assert (await client.answer())[0] == 200
        for _ in range(3000):
            assert (await client.answer())[0] == 200
    assert server.hits["/catalogue/"] == 3000


@promise
async def a_request_may_arrive_byte_by_byte(server: Server) -> None:
    async with connected(server) as client:
        for letter in get("/health"):
            client.send(letter)
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.answer())[0] == 200


@promise
async def head_has_the_length_and_no_body(server: Server) -> None:
    async with connected(server) as client:
        for target in ("/catalogue/", "/big/64", "/empty", "/gone/1"):
            _, headers, body = await client.ask(get(target))
            _, again, _ = await client.ask(get(target, method="HEAD"))
            assert again == headers
            assert headers.get("content-length", str(len(body))) == str(len(body))


@promise
async def a_page_the_client_has_is_not_sent_again(server: Server) -> None:
    async with connected(server) as client:
        _, headers, _ = await client.ask(get("/catalogue/"))
        assert (await client.ask(get("/catalogue/", f"If-None-Match: {headers['etag']}")))[0] == 304
        assert (await client.ask(get("/health")))[0] == 200


@promise
async def a_slow_reader_gets_the_whole_of_a_big_page(server: Server) -> None:
    async with connected(server) as client:
        client.send(get("/big/12000"))
        await asyncio.sleep(0.1)  # the server fills every buffer and must wait for us
        _, _, body = await client.answer()
        assert len(body) == 12_000 * 1024
        assert (await client.ask(get("/health")))[0] == 200


@promise
async def a_client_that_does_not_read_costs_no_memory(server: Server) -> None:
    pulled = 0
    answer = server.site.answer("GET", "/big/60000")

    def counted() -> Iterator[bytes]:
        nonlocal pulled
        assert answer.chunks is not None
        for data in answer.chunks():
            pulled += len(data)
            yield data

    server.site = Fixed(replace(answer, chunks=counted))
    async with connected(server) as client:
        client.send(get("/big/60000"))
        await asyncio.sleep(0.2)  # nothing to wait for: the promise is that nothing happens
        assert 0 < pulled < 30_000 * 1024


@promise
async def an_old_client_gets_big_pages_until_the_end_of_the_connection(server: Server) -> None:
    async with connected(server) as client:
        _, headers, body = await client.ask(get("/big/100", "Connection: keep-alive", version="1.0"))
        assert (headers["connection"], len(body)) == ("close", 100 * 1024)


@promise
async def old_clients_keep_a_connection_only_if_they_ask(server: Server) -> None:
    async with connected(server) as client:
        assert (await client.ask(get("/health", "Connection: keep-alive", version="1.0")))[0] == 200
        assert (await client.ask(get("/health", version="1.0")))[1]["connection"] == "close"
        assert await client.ended()


@promise
async def close_closes(server: Server) -> None:
    async with connected(server) as client:
        assert (await client.ask(get("/health", "Connection: close")))[1]["connection"] == "close"
        assert await client.ended()


@promise
async def the_body_of_a_request_is_not_taken_for_the_next_one(server: Server) -> None:
    async with connected(server) as client:
        inner = get("/private/")
        length = len(inner.replace("\n", "\r\n"))
        client.send(get("/catalogue/", f"Content-Length: {length}", method="POST") + inner + get("/health"))
        assert (await client.answer())[0] == 405
        assert (await client.answer())[0] == 200
    assert server.hits["/private/"] == 0


@promise
async def what_is_not_http_ends_the_connection(server: Server) -> None:
    table = {
        "hello\n\n": 400,
        "GET /\n\n": 400,
        "GET / HTTP/3.0\n\n": 400,
        "GET nowhere HTTP/1.1\n\n": 400,
        "GET / HTTP/1.1\nno colon\n\n": 400,
        get("/", "Content-Length: -1"): 400,
        get("/", "Content-Length: 99999999"): 413,
        get("/", "Transfer-Encoding: chunked", method="POST"): 501,
        get("/", "Expect: 100-continue", "Content-Length: 9", method="POST"): 417,
        get("/" + "x" * 40_000): 431,
        "GET /" + "x" * 40_000: 431,
    }
    for text, status in table.items():
        async with connected(server) as client:
            assert (await client.ask(text))[0] == status, text[:40]
            assert await client.ended()
    assert not server.hits


@promise
async def an_address_in_the_form_for_proxies_is_understood(server: Server) -> None:
    async with connected(server) as client:
        status, _, body = await client.ask(get("http://demo.invalid/echo?a=1"))
        assert (status, json.loads(body)["query"]) == (200, {"a": "1"})


@promise
async def visits_are_counted_by_target_and_can_be_forgotten(server: Server) -> None:
    async with connected(server) as client:
        statuses = [(await client.ask(get("/flaky/1")))[0] for _ in range(3)]
        assert statuses == [500, 500, 200]
        assert server.hits == {"/flaky/1": 3}
        assert [target for _, target in server.log] == ["/flaky/1"] * 3
        assert json.loads((await client.ask(get("/_hits")))[2]) == {"/flaky/1": 3}
        assert len(json.loads((await client.ask(get("/_log")))[2])) == 3
        await client.ask(get("/_hits", method="DELETE"))
        assert (await client.ask(get("/flaky/1")))[0] == 500


@promise
async def slow_answers_do_not_hold_up_other_clients(server: Server) -> None:
    async with connected(server) as slow, connected(server) as quick:
        slow.send(get("/slow/5000"))
        await slow.writer.drain()
        assert (await quick.ask(get("/health")))[0] == 200


@promise
async def closing_cuts_what_is_under_way(server: Server) -> None:
    async with connected(server) as waiting, connected(server) as idle:
        waiting.send(get("/slow/20000"))
        assert (await idle.ask(get("/health")))[0] == 200
        await server.close()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await waiting.answer()
        with pytest.raises(OSError):
            await asyncio.open_connection(server.host, server.port)
        await server.close()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("kept", PROMISES, ids=lambda p: p.__name__)
def test_on_every_event_loop(kept, loop):
    async def run() -> None:
        async with await serve(Site(products=25, profiles=5)) as server:
            await asyncio.wait_for(kept(server), HANG)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def start(*arguments: str, stdin: int | None = subprocess.DEVNULL) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [*COMMAND, "--products", "25", *arguments], stdin=stdin, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def stop(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    process.communicate(timeout=HANG)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_prints_its_url_and_ends_cleanly(number, tmp_path):
    process, url = start("--port-file", str(tmp_path / "port"), "--seed", "3")
    with urlopen(url + "catalogue/") as answer:
        assert answer.read() == Site(seed=3, products=25).answer("GET", "/catalogue/").body
    assert url == f"http://127.0.0.1:{(tmp_path / 'port').read_text().strip()}/"
    assert stop(process, number) == 0


def test_the_command_ends_when_its_stdin_is_closed():
    process, url = start("--until-stdin-closes", stdin=subprocess.PIPE)
    with urlopen(url + "health") as answer:
        assert answer.status == 200
    process.communicate(timeout=HANG)
    assert process.returncode == 0


def test_a_killed_parent_leaves_no_server_behind():
    script = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen({[*COMMAND, '--until-stdin-closes']!r}, stdin=subprocess.PIPE)\n"
        "child.wait()\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline().startswith("http://127.0.0.1:")
    os.kill(parent.pid, signal.SIGKILL)
    assert parent.communicate(timeout=HANG)[0] == ""  # the end of file comes when the last holder of the pipe is gone


def test_a_port_in_use_is_said_in_one_line():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = subprocess.run([*COMMAND, "--port", str(port)], capture_output=True, text=True, timeout=HANG)
    assert done.returncode == 2
    assert f"cannot be served at 127.0.0.1 port {port}" in done.stderr
    assert done.stderr.count("\n") == 1
