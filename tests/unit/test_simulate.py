"""The simulation of bench/simulate: nothing is lost, it agrees with the plan, what fails delays only its own hosts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from shoal.core.autoscale import ScaleLimits
from shoal.core.plan import PlanRequest, make_plan

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "simulate"))

from engine import Simulation
from queue_load import server_load
from scenario import Outage, Scenario

USUAL: dict[str, Any] = {"urls": 1_000_000, "hosts": 10_000, "largest_host": 200, "robots": False}
FLEET: dict[str, Any] = USUAL | {"workers": 50, "shards": 4, "concurrency": 64}


def simulate(**words: Any) -> Simulation:
    return Simulation(Scenario(**words)).run()


@pytest.mark.parametrize("changes", [{}, {"shards": 4}, {"worker_mtbf": 60.0}, {"scale": ScaleLimits(maximum=50)}])
def test_every_page_is_fetched_once_and_again_only_after_a_death(changes: dict[str, Any]) -> None:
    done = simulate(**USUAL | {"workers": 20} | changes)
    assert done.done == pytest.approx(1_000_000 + done.repeated, rel=0.002)
    assert bool(done.deaths) == ("worker_mtbf" in changes)


@pytest.mark.parametrize("workers", [1, 8, 64])
def test_it_takes_as_long_as_the_plan_says(workers: int) -> None:
    request = PlanRequest(**{name: USUAL[name] for name in ("urls", "hosts", "largest_host")}, machines=workers)
    plan = make_plan(PlanRequest(**_fields(request), workers=1, concurrency=32))
    assert simulate(**USUAL, workers=workers).seconds == pytest.approx(plan.seconds, rel=0.05)


def _fields(request: PlanRequest) -> dict[str, Any]:
    return {name: getattr(request, name) for name in ("urls", "hosts", "largest_host", "machines")}


def test_a_shard_that_is_away_delays_only_its_hosts_and_by_no_more_than_that() -> None:
    calm = simulate(**FLEET)
    away = simulate(**FLEET, outages=(Outage(30.0, 1, 60.0),))
    assert 0 < away.ended[1] - calm.ended[1] <= 61
    assert all(away.ended[shard] <= calm.ended[shard] + 1 for shard in (0, 2, 3))


def test_small_batches_cost_the_server_more_for_each_page() -> None:
    case = Scenario(**USUAL)
    few, many = (server_load(case, 1_000.0, workers, 10_000, is_paced=False, fleet=0) for workers in (2, 200))
    assert many.cpu > 2 * few.cpu


def test_each_machine_asks_a_host_for_its_robots_txt_once() -> None:
    one, many = (Scenario(**USUAL | {"robots": True, "workers": workers}) for workers in (1, 4_000))
    assert one.requests(100) == 101
    assert 190 < many.requests(100) < 200
    assert many.requests(1e9) == pytest.approx(1e9 + many.machines)
