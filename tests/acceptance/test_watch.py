"""`shoal watch`: the whole fleet at a glance, until the run ends, without touching it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from flotilla import Fleet, ended, fleet_of, stop
from small_site import Hit, Said, page
from user import SHOAL, until

PAGES = [f"/p/{n}" for n in range(12)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of("redis", tmp_path) as made:
        yield made


class Gate:
    """Pages that are answered only when the test lets them be."""

    def __init__(self) -> None:
        self.open = threading.Event()

    def __call__(self, hit: Hit) -> Said:
        self.open.wait(20)
        return (404, {}, b"") if hit.path == "/p/0" else page("x")


def test_every_line_is_a_document_and_the_end_has_the_exit_code_of_the_run(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = gate = Gate()
    run = fleet.submit(PAGES)
    watching = fleet.user.start("watch", run.name[:8], "--json", "--every", "0.2")
    assert watching.stdout is not None
    first = json.loads(watching.stdout.readline())
    assert (first["run_id"], first["state"], first["pending"], first["remaining"]) == (
        run.name, "running", 12, 12,
    )  # fmt: skip
    assert first["workers"] == [] and first["limits"][0]["kind"] == "workers"
    assert "shoal worker" in first["limits"][0]["words"]

    worker = fleet.worker(fleet.scraper(), "--exit-when-done", "--name", "one", "--concurrency", "4")
    for line in watching.stdout:
        seen = json.loads(line)
        if seen["claimed"] and seen["workers"]:
            break
    assert seen["workers"][0]["id"].startswith("one-") and seen["workers"][0]["leased"]
    assert seen["hosts"][0]["name"] == fleet.site.lane and seen["hosts"][0]["in_flight"]
    gate.open.set()
    last = json.loads(watching.stdout.read().splitlines()[-1])
    assert (last["state"], last["done"], last["failed"], last["pending"]) == ("finished", 11, 1, 0)
    assert watching.wait(10) == 3 and ended(worker).code == 3


def test_interrupted_it_only_stops_watching(fleet: Fleet) -> None:
    run = fleet.submit(PAGES)
    watching = fleet.user.start("watch", "--every", "0.2")
    assert watching.stdout is not None
    line = watching.stdout.readline()
    assert line.startswith(f"{run.name} waiting · pending 12 · claimed 0 · done 0 · failed 0")
    assert stop(watching, signal.SIGINT).code == 4
    assert fleet.state(run) == "running" and fleet.stats(run).ready == 12


def test_a_terminal_shows_workers_hosts_and_what_limits_it(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = gate = Gate()
    run = fleet.submit(PAGES)
    worker = fleet.worker(fleet.scraper(), "--exit-when-done", "--name", "one", "--concurrency", "4")
    until(lambda: fleet.stats(run).leased > 0)
    above, below = pty.openpty()
    screen: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(above, 65536):
                screen.append(data)
        except OSError:  # closed at the other end
            return

    reader = threading.Thread(target=read)
    reader.start()
    watching = subprocess.Popen(
        [*SHOAL, "watch", "--every", "0.2"],
        cwd=fleet.user.folder,
        env=fleet.user.environment | {"TERM": "xterm", "COLUMNS": "120"},
        stdin=subprocess.DEVNULL,
        stdout=below,
        stderr=below,
    )
    os.close(below)
    try:
        until(lambda: b"one-" in b"".join(screen) and b"under way" in b"".join(screen))
        gate.open.set()
        assert watching.wait(20) == 3
    finally:
        watching.kill()
        watching.wait()
        os.close(above) if reader.is_alive() else None
        reader.join(10)
    text = b"".join(screen).decode()
    assert f"{run.name}  plain  running" in text and fleet.site.lane in text
    assert "finished" in text and "failed 1" in text
    assert ended(worker).code == 3


def test_an_ended_run_is_told_at_once_and_a_paused_one_says_how_to_go_on(fleet: Fleet) -> None:
    run = fleet.submit(PAGES)
    fleet.ask(lambda queue: queue.set_run(run.id, "pause"))
    watching = fleet.user.start("watch", "--json", "--every", "0.2")
    assert watching.stdout is not None
    paused = json.loads(watching.stdout.readline())
    assert f"shoal resume {run.name}" in paused["limits"][0]["words"]
    fleet.ask(lambda queue: queue.set_run(run.id, "cancel"))
    assert watching.wait(10) == 3
    began = time.monotonic()
    assert fleet.user.shoal("watch", run.name).code == 3 and time.monotonic() - began < 5
    assert fleet.user.shoal("watch", "nothing").code == 2


def test_says_so_when_the_queue_falls_silent_and_when_it_answers_again(tmp_path: Path) -> None:
    from servers.redis import RedisServer

    server = RedisServer("--appendonly", "yes", "--appendfsync", "always")
    server.start()
    try:
        with fleet_of("sqlite", tmp_path) as fleet:
            fleet.queue = fleet.user.environment["SHOAL_QUEUE"] = server.url("silent")
            fleet.submit(PAGES)
            watching = fleet.user.start("watch", "--every", "0.2")
            assert watching.stdout is not None
            assert "pending 12" in watching.stdout.readline()
            server.kill()
            died = time.monotonic()
            while "does not answer" not in watching.stdout.readline():
                assert time.monotonic() - died < 10
            assert time.monotonic() - died < 10
            server.start()
            assert "answers again" in watching.stdout.readline()
            assert "pending 12" in watching.stdout.readline()
            assert stop(watching, signal.SIGINT).code == 4
    finally:
        server.stop()
