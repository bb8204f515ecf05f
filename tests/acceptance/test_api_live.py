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
import psutil
import pytest
import seeded
from control_room import ControlRoom, room
from user import until
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ControlRoom]:
    seeded.made(tmp_path, "r1", done=3, dead=2, ready=5)
    with room(seeded.address(tmp_path), "--no-upkeep", api_rate="100000") as made:
        yield made


@contextmanager
def events(server: ControlRoom, query: str = "") -> Iterator[Iterator[dict[str, Any]]]:
    with server.client.stream("GET", f"/api/v1/events{query}") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")

        def read() -> Iterator[dict[str, Any]]:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

        yield read()


def test_the_fleet_is_told_at_once_and_what_changes_soon_after(server: ControlRoom) -> None:
    with events(server) as stream:
        first = next(stream)
        assert first["event"] == "fleet"
        assert first["data"]["totals"]["done"] == 3
        server.post("/api/v1/runs/r1/pause")
        seen: dict[str, dict[str, Any]] = {}
        ends = time.monotonic() + 10
        while not {"state", "action"} <= seen.keys() and time.monotonic() < ends:
            event = next(stream)
            seen[event["event"]] = event["data"]
        assert (seen["state"]["run"], seen["state"]["to"]) == ("r1", "paused")
        assert (seen["action"]["what"], seen["action"]["about"]) == ("pause", "r1")


def test_a_run_is_told_as_its_status_is(server: ControlRoom) -> None:
    with events(server, "?topic=run:r1") as stream:
        event = next(stream)
        assert event["event"] == "run"
        status = server.ask("/api/v1/runs/r1")
        assert {name: event["data"][name] for name in ("name", "done", "dead", "ready", "records")} == {
            name: status[name] for name in ("name", "done", "dead", "ready", "records")
        }
    assert server.get("/api/v1/events?topic=run:nobody").status_code == 404
    assert server.get("/api/v1/events?topic=nonsense").status_code == 422


def test_a_websocket_carries_the_same_events(server: ControlRoom) -> None:
    place = server.url.replace("http", "ws")
    with connect(f"{place}/ws?topic=fleet&topic=run:r1") as wire:
        kinds = {json.loads(wire.recv(timeout=10))["event"] for _ in range(2)}
        assert kinds == {"fleet", "run"}
        wire.send("anything")
        assert json.loads(wire.recv(timeout=10))["data"]
    for wrong in ("/ws?topic=run:nobody", "/ws?topic=%00"):
        with pytest.raises(InvalidStatus):
            connect(place + wrong).__enter__()


def test_a_page_of_another_site_gets_no_websocket(server: ControlRoom) -> None:
    with pytest.raises(InvalidStatus):
        connect(server.url.replace("http", "ws") + "/ws", origin="https://evil.example").__enter__()


def test_nobody_gets_a_stream_without_a_token_where_one_is_asked_for(tmp_path: Path) -> None:
    with room(seeded.address(tmp_path), "--no-upkeep", token="t" * 20) as server:
        assert httpx.get(f"{server.url}/api/v1/events", trust_env=False).status_code == 401
        with pytest.raises(InvalidStatus):
            connect(server.url.replace("http", "ws") + "/ws").__enter__()
        headers = {"Authorization": f"Bearer {server.token}"}
        with connect(server.url.replace("http", "ws") + "/ws", additional_headers=headers) as wire:
            assert json.loads(wire.recv(timeout=10))["event"] == "fleet"


def test_two_hundred_who_watch_cost_one_look_a_second(server: ControlRoom) -> None:
    process = psutil.Process(server.process.pid)
    wires = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(200)]
    chosen = selectors.DefaultSelector()
    heard = dict.fromkeys(wires, 0)
    try:
        for wire in wires:
            wire.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            wire.setblocking(False)
            chosen.register(wire, selectors.EVENT_READ)

        def listen(seconds: float) -> None:
            ends = time.monotonic() + seconds
            while time.monotonic() < ends:
                for key, _ in chosen.select(0.2):
                    wire = key.fileobj
                    assert isinstance(wire, socket.socket)
                    heard[wire] += wire.recv(1 << 20).count(b"event: fleet")

        listen(2)
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        listen(3)
        used = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
        assert min(heard.values()) >= 2
        assert used < 0.5, f"{used:.0%} of a core"
    finally:
        chosen.close()
        for wire in wires:
            wire.close()


def test_one_that_does_not_read_is_let_go_and_the_others_are_served(server: ControlRoom) -> None:
    slow = socket.socket()
    slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    slow.connect(("127.0.0.1", server.port))
    slow.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    with events(server) as stream:
        for _ in range(3):
            assert next(stream)["event"] == "fleet"
    slow.close()


def test_a_server_that_ends_does_not_wait_for_those_who_watch(server: ControlRoom) -> None:
    with events(server) as stream:
        next(stream)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 12
    until(lambda: server.process.poll() is not None)
