"""Advice about real fleets: what would help is said, with the numbers, and what would not is not."""

from __future__ import annotations

import math
from typing import Any
from uuid import uuid4

import pytest
from local_fleet import LocalFleet
from small_site import page, small_site
from wait import wait_until

from shoal.control.history import History
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun, Run
from shoal.queue.base import Queue
from shoal.runs.identity import run_name
from shoal.sources.start_task import start_tasks

SLOW = """
import asyncio
import shoal

{name} = shoal.Scraper("{name}", start="{url}")

@{name}.page("*")
async def page(page):
    await asyncio.sleep(0.4)
    yield {{{{"url": page.url}}}}
"""


def submitted(fleet: LocalFleet, urls: list[str], pace: Pace = UNLIMITED_PACE, scraper: str = "plain") -> Run:
    tasks, _ = start_tasks(urls)

    async def job(queue: Queue) -> Run:
        spec = {"scraper": scraper, "mode": "distributed", "code": {"target": f"{scraper}.py"}}
        run = await queue.start_run(NewRun(scraper, uuid4().hex, name=run_name(), spec=spec))
        await queue.add(run.id, tasks, {task.lane: pace for task in tasks})
        return run

    return fleet.ask(job)


def advice(fleet: LocalFleet, *args: str) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """By kind, and what an autoscaler is told."""
    found = fleet.user.ask("advice", *args)
    return {one["kind"]: one for one in found["advice"]}, found["autoscale"]


def test_a_run_that_one_host_decides_is_told_that_more_workers_will_not_help(sqlite_fleet: LocalFleet) -> None:
    fleet = sqlite_fleet
    fleet.site.pages["/*"] = page("x")
    run = submitted(fleet, [fleet.site.url(f"/{n}") for n in range(300)], Pace(0.4, 1))
    fleet.worker(fleet.scraper())
    wait_until(lambda: fleet.stats(run).done > 2)

    def look() -> tuple[dict[str, dict[str, Any]], dict[str, Any]] | None:
        """One look that says so: where the worker gets too little of the machine, the host is not what decides."""
        found = advice(fleet)
        return found if "host_bottleneck" in found[0] else None

    said, scale = wait_until(look)
    one = said["host_bottleneck"]
    assert one["host"] == fleet.site.lane and one["run"] == run.name and "will not help" in one["title"]
    assert one["figures"]["spacing"] == 0.4 and 0 < one["figures"]["left_on_host"] < 300
    assert "scale_up" not in said and scale["desired_workers"] == 1
    assert scale["held_by_site_limits"] <= 5 and scale["fetchable_in_target"] >= 30


def test_one_slow_worker_with_many_hosts_is_told_how_many_more_it_takes(sqlite_fleet: LocalFleet) -> None:
    fleet = sqlite_fleet
    with small_site() as second, small_site() as third:
        sites = (fleet.site, second, third)
        for site in sites:
            site.pages["/*"] = page("x")
        fleet.user.environment["SHOAL_ALLOW_PRIVATE"] = ",".join(site.lane for site in sites)
        run = submitted(fleet, [site.url(f"/{n}") for site in sites for n in range(300)], scraper="slow")
        fleet.worker(fleet.scraper("slow", SLOW), "--concurrency", "1", "--batch-size", "1")
        wait_until(lambda: fleet.stats(run).done > 2)
        said, scale = advice(fleet, "--within", "40")
        shown = fleet.user.shoal("advice", "--within", "40").out
    assert 0 < scale["pages_per_s_per_worker"] <= 2.5 * 1.35, "a page takes 0.4 s at least"
    assert 600 < scale["fetchable_in_target"] < 900
    needed = math.ceil(scale["fetchable_in_target"] / (scale["pages_per_s_per_worker"] * 40))
    assert needed - 1 <= scale["desired_workers"] <= needed + 1, "the figures that are shown are rounded"
    more = scale["desired_workers"] - 1
    assert said["scale_up"]["title"] == f"Start {more} more workers" and said["scale_up"]["level"] == "act"
    (step,) = said["scale_up"]["actions"]
    assert step["command"].startswith(f"shoal worker slow.py --run-id {run.name}")
    assert step["command"].endswith(f"--workers {more}")
    assert shown.startswith("act") and "could be fetched now" in shown


def test_a_host_that_answers_with_errors_is_named_with_share_and_class(sqlite_fleet: LocalFleet) -> None:
    fleet = sqlite_fleet
    with small_site() as broken:
        fleet.site.pages["/*"] = page("x")
        broken.pages["/*"] = page("no", status=503)
        broken.pages["/robots.txt"] = page("", status=404)
        fleet.user.environment["SHOAL_ALLOW_PRIVATE"] = f"{fleet.site.lane},{broken.lane}"
        urls = [site.url(f"/{n}") for site in (fleet.site, broken) for n in range(30)]
        fleet.ask(lambda queue: History(queue).add_sample())
        run = submitted(fleet, urls)
        fleet.worker(fleet.scraper(), "--retries", "0", "--heartbeat", "1")

        async def failed(queue: Queue) -> int:
            """What is known of it; workers tell of it with their heartbeats."""
            history = History(queue)
            await history.add_sample(final=True)
            points = [one.hosts.get(broken.lane) for one in (await history.read(600)).samples]
            return sum(point.failed for point in points if point)

        wait_until(lambda: fleet.ask(failed) >= 5)
        wait_until(lambda: fleet.stats(run).dead >= 5)
        said, _ = advice(fleet)
    one = said["host_failing"]
    assert one["host"] == broken.lane and one["figures"]["share"] == 1.0
    assert one["figures"]["class"] == "http.5xx" and one["figures"]["failed"] >= 5
    assert said["common_cause"]["figures"]["cause"] == "http.503"
    assert "revive" in said["common_cause"]["actions"][1]["command"]


def test_a_run_that_nobody_serves_is_told_with_the_command_that_does(sqlite_fleet: LocalFleet) -> None:
    run = submitted(sqlite_fleet, [sqlite_fleet.site.url("/1")], scraper="other")
    said, scale = advice(sqlite_fleet)
    assert said["not_served"]["title"] == 'No worker can run "other"' and said["not_served"]["run"] == run.name
    assert said["not_served"]["actions"][0]["command"].startswith("shoal worker other.py --run-id")
    assert scale["desired_workers"] == 1 and scale["current_workers"] == 0


@pytest.mark.parametrize("args", [(), ("--json",)])
def test_where_nothing_was_ever_run_there_is_no_advice(sqlite_fleet: LocalFleet, args: tuple[str, ...]) -> None:
    done = sqlite_fleet.user.shoal("advice", *args)
    assert done.code == 0 and not done.err
    assert done.json["advice"] == [] if args else done.out.startswith("No runs here yet")
