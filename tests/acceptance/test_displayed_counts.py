"""What the dashboard shows is a state of the store, and soon the last one, while workers are killed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_fleet import LocalFleet
from server_process import ServerProcess, running_server
from small_site import page
from wait import wait_until

from shoal.core.run import Run

PAGES = 400
LOOKS = 2  # times at which all the places must agree


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def shown(server: ServerProcess, fleet: LocalFleet, run: Run) -> dict[str, Callable[[], int]]:
    """Every place that says how much of a run is done."""

    def on_page(path: str, pattern: str) -> int:
        found = re.search(pattern, server.get(path, headers={"Accept": "text/html"}).text)
        assert found is not None, path
        return whole(found[1])

    def metric() -> int:
        pattern = rf'^shoal_run_tasks{{run="{run.name}",[^}}]*state="done"}} (\d+)'
        found = re.search(pattern, server.get("/metrics").text, re.M)
        assert found is not None
        return int(found[1])

    def event() -> int:
        with server.client.stream("GET", f"/api/v1/events?topic=run:{run.name}") as stream:
            for line in stream.iter_lines():
                if line.startswith("data:") and (said := json.loads(line[5:]))["event"] == "run":
                    return int(said["data"]["done"])
        raise AssertionError("no event")

    def listed(path: str) -> int:
        items: list[dict[str, Any]] = server.ask(path)["items"]
        return next(int(one["done"]) for one in items if one["name"] == run.name)

    return {
        "the API": lambda: int(server.ask(f"/api/v1/runs/{run.name}")["done"]),
        "the API's list": lambda: listed("/api/v1/runs"),
        "/stats": lambda: int(server.ask("/stats")["tasks"]["done"]),
        "/metrics": metric,
        "events": event,
        "the run's page": lambda: on_page(f"/runs/{run.name}", r'data-key="run:done">([\d,]+)<'),
        "the first page": lambda: on_page("/", rf'/runs/{run.name}/tasks\?state=done">([\d,]+)<'),
        "the command": lambda: int(fleet.user.ask("status", run.name)["done"]),
    }


@pytest.mark.parametrize("fleet", ["sqlite", "redis"], indirect=True)
def test_every_number_is_a_state_of_the_store_and_catches_up_with_it(fleet: LocalFleet, tmp_path: Path) -> None:
    fleet.site.pages["/*"] = page("x")
    run = fleet.submit([f"/{n}" for n in range(PAGES)])
    fleet.scraper()
    args = ("plain.py", "--lease", "2", "--heartbeat", "0.3", "--concurrency", "1", "--delay", "0.02")
    with running_server(fleet.queue, folder=tmp_path) as server:
        places = shown(server, fleet, run)
        last = dict.fromkeys(places, 0)
        seen: set[int] = set()

        def look() -> dict[str, int]:
            for name, ask in places.items():
                number = ask()
                there = fleet.stats(run).done
                assert last[name] <= number <= there, f"{name}: {number} after {last[name]}, {there} are done"
                last[name] = number
            seen.update(last.values())
            return last

        for turn in range(LOOKS):
            worker = fleet.worker(*args)
            wait_until(lambda goal=PAGES // 5 * (turn + 1): fleet.stats(run).done >= goal)
            look()
            os.killpg(worker.pid, signal.SIGKILL)
            fleet.ask(lambda queue: queue.set_run(run.id, "pause"))
            wait_until(lambda: fleet.stats(run).leased == 0)
            rest = fleet.ask(lambda queue: queue.recount(run.id)).done
            wait_until(lambda rest=rest: set(look().values()) == {rest}, every=0.2)
            fleet.ask(lambda queue: queue.set_run(run.id, "resume"))
    assert len(seen) >= LOOKS
