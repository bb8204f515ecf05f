"""A fleet by compose, really started: scaled, killed and updated while it crawls, and nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from wait import wait_until

from deploy.account import check_account, slow_pages
from deploy.api import Prober
from deploy.compose import ComposeFleet
from deploy.docker import docker

URLS = 5000
AT_ONCE = 10  # pages of a fifth of a second, whoever works: the crawl outlasts what is done to it


@pytest.mark.deploy
def test_a_fleet_that_is_scaled_killed_and_updated_while_it_crawls_loses_and_doubles_nothing(
    compose_fleet: ComposeFleet, image: str, record_property: Callable[[str, object], None]
) -> None:
    fleet = compose_fleet
    fleet.prepare("redis", "nginx")
    fleet.compose("up", "-d", "--scale", "worker=2")
    api = fleet.api()
    with Prober(api) as prober:
        run = api.submit(slow_pages("site", URLS), in_flight=AT_ONCE)
        wait_until(lambda: api.status(run)["done"] > 100, every=0.2)
        fleet.scale("worker", 6)
        wait_until(lambda: api.live_workers() == 6, every=0.5)
        for _ in range(3):
            fleet.kill_one("worker")
        fleet.kill_one("server")
        wait_until(lambda: len(fleet.running("server")) == 2 and len(fleet.running("worker")) == 6, every=0.5)
        docker("tag", image, f"{image}:next")
        fleet.compose("up", "-d", "--no-deps", "--scale", "worker=6", "worker", SHOAL_IMAGE=f"{image}:next")
        fleet.kill_one("worker")
        fleet.scale("worker", 2)
        assert api.status(run)["state"] != "finished", "too quick to have seen anything"
        account = check_account(api, run, URLS)
    assert prober.answers > 100
    assert prober.failures == []
    record_property("figures", f"{account}; {prober.figures()}")
    docker("image", "rm", "--force", f"{image}:next")


@pytest.mark.faults
def test_a_killed_container_loses_and_doubles_nothing(compose_fleet: ComposeFleet) -> None:
    fleet = compose_fleet
    fleet.prepare("redis")
    fleet.compose("up", "-d", "--scale", "worker=2")
    api = fleet.server_api()
    run = api.submit(slow_pages("site", 300), in_flight=4)
    wait_until(lambda: api.status(run)["done"] > 30, every=0.2)
    fleet.kill_one("worker")
    check_account(api, run, 300)
