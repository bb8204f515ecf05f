"""`shoal watch`: the whole fleet at a glance, until the run ends, without touching it."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_fleet import LocalFleet, local_fleet, stop_process, wait_for_exit
from servers.redis import own_server
from shell_user import SHOAL
from small_site import GatedPage, page
from wait import HANG, wait_until

PAGES = [f"/p/{n}" for n in range(12)]


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[LocalFleet]:
    with local_fleet("redis", tmp_path) as made:
        yield made


def gated_pages() -> GatedPage:
    """The first of them is not there."""
    return GatedPage(lambda hit: (404, {}, b"") if hit.path == "/p/0" else page("x"))


def test_every_line_is_a_document_and_the_end_has_the_exit_code_of_the_run(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = gate = gated_pages()
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
    assert watching.wait(HANG) == 3 and wait_for_exit(worker).code == 3


def test_interrupted_it_only_stops_watching(fleet: LocalFleet) -> None:
    run = fleet.submit(PAGES)
    watching = fleet.user.start("watch", "--every", "0.2")
    assert watching.stdout is not None
    line = watching.stdout.readline()
    assert line.startswith(f"{run.name} waiting · pending 12 · claimed 0 · done 0 · failed 0")
    assert stop_process(watching, signal.SIGINT).code == 4
    assert fleet.state(run) == "running" and fleet.stats(run).ready == 12


def test_a_terminal_shows_workers_hosts_and_what_limits_it(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = gate = gated_pages()
    run = fleet.submit(PAGES)
    worker = fleet.worker(fleet.scraper(), "--exit-when-done", "--name", "one", "--concurrency", "4")
    wait_until(lambda: fleet.stats(run).leased > 0)
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
        wait_until(lambda: b"one-" in b"".join(screen) and b"in progress" in b"".join(screen))
        gate.open.set()
        assert watching.wait(HANG) == 3
    finally:
        watching.kill()
        watching.wait()
        os.close(above) if reader.is_alive() else None
        reader.join(HANG)
    text = b"".join(screen).decode()
    assert f"{run.name}  plain  running" in text and fleet.site.lane in text
    assert "finished" in text and "failed 1" in text
    assert wait_for_exit(worker).code == 3


def test_an_ended_run_is_told_at_once_and_a_paused_one_says_how_to_go_on(fleet: LocalFleet) -> None:
    run = fleet.submit(PAGES)
    fleet.ask(lambda queue: queue.set_run(run.id, "pause"))
    watching = fleet.user.start("watch", "--json", "--every", "0.2")
    assert watching.stdout is not None
    paused = json.loads(watching.stdout.readline())
    assert f"shoal resume {run.name}" in paused["limits"][0]["words"]
    fleet.ask(lambda queue: queue.set_run(run.id, "cancel"))
    assert watching.wait(HANG) == 3
    assert fleet.user.shoal("watch", run.name, "--every", "600").code == 3
    assert fleet.user.shoal("watch", "nothing").code == 2


def test_says_so_when_the_queue_falls_silent_and_when_it_answers_again(tmp_path: Path) -> None:
    with (
        own_server("--appendonly", "yes", "--appendfsync", "always") as server,
        local_fleet("sqlite", tmp_path) as fleet,
    ):
        fleet.queue = fleet.user.environment["SHOAL_QUEUE"] = server.url("silent")
        fleet.submit(PAGES)
        watching = fleet.user.start("watch", "--every", "0.2")
        assert watching.stdout is not None
        assert "pending 12" in watching.stdout.readline()
        server.kill()
        while "does not answer" not in (line := watching.stdout.readline()):
            assert line
        server.start()
        while "answers again" not in (line := watching.stdout.readline()):
            assert line
        assert "pending 12" in watching.stdout.readline()
        assert stop_process(watching, signal.SIGINT).code == 4
