"""Workers that live for seconds: what they did is in the history and in /metrics, once, and stays there."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from local_fleet import LocalFleet, wait_for_exit
from server_process import ServerProcess, running_server
from small_site import page
from wait import wait_until

from shoal.control.history import History
from shoal.core.counters import Counters
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Queue

CLASS = 'shoal_fleet_attempts_failed_total{class="http.404"}'


def shown(server: ServerProcess) -> dict[str, float]:
    pairs = (line.rsplit(" ", 1) for line in server.get("/metrics").text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def attempts(server: ServerProcess) -> tuple[float, float, float, float]:
    """Done, failed, and how many of these the histograms know."""
    found = shown(server)
    return (
        found["shoal_fleet_tasks_done_total"],
        found[CLASS],
        found["shoal_fleet_attempt_seconds_count"],
        found["shoal_fleet_answer_bytes_count"],
    )


def history(server: ServerProcess) -> dict[str, bool]:
    """What the charts of the last hour have."""
    said: dict[str, Any] = server.ask("/api/v1/history?hours=1")
    failed = [name for name, rates in said["errors"].items() if any(rates)]
    return {"latency": any(said["p95"]), "404": "http.404" in failed, "pages": any(said["ok"])}


@pytest.mark.parametrize("fleet", ["sqlite", "redis"], indirect=True)
def test_what_short_lived_workers_did_is_shown_by_a_server_that_comes_later(fleet: LocalFleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    code = fleet.scraper()
    fleet.submit([*(f"/p/{n}" for n in range(8)), "/gone"])
    assert fleet.work(code, "--exit-when-done").code == 3
    with running_server(fleet.queue, folder=fleet.user.folder) as server:
        assert attempts(server) == (8, 1, 9, 9)
        assert history(server) == {"latency": True, "404": True, "pages": True}
        fleet.submit([f"/p/later-{n}" for n in range(5)])
        assert fleet.work(code, "--exit-when-done").code == 0
        wait_until(lambda: attempts(server)[0] == 13)
        assert attempts(server) == (13, 1, 14, 14)
        assert server.stop() == 0

    async def kept(queue: Queue) -> tuple[int, int]:
        samples = (await History(queue).read(3600)).samples
        return len(await queue.documents(kinds.FINAL_COUNTS)), sum(sum(one.took) for one in samples)

    assert fleet.ask(kept) == (0, 14)


def test_what_a_killed_process_did_is_in_the_history_as_well(sqlite_fleet: LocalFleet) -> None:
    sqlite_fleet.site.pages["/p/*"] = page("x")
    run = sqlite_fleet.submit([f"/p/{n}" for n in range(40)])
    worker = sqlite_fleet.worker(sqlite_fleet.scraper(), "--heartbeat", "10s")  # none but its first is heard
    sqlite_fleet.finished(run)
    (mark,) = sqlite_fleet.workers()
    os.kill(mark.pid, signal.SIGKILL)
    wait_until(lambda: mark.id not in {one.id for one in sqlite_fleet.workers()})
    os.kill(worker.pid, signal.SIGTERM)
    assert wait_for_exit(worker).code == 0

    async def total(queue: Queue) -> Counters:
        return (await History(queue).lifetime_counters()).base.total

    counted = sqlite_fleet.ask(total)
    assert (counted.done, sum(counted.took)) == (40, 40)
