"""`shoal scale` with containers: the drivers of compose and swarm on a real engine, over a server as the queue."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from wait import wait_until

from deploy.account import slow_pages
from deploy.api import Api
from deploy.compose import ComposeFleet
from deploy.docker import run
from deploy.swarm import SITE, STACK, SwarmFleet

pytestmark = pytest.mark.deploy
SHOAL = str(Path(sys.executable).parent / "shoal")
LIMITS = ("--min-workers", "1", "--max-workers", "3", "--scale-up-cooldown", "1s")
POLICY = ("--scale-policy", "jobs_per_worker", *LIMITS, "--once")


def scale(api: Api, folder: Path, env: dict[str, str], *words: str) -> str:
    queue = {"SHOAL_QUEUE": api.url, "SHOAL_TOKEN": api.token}
    return run(SHOAL, "scale", *words, cwd=folder, env=env | queue)


def test_compose_has_as_many_workers_as_it_is_told_and_as_the_load_needs(compose_fleet: ComposeFleet) -> None:
    fleet = compose_fleet
    fleet.prepare("redis")
    fleet.compose("up", "-d", "--scale", "worker=1")
    api = fleet.server_api()
    driver = ("--scaler", "compose", "--scale-target", "worker")
    assert "1 → 2 workers" in scale(api, fleet.folder, fleet.env, "set", "2", *driver)
    wait_until(lambda: len(fleet.running("worker")) == 2, every=0.5)
    api.submit(slow_pages("site", 2000, 3000))
    scale(api, fleet.folder, fleet.env, "auto", *driver, *POLICY)
    wait_until(lambda: len(fleet.running("worker")) == 3, every=0.5)
    assert "3 → 0 workers" in scale(api, fleet.folder, fleet.env, "set", "0", *driver)
    wait_until(lambda: fleet.containers("worker") == [], every=0.5)


def test_swarm_has_as_many_workers_as_it_is_told_and_as_the_load_needs(swarm_fleet: SwarmFleet) -> None:
    fleet = swarm_fleet
    fleet.start()
    api = fleet.api()
    driver = ("--scaler", "swarm", "--scale-target", f"{STACK}_worker")
    assert "2 → 1 workers" in scale(api, fleet.folder, {}, "set", "1", *driver)
    wait_until(lambda: fleet.replicas("worker") == "1/1", every=0.5)
    api.submit(slow_pages(SITE, 2000, 3000))
    scale(api, fleet.folder, {}, "auto", *driver, *POLICY)
    wait_until(lambda: fleet.replicas("worker") == "3/3", every=0.5)
