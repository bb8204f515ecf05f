"""What happens, as it happens: over SSE and a WebSocket, the same for everybody who watches."""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import sample_queue
from server_process import ServerProcess, running_server
from wait import HANG, wait_until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    sample_queue.create(tmp_path, "r1", done=3, dead=2, ready=5)
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance", api_rate="100000") as made:
        yield made


@contextmanager
def events(server: ServerProcess, query: str = "") -> Iterator[Iterator[dict[str, Any]]]:
    with server.client.stream("GET", f"/api/v1/events{query}") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")

        def read() -> Iterator[dict[str, Any]]:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

        yield read()


def test_the_fleet_is_told_at_once_and_what_changes_soon_after(server: ServerProcess) -> None:
    with events(server) as stream:
        first = next(stream)
        assert first["event"] == "fleet"
        assert first["data"]["totals"]["done"] == 3
        server.post("/api/v1/runs/r1/pause")
        seen: dict[str, dict[str, Any]] = {}
        while not {"state", "action"} <= seen.keys():
            event = next(stream)
            seen[event["event"]] = event["data"]
        assert (seen["state"]["run"], seen["state"]["to"]) == ("r1", "paused")
        assert (seen["action"]["what"], seen["action"]["about"]) == ("pause", "r1")


def test_a_run_is_told_as_its_status_is(server: ServerProcess) -> None:
    with events(server, "?topic=run:r1") as stream:
        event = next(stream)
        assert event["event"] == "run"
        status = server.ask("/api/v1/runs/r1")
        assert {name: event["data"][name] for name in ("name", "done", "dead", "ready", "records")} == {
            name: status[name] for name in ("name", "done", "dead", "ready", "records")
        }
    assert server.get("/api/v1/events?topic=run:nobody").status_code == 404
    assert server.get("/api/v1/events?topic=nonsense").status_code == 422


def test_a_websocket_carries_the_same_events(server: ServerProcess) -> None:
    place = server.url.replace("http", "ws")
    with connect(f"{place}/ws?topic=fleet&topic=run:r1") as wire:
        kinds = {json.loads(wire.recv(timeout=HANG))["event"] for _ in range(2)}
        assert kinds == {"fleet", "run"}
        wire.send("anything")
        assert json.loads(wire.recv(timeout=HANG))["data"]
    for wrong in ("/ws?topic=run:nobody", "/ws?topic=%00"):
        with pytest.raises(InvalidStatus):
            connect(place + wrong).__enter__()


def test_a_page_of_another_site_gets_no_websocket(server: ServerProcess) -> None:
    with pytest.raises(InvalidStatus):
        connect(server.url.replace("http", "ws") + "/ws", origin="https://evil.example").__enter__()


def test_nobody_gets_a_stream_without_a_token_where_one_is_asked_for(tmp_path: Path) -> None:
    with running_server(sample_queue.state_url(tmp_path), "--no-maintenance", token="t" * 20) as server:
        assert httpx.get(f"{server.url}/api/v1/events", trust_env=False).status_code == 401
        with pytest.raises(InvalidStatus):
            connect(server.url.replace("http", "ws") + "/ws").__enter__()
        headers = {"Authorization": f"Bearer {server.token}"}
        with connect(server.url.replace("http", "ws") + "/ws", additional_headers=headers) as wire:
            assert json.loads(wire.recv(timeout=HANG))["event"] == "fleet"


def test_two_hundred_who_watch_are_told_of_one_look_a_second(server: ServerProcess) -> None:
    wires = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    chosen = selectors.DefaultSelector()
    heard = dict.fromkeys(wires, 0)
    try:
        for wire in wires:
            wire.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            wire.setblocking(False)
            chosen.register(wire, selectors.EVENT_READ)

        def all_heard() -> bool:
            for key, _ in chosen.select(0.2):
                wire = key.fileobj
                assert isinstance(wire, socket.socket)
                heard[wire] += wire.recv(1 << 20).count(b"event: fleet")
            return min(heard.values()) >= 4

        began = time.monotonic()
        wait_until(all_heard)
        assert max(heard.values()) <= time.monotonic() - began + 2
    finally:
        chosen.close()
        for wire in wires:
            wire.close()


def test_one_that_does_not_read_is_let_go_and_the_others_are_served(server: ServerProcess) -> None:
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    slow.connect(("127.0.0.1", server.port))
    slow.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    with events(server) as stream:
        for _ in range(3):
            assert next(stream)["event"] == "fleet"
    slow.close()


def test_a_server_that_ends_does_not_wait_for_those_who_watch(server: ServerProcess) -> None:
    with events(server) as stream:
        next(stream)
        assert server.stop() == 0
    wait_until(lambda: server.process.poll() is not None)
