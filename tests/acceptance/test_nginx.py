"""The nginx configuration of deploy/nginx: what it counts, what it passes on, and what it sends to another server."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_queue
from server_process import ServerProcess, running_server
from servers.nginx import Nginx, container_nginx, nginx
from servers.redis import own_server
from wait import HANG, wait_until

OWN = "an-own-token-that-is-long-enough"
BEARER = {"Authorization": f"Bearer {OWN}"}
NO_TEMPLATE = {"template_id": "none", "target_url": "https://a.example/"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One that believes what nginx says of its clients, and logs each request."""
    queue = sample_queue.state_url(tmp_path_factory.mktemp("behind"))
    settings = {"access_log": True, "log_format": "json", "trusted_proxies": "127.0.0.1", "api_rate": "100000"}
    with running_server(queue, token=OWN, **settings) as made:
        yield made


def place(server: ServerProcess) -> str:
    return f"127.0.0.1:{server.port}"


@contextmanager
def asking(proxy: Nginx, **more: Any) -> Iterator[httpx.Client]:
    more = {"headers": BEARER, "timeout": HANG} | more
    with httpx.Client(base_url=proxy.url, verify=proxy.context, trust_env=False, **more) as client:
        yield client


@pytest.fixture(scope="module")
def proxy(server: ServerProcess) -> Iterator[Nginx]:
    with nginx([place(server)] * 2) as made:
        yield made


# Limits


def let_through(client: httpx.Client, method: str, path: str, count: int) -> tuple[int, float]:
    """How many of so many were not refused by nginx, and the seconds they took."""
    began = time.monotonic()
    answers = [client.request(method, path) for _ in range(count)]
    refused = [answer for answer in answers if answer.status_code == 429]
    for answer in refused:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == "urn:shoal:problem:rate-limited"
        assert int(answer.headers["retry-after"]) > 0
    return count - len(refused), time.monotonic() - began


@pytest.mark.parametrize(
    ("method", "path", "burst", "per_minute"),
    [("POST", "/api/scraping/start", 5, 10), ("GET", "/api/scraping/status/none", 10, 30)],
)
def test_jobs_are_counted_exactly_and_nothing_else_is(
    server: ServerProcess, method: str, path: str, burst: int, per_minute: int
) -> None:
    with nginx([place(server)] * 2) as proxy, asking(proxy) as client:
        passed, seconds = let_through(client, method, path, burst + 15)
        assert 1 + burst <= passed <= 1 + burst + seconds * per_minute / 60
        for free in ("/stats", "/api/v1/runs", "/api/health", "/nginx-health", "/api/scraping/other"):
            assert let_through(client, "GET", free, 20)[0] == 20, free


SPELLINGS = (
    "/api/scraping/start?again=1",
    "/api/%73craping/start",
    "/api/scraping%2fstart",
    "/api/scraping/%2e/start",
    "/api//scraping///start",
    "//api/scraping/start",
    "/stats/../api/scraping/start",
    "/api/v1/queue/..%2f..%2fscraping/start",
    "/api/scraping/start#fragment",
)


def test_a_limit_cannot_be_spelled_around(server: ServerProcess) -> None:
    """No spelling that nginx lets pass is the call for the server."""
    with nginx([place(server)] * 2, **{"rate=10r/m": "rate=1r/m", "burst=5 nodelay": ""}) as proxy:
        ask(proxy, post(line=b"POST /api/scraping/start HTTP/1.1"))
        for path in SPELLINGS:
            assert ask(proxy, post(line=f"POST {path} HTTP/1.1".encode()))[0] in (404, 429), path


# One reading of each request


def ask(proxy: Nginx, request: bytes) -> list[int]:
    """The statuses of all responses to what is written on one connection."""
    port = int(proxy.url.rpartition(":")[2])
    with (
        socket.create_connection(("127.0.0.1", port), HANG) as wire,
        proxy.context.wrap_socket(wire, server_hostname="localhost") as tls,
    ):
        tls.sendall(request)
        # A last request that closes the connection, unless what came before has ended it already.
        tls.sendall(b"GET /nginx-health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = b""
        try:
            while data := tls.recv(65_536):
                text += data
        except (ConnectionResetError, ssl.SSLError):
            pass
    return [int(part[:3]) for part in text.split(b"HTTP/1.1 ")[1:]]


INNER = b"GET /api/v1/smuggled HTTP/1.1\r\nHost: localhost\r\nX: "
CHUNKED = b"0\r\n\r\n" + INNER


RUNS = b"POST /api/v1/runs HTTP/1.1"


def post(*headers: bytes, body: bytes = b"", line: bytes = RUNS, end: bytes = b"\r\n") -> bytes:
    return end.join((line, b"Host: localhost", f"Authorization: Bearer {OWN}".encode(), *headers, b"", b"")) + body


TRICKS = {
    "CL.TE": post(b"Content-Length: %d" % len(CHUNKED), b"Transfer-Encoding: chunked", body=CHUNKED),
    "TE.CL": post(
        b"Transfer-Encoding: chunked", b"Content-Length: 4", body=b"%x\r\n%b\r\n0\r\n\r\n" % (len(INNER), INNER)
    ),
    "TE.TE, one of them hidden": post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: x", body=CHUNKED),
    "TE with a tab": post(b"Transfer-Encoding:\tchunked", b"Content-Length: %d" % len(CHUNKED), body=CHUNKED),
    "TE with a space before the colon": post(b"Transfer-Encoding : chunked", body=CHUNKED),
    "TE by obs-fold": post(b"X: y", b" Transfer-Encoding: chunked", body=CHUNKED),
    "TE with an unknown coding": post(b"Transfer-Encoding: xchunked", body=CHUNKED),
    "TE in HTTP/1.0": post(b"Transfer-Encoding: chunked", body=CHUNKED, line=b"POST /api/v1/runs HTTP/1.0"),
    "TE with an underscore": post(b"Transfer_Encoding: chunked", b"Content-Length: 0"),
    "two lengths": post(b"Content-Length: 0", b"Content-Length: %d" % len(INNER), body=INNER),
    "a length with a sign": post(b"Content-Length: +%d" % len(INNER), body=INNER),
    "a list of lengths": post(b"Content-Length: 0, %d" % len(INNER), body=INNER),
    "a NUL in a header": post(b"X: a\0b", b"Content-Length: 0"),
    "a bare CR in a header": post(b"X: a\rContent-Length: %d" % len(INNER)),
    "a chunk with a sign": post(b"Transfer-Encoding: chunked", body=b"-1\r\n" + INNER),
    "a chunk beyond 64 bits": post(b"Transfer-Encoding: chunked", body=b"fffffffffffffffff\r\n" + INNER),
    "CR LF in the path": post(b"Content-Length: 0", line=b"POST /x%0d%0aGET%20/api/v1/smuggled HTTP/1.1"),
    "a space in the path": post(b"Content-Length: 0", line=b"POST /x HTTP/1.1 /api/v1/smuggled HTTP/1.1"),
    "h2c": post(b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"),
    "h2c at the WebSocket": post(b"Connection: Upgrade", b"Upgrade: h2c", line=b"GET /ws HTTP/1.1"),
    "bare LF": post(b"Content-Length: 0", end=b"\n"),
    "two hosts": post(b"Host: evil.example", b"Content-Length: 0"),
    "no host": b"GET /stats HTTP/1.1\r\n\r\n",
    "CONNECT": post(line=b"CONNECT evil.example:443 HTTP/1.1"),
    "TRACE": post(line=b"TRACE / HTTP/1.1"),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_no_request_is_smuggled_in_another(server: ServerProcess, proxy: Nginx, trick: str) -> None:
    """Nginx refuses it, or the server sees what nginx saw: never the request inside."""
    statuses = ask(proxy, TRICKS[trick])
    refused = statuses[0] >= 400
    harmless = trick in ("bare LF", "h2c", "TE with an underscore", "TE in HTTP/1.0")
    assert refused or harmless, statuses
    assert 101 not in statuses
    flush(server, proxy)
    assert not [line for line in requests(server) if "smuggled" in line["path"] and line["path"][:2] != "/x"]


def requests(server: ServerProcess) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in list(server.log_lines) if line.startswith("{")]
    return [line for line in lines if line.get("event") == "request"]


def flush(server: ServerProcess, proxy: Nginx) -> dict[str, Any]:
    """A request of our own, seen in the log: what came before it is in there, too."""
    marker = f"/mark-{time.monotonic_ns()}"
    with asking(proxy, headers=BEARER | {"X-Forwarded-For": "6.6.6.6", "Forwarded": "for=6.6.6.6"}) as client:
        client.get(marker)
    return wait_until(lambda: next((line for line in requests(server) if line["path"] == marker), None))


def test_whom_a_request_is_from_is_said_by_nginx_alone(server: ServerProcess, proxy: Nginx) -> None:
    assert flush(server, proxy)["from"] == "127.0.0.1"


def test_the_name_in_the_request_line_counts_and_other_names_are_not_answered(proxy: Nginx) -> None:
    line = b"GET http://evil.example/nginx-health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert ask(proxy, line) == []
    assert ask(proxy, b"GET /nginx-health HTTP/1.1\r\nHost: evil.example\r\n\r\n") == []
    line = b"GET http://localhost/nginx-health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert ask(proxy, line) == [200, 200]


# One server dies in the middle of a request


@contextmanager
def dying_server() -> Iterator[str]:
    """Takes each request and resets its connection, as one that is killed while it works."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def take() -> None:
            while True:
                try:
                    wire, _ = listening.accept()
                except OSError:
                    return
                with wire:
                    wire.recv(65_536)
                    wire.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


KEYED = {"Idempotency-Key": "one"}
URLS = {"urls": ["https://a.example/"]}
REPEATED = [
    ("GET", "/stats", {}, None, 200),
    ("PUT", "/api/v1/none", {}, {}, 404),
    ("DELETE", "/api/v1/runs/none", {}, None, 404),
    ("POST", "/api/v1/runs", KEYED, URLS, 201),
    ("POST", "/api/scraping/start", KEYED, NO_TEMPLATE, 422),
    ("POST", "/api/crawl/batch", KEYED, {"urls": []}, 422),
    ("POST", "/api/v1/queue/none", {}, {}, 404),
    ("POST", "/api/v1/runs", {}, URLS, 503),
    ("POST", "/api/scraping/start", {}, NO_TEMPLATE, 503),
    ("POST", "/api/crawl/batch", {}, {"urls": []}, 503),
    ("POST", "/api/v1/hooks", KEYED, {}, 503),
    ("POST", "/api/v1/runs/none/pause", {}, None, 503),
    ("POST", "/api/v1/runs/none/tasks", KEYED, {}, 503),
]


@pytest.fixture(scope="module")
def half_dead(server: ServerProcess) -> Iterator[Nginx]:
    """The first of two servers dies of each request; the other one is asked only then."""
    first = "max_fails=0"
    with dying_server() as dying:
        places = {"10.0.0.11:8080 max_fails=1 fail_timeout=2s": f"{dying} {first}"}
        second = {"10.0.0.12:8080 max_fails=1": f"{place(server)} backup max_fails=1"}
        with nginx([], **places, **second) as made:
            yield made


@pytest.mark.parametrize(("method", "path", "headers", "document", "status"), REPEATED)
def test_only_what_may_be_repeated_is_sent_to_the_other_server(
    half_dead: Nginx, method: str, path: str, headers: dict[str, str], document: object, status: int
) -> None:
    with asking(half_dead) as client:
        answer = client.request(method, path, headers=headers, json=document)
    assert answer.status_code == status, answer.text
    if status == 503:
        assert answer.json()["type"] == "urn:shoal:problem:no-server"
        assert answer.headers["retry-after"] == "2"


def test_a_queue_that_is_away_is_said_by_the_servers_and_makes_none_of_them_dead(tmp_path: Path) -> None:
    """All of them answer 503 then, to probes as well; each goes on being asked, and gives its reason."""
    with ExitStack() as stack:
        queue = stack.enter_context(own_server())
        servers = [stack.enter_context(running_server(queue.url("n"), token=OWN, folder=tmp_path)) for _ in range(2)]
        proxy = stack.enter_context(nginx([place(it) for it in servers]))
        client = stack.enter_context(asking(proxy))
        queue.kill()
        wait_until(lambda: all(it.get("/ready").status_code == 503 for it in servers))
        for _ in range(8):
            assert client.get("/api/ready").json()["ready"] is False
            assert client.get("/stats").json()["type"] == "urn:shoal:problem:queue-unavailable"
            assert client.get("/api/health").status_code == 200
            assert client.get("/api/crawl/distributed/status").json()["distributed_available"] is False


def test_the_configuration_of_a_container_needs_no_rights_and_writes_only_below_tmp(server: ServerProcess) -> None:
    with container_nginx([place(server)] * 2) as url:
        assert httpx.get(f"{url}/nginx-health", trust_env=False).text == "ok\n"
        assert httpx.get(f"{url}/api/health", trust_env=False).json()["status"] == "ok"
