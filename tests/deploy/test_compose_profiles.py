"""Every queue that ./prepare offers, with the worker's name that belongs to it, and what watches it."""

from __future__ import annotations

import json
import urllib.request

import pytest
from wait import wait_until

from deploy.account import check_account, slow_pages
from deploy.compose import ComposeFleet

pytestmark = pytest.mark.deploy


# Celery's workers take ten tasks a minute each, unless told otherwise.
@pytest.mark.parametrize(
    ("queue", "service", "number"),
    [("postgres", "worker", 60), ("rabbitmq", "scraper", 60), ("celery", "celery-worker", 6)],
)
def test_a_crawl_by_the_service_that_other_systems_call_so(
    compose_fleet: ComposeFleet, queue: str, service: str, number: int
) -> None:
    fleet = compose_fleet
    fleet.prepare(queue)
    fleet.compose("up", "-d", "--scale", f"{service}=2")
    api = fleet.server_api()
    run = api.submit(slow_pages("site", number))
    check_account(api, run, number)
    assert len(fleet.containers(service)) == 2


def test_prometheus_finds_every_server_and_worker(compose_fleet: ComposeFleet) -> None:
    fleet = compose_fleet
    fleet.prepare("redis", "nginx", "prometheus")
    fleet.compose("up", "-d", "--scale", "worker=2")
    url = f"http://127.0.0.1:{fleet.env['PROMETHEUS_PORT']}/api/v1/targets"

    def healthy_jobs() -> list[str]:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                targets = json.load(answer)["data"]["activeTargets"]
        except OSError:
            return []
        return sorted(it["labels"]["job"] for it in targets if it["health"] == "up")

    expected = ["shoal-servers", "shoal-servers", "shoal-workers", "shoal-workers"]
    wait_until(lambda: healthy_jobs() == expected, every=1)


def test_the_demo_shows_records(compose_fleet: ComposeFleet) -> None:
    compose_fleet.prepare()
    assert '"title":"Painted Beekeepers"' in compose_fleet.compose("run", "--rm", "-T", "demo")


def test_without_preparation_compose_says_what_to_do(compose_fleet: ComposeFleet) -> None:
    with pytest.raises(AssertionError, match=r"\./prepare|\.env"):
        compose_fleet.compose("up", "-d")
