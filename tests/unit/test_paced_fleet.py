"""Politeness and speed together: hosts with a pace are asked as often as they allow, by any number of workers."""

from __future__ import annotations

import pytest
from paced_fleet import PacedFleet
from simulation import run_virtually


@pytest.mark.parametrize(
    "fleet",
    [
        pytest.param(PacedFleet(120, 0.5, workers=1), id="one worker"),
        pytest.param(PacedFleet(120, 0.5, workers=2, concurrency=32), id="two workers"),
        pytest.param(PacedFleet(60, 0.5, workers=8, concurrency=8), id="many small workers"),
        pytest.param(PacedFleet(120, 0.5, queue_latency=0.03), id="a queue that is far away"),
        pytest.param(PacedFleet(400, 5.0, concurrency=16), id="slow paces, few places"),
        pytest.param(PacedFleet(60, 0.2, in_flight=1), id="one request of a host at a time"),
        pytest.param(PacedFleet(20, 0.5, latency=1.5), id="slow answers"),
    ],
)
def test_every_slot_is_used_and_none_comes_too_soon(fleet: PacedFleet) -> None:
    crawled = run_virtually(fleet.crawl(10.0, warm_up=5.0))
    assert crawled.used >= 0.97
    assert crawled.least_gap >= 0.95


@pytest.mark.parametrize(
    ("fleet", "possible"),
    [
        pytest.param(PacedFleet(100, 0.5, latency=1.0, workers=2, concurrency=32), 64.0, id="places"),
        pytest.param(PacedFleet(100, 0.5, cpu=0.02, workers=2, concurrency=32), 100.0, id="CPU"),
    ],
)
def test_workers_that_cannot_keep_up_with_the_pace_do_what_they_can(fleet: PacedFleet, possible: float) -> None:
    crawled = run_virtually(fleet.crawl(10.0, warm_up=5.0))
    assert crawled.rate >= 0.9 * possible
    assert crawled.least_gap >= 0.95


def test_pages_that_wait_for_the_slot_after_robots_txt_take_up_no_place() -> None:
    """Where they did, four places would let in no more than four new hosts in five seconds."""
    crawled = run_virtually(PacedFleet(60, 5.0, workers=1, concurrency=4, robots=True).crawl(10.0, warm_up=5.0))
    assert crawled.used >= 0.8
    assert crawled.least_gap >= 0.95


PAGES = 20


@pytest.mark.parametrize(
    "fleet",
    [
        pytest.param(PacedFleet(24, 0.5, workers=1, concurrency=8, robots=True, pages=PAGES), id="1.7 times"),
        pytest.param(PacedFleet(64, 0.5, workers=1, concurrency=16, robots=True, pages=PAGES), id="1.25 times"),
        pytest.param(PacedFleet(90, 1.0, 1, concurrency=32, latency=0.3, robots=True, pages=PAGES), id="1.2 times"),
        pytest.param(PacedFleet(100, 1.0, 1, concurrency=32, latency=0.3, robots=True, pages=PAGES), id="1.07 times"),
        pytest.param(PacedFleet(200, 1.0, latency=0.3, robots=True, pages=PAGES), id="2.1 times, two workers"),
    ],
)
def test_hosts_that_are_begun_together_all_keep_their_pace(fleet: PacedFleet) -> None:
    """There are so many times the places it takes, but all hosts would have their slots at the same moments, always."""
    crawled = run_virtually(fleet.crawl(1.4 * PAGES * fleet.spacing, warm_up=0.0))
    assert crawled.fewest == PAGES
    assert crawled.least_gap >= 0.95


def test_claims_bring_many_tasks_where_hosts_are_asked_far_ahead() -> None:
    crawled = run_virtually(PacedFleet(20, 0.5).crawl(10.0, warm_up=5.0))
    assert crawled.rate * crawled.seconds / crawled.calls["claim"] >= 6
    assert crawled.calls["reserve"] == 0
