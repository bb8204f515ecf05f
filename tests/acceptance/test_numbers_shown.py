"""What a control room shows is a state of the store, at most two seconds old, while workers are killed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from control_room import ControlRoom, room
from flotilla import Fleet, fleet_of
from small_site import page
from user import until

from shoal.app import open_queue
from shoal.config import load
from shoal.core.run import Run

PAGES = 400
OLDEST = 2.0  # seconds
SLACK = 0.3  # between a change in the store and the moment in which our own look sees it


class Witness:
    """Asks the store itself all the time, and remembers how much was done when."""

    def __init__(self, queue: str, run: Run) -> None:
        self._queue, self._run = queue, run
        self._stop = threading.Event()
        self.times: list[float] = []
        self.done: list[int] = []
        self._thread = threading.Thread(target=lambda: asyncio.run(self._look()), daemon=True)

    async def _look(self) -> None:
        queue = await open_queue(load({"queue": self._queue}, env={}))
        try:
            while not self._stop.is_set():
                began = time.monotonic()
                stats = await queue.stats(self._run.id)
                self.times.append(began)
                self.done.append(stats.done)
                await asyncio.sleep(0.03)
        finally:
            await queue.close()

    def at(self, moment: float) -> int:
        place = bisect_right(self.times, moment) - 1
        return self.done[place] if place >= 0 else 0

    @contextmanager
    def watching(self) -> Iterator[Witness]:
        self._thread.start()
        until(lambda: bool(self.times))
        try:
            yield self
        finally:
            self._stop.set()
            self._thread.join(10)


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def shown(control: ControlRoom, fleet: Fleet, run: Run) -> dict[str, Callable[[], int]]:
    """Every place that says how much of a run is done."""

    def on_page(path: str, pattern: str) -> int:
        found = re.search(pattern, control.get(path, headers={"Accept": "text/html"}).text)
        assert found is not None, path
        return whole(found[1])

    def metric() -> int:
        pattern = rf'^shoal_run_tasks{{run="{run.name}",[^}}]*state="done"}} (\d+)'
        found = re.search(pattern, control.get("/metrics").text, re.M)
        assert found is not None
        return int(found[1])

    def event() -> int:
        with control.client.stream("GET", f"/api/v1/events?topic=run:{run.name}") as stream:
            for line in stream.iter_lines():
                if line.startswith("data:") and (said := json.loads(line[5:]))["event"] == "run":
                    return int(said["data"]["done"])
        raise AssertionError("no event")

    def listed(path: str) -> int:
        items: list[dict[str, Any]] = control.ask(path)["items"]
        return next(int(one["done"]) for one in items if one["name"] == run.name)

    return {
        "the API": lambda: int(control.ask(f"/api/v1/runs/{run.name}")["done"]),
        "the API's list": lambda: listed("/api/v1/runs"),
        "/stats": lambda: int(control.ask("/stats")["tasks"]["done"]),
        "/metrics": metric,
        "events": event,
        "the run's page": lambda: on_page(f"/runs/{run.name}", r'data-key="run:done">([\d,]+)<'),
        "the first page": lambda: on_page("/", rf'/runs/{run.name}/tasks\?state=done">([\d,]+)<'),
        "the command": lambda: int(fleet.user.ask("status", run.name)["done"]),
    }


@pytest.fixture(params=["sqlite", "redis"])
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(request.param, tmp_path) as made:
        yield made


def test_every_number_is_a_state_of_the_store_at_most_two_seconds_old(fleet: Fleet, tmp_path: Path) -> None:
    fleet.site.pages["/*"] = page("x")
    run = fleet.submit([f"/{n}" for n in range(PAGES)])
    fleet.scraper()
    args = ("plain.py", "--lease", "2", "--heartbeat", "0.3", "--concurrency", "1", "--delay", "0.02")
    with room(fleet.queue, folder=tmp_path) as control, Witness(fleet.queue, run).watching() as witness:
        places = shown(control, fleet, run)
        worker = fleet.worker(*args)
        until(lambda: witness.done[-1] > 2)
        seen: list[tuple[str, float, float, int]] = []
        kills = 0
        while witness.done[-1] < PAGES * 2 // 3:
            for name, ask in places.items():
                if witness.done[-1] >= PAGES * 2 // 3:
                    break
                began = time.monotonic()
                number = ask()
                seen.append((name, began, time.monotonic(), number))
            if kills < 2:
                os.killpg(worker.pid, signal.SIGKILL)
                worker = fleet.worker(*args)
                kills += 1
        fleet.user.ask("pause", run.name)
        until(lambda: fleet.ask(lambda queue: queue.stats(run.id)).leased == 0)
        time.sleep(OLDEST)  # whoever kept an answer may keep it for so long
        rest = fleet.ask(lambda queue: queue.recount(run.id)).done
        assert {name: ask() for name, ask in places.items()} == dict.fromkeys(places, rest)
    assert kills == 2 and {name for name, *_ in seen} == set(places)
    for name, began, ended, number in seen:
        least, most = witness.at(began - OLDEST - SLACK), witness.at(ended + SLACK)
        assert least <= number <= most, f"{name} said {number}; the store had {least} to {most}"
    assert len({number for *_, number in seen}) > 5, "too little happened meanwhile to tell"
