"""Workers that live for seconds: what they did is in the history and in /metrics, once, and stays there."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from control_room import ControlRoom, room
from flotilla import Fleet, ended, fleet_of
from small_site import page
from user import until

from shoal.control.history import History
from shoal.core.figures import Figures
from shoal.queue.base import Queue
from shoal.worker.farewell import KIND

CLASS = 'shoal_fleet_attempts_failed_total{class="http.404"}'


@pytest.fixture(params=["sqlite", "redis"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(request.param, tmp_path) as made:
        yield made


def shown(control: ControlRoom) -> dict[str, float]:
    pairs = (
        line.rsplit(" ", 1) for line in control.get("/metrics").text.splitlines() if not line.startswith("#")
    )
    return {name: float(value) for name, value in pairs}


def attempts(control: ControlRoom) -> tuple[float, float, float, float]:
    """Done, failed, and how many of these the histograms know."""
    found = shown(control)
    return (
        found["shoal_fleet_tasks_done_total"],
        found[CLASS],
        found["shoal_fleet_attempt_seconds_count"],
        found["shoal_fleet_answer_bytes_count"],
    )


def history(control: ControlRoom) -> dict[str, bool]:
    """What the charts of the last hour have."""
    said: dict[str, Any] = control.ask("/api/v1/history?hours=1")
    failed = [name for name, rates in said["errors"].items() if any(rates)]
    return {"latency": any(said["p95"]), "404": "http.404" in failed, "pages": any(said["ok"])}


def test_what_short_lived_workers_did_is_shown_by_a_control_room_that_comes_later(fleet: Fleet) -> None:
    fleet.site.pages["/p/*"] = page("x")
    code = fleet.scraper()
    fleet.submit([*(f"/p/{n}" for n in range(8)), "/gone"])
    assert fleet.work(code, "--exit-when-done").code == 3
    with room(fleet.queue, folder=fleet.user.folder) as control:
        assert attempts(control) == (8, 1, 9, 9)
        assert history(control) == {"latency": True, "404": True, "pages": True}
        fleet.submit([f"/p/later-{n}" for n in range(5)])
        assert fleet.work(code, "--exit-when-done").code == 0
        until(lambda: attempts(control)[0] == 13)
        assert attempts(control) == (13, 1, 14, 14)
        assert control.stop() == 0

    async def kept(queue: Queue) -> tuple[int, int]:
        samples = (await History(queue).read(3600)).samples
        return len(await queue.papers(KIND)), sum(sum(one.took) for one in samples)

    assert fleet.ask(kept) == (0, 14)


def test_what_a_killed_process_did_is_in_the_history_as_well(small: Fleet) -> None:
    small.site.pages["/p/*"] = page("x")
    run = small.submit([f"/p/{n}" for n in range(40)])
    worker = small.worker(small.scraper(), "--heartbeat", "10s")  # none but its first is heard
    small.finished(run)
    (mark,) = small.workers()
    os.kill(mark.pid, signal.SIGKILL)
    until(lambda: mark.id not in {one.id for one in small.workers()})
    os.kill(worker.pid, signal.SIGTERM)
    assert ended(worker).code == 0

    async def total(queue: Queue) -> Figures:
        return (await History(queue).ledger()).base.total

    counted = small.ask(total)
    assert (counted.done, sum(counted.took)) == (40, 40)
