"""A server whose event loop is blocked says by what, and ends when it is told to."""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from server_process import ServerProcess, running_server
from wait import wait_until

PROGRAM = (sys.executable, str(Path(__file__).with_name("blockable_server.py")))


@pytest.fixture
def blockable(tmp_path: Path) -> Iterator[ServerProcess]:
    with running_server(f"sqlite:///{tmp_path}/queue.db", "--log-format", "json", program=PROGRAM) as made:
        yield made


@contextmanager
def blocked(server: ServerProcess, how: str, until: Path) -> Iterator[None]:
    """Somebody has asked for what blocks it."""
    with socket.create_connection(("127.0.0.1", server.port)) as asked:
        asked.sendall(f"GET /block?how={how}&until={until} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        wait_until(lambda: held_up(server))
        yield


def held_up(server: ServerProcess) -> list[dict[str, object]]:
    """What was said of it; on a busy machine other things may block a loop, too."""
    return [line for line in events(server, "event_loop.blocked") if "hold_up" in str(line["traceback"])]


def events(server: ServerProcess, name: str) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in list(server.log_lines) if line.startswith("{")]
    return [line for line in lines if line["event"] == name]


def figure(server: ServerProcess, name: str) -> float:
    line = next(line for line in server.get("/metrics").text.splitlines() if line.startswith(f"{name} "))
    return float(line.split()[1])


def test_a_blocked_loop_is_named_once_counted_and_goes_on(blockable: ServerProcess, tmp_path: Path) -> None:
    before = figure(blockable, "shoal_coordinator_event_loop_blocks_total")
    with blocked(blockable, "asleep", tmp_path / "go-on"):
        (tmp_path / "go-on").touch()
        wait_until(lambda: events(blockable, "event_loop.unblocked"))
    (said,) = held_up(blockable)
    assert said["level"] == "warning"
    assert isinstance(said["seconds"], float) and said["seconds"] >= 5
    assert figure(blockable, "shoal_coordinator_event_loop_blocks_total") > before
    assert figure(blockable, "shoal_coordinator_event_loop_blocked_seconds_total") >= 5
    assert blockable.stop() == 0


@pytest.mark.parametrize("how", ["asleep", "busy", "no_gil"])
def test_sigterm_ends_a_server_that_is_blocked(blockable: ServerProcess, how: str, tmp_path: Path) -> None:
    run = blockable.post("/api/v1/runs", {"urls": ["https://shop.example/"], "fields": {"title": "h1"}}).json()
    with blocked(blockable, how, tmp_path / "never"):
        assert blockable.stop(signal.SIGTERM) == 1
    (said,) = events(blockable, "event_loop.abandoned")
    assert "hold_up" in str(said["traceback"])
    with running_server(f"sqlite:///{tmp_path}/queue.db", "--no-maintenance") as again:
        assert again.ask(f"/api/v1/runs/{run['run']}")["ready"] == 1  # nothing is lost
