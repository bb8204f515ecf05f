"""A stack of a swarm, really deployed: scaled, killed, rolled forward and back while it crawls."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from wait import FOREVER, wait_until

from deploy.account import check_account, slow_pages
from deploy.api import Prober
from deploy.docker import docker, run
from deploy.swarm import SITE, SwarmFleet

URLS = 5000
AT_ONCE = 5  # pages of a fifth of a second, whoever works: the crawl outlasts what is done to it

pytestmark = pytest.mark.deploy


def test_a_stack_that_is_scaled_killed_and_rolled_while_it_crawls_loses_and_doubles_nothing(
    swarm_fleet: SwarmFleet, image: str, record_property: Callable[[str, object], None]
) -> None:
    fleet = swarm_fleet
    fleet.start()
    api = fleet.api()
    with Prober(api) as prober:
        crawl = api.submit(slow_pages(SITE, URLS), in_flight=AT_ONCE)
        wait_until(lambda: api.status(crawl)["done"] > 100, every=0.2)
        fleet.scale("worker", 6)
        wait_until(lambda: api.live_workers() == 6, every=0.5)
        for _ in range(3):
            fleet.kill_one("worker")
        fleet.kill_one("server")
        wait_until(lambda: fleet.running("server") == 2 and fleet.running("worker") == 6, every=0.5)
        docker("tag", image, f"{image}:next")
        fleet.env["WORKERS"] = "6"
        fleet.deploy(f"{image}:next")
        wait_until(
            lambda: fleet.update_state("server") == fleet.update_state("worker") == "completed", FOREVER, every=1
        )
        fleet.scale("worker", 2)
        account = check_account(api, crawl, URLS)
    assert prober.answers > 100
    assert prober.failures == []
    record_property("figures", f"{account}; {prober.figures()}")
    docker("image", "rm", "--force", f"{image}:next")


def test_an_update_that_does_not_start_is_rolled_back_and_the_old_one_serves_throughout(
    swarm_fleet: SwarmFleet, image: str
) -> None:
    fleet = swarm_fleet
    fleet.start()
    api = fleet.api()
    run("docker", "build", "--tag", f"{image}:broken", "-", stdin=f'FROM {image}\nENTRYPOINT ["false"]\n')
    with Prober(api) as prober:
        fleet.deploy(f"{image}:broken")
        wait_until(lambda: fleet.update_state("server") == "rollback_completed", FOREVER, every=1)
        assert fleet.image_of("server") == f"{image}:latest"
    assert prober.failures == []
    docker("image", "rm", "--force", f"{image}:broken")
