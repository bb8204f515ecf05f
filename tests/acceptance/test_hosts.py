"""`shoal hosts`: what people set holds for every worker and run, at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flotilla import KINDS, Fleet, fleet_of

from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.extract.links import start_tasks
from shoal.queue.base import Queue


@pytest.fixture(params=KINDS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Fleet]:
    with fleet_of(request.param, tmp_path) as made:
        made.ask(_waiting)
        yield made


async def _waiting(queue: Queue) -> None:
    for name, pages in (("one", 3), ("two", 1)):
        run = await queue.start_run(NewRun(name, name, f"20260215_12000{pages}_{name}"))
        tasks, _ = start_tasks(f"http://shop.example/{name}/{n}" for n in range(pages))
        more, _ = start_tasks([f"http://other.example/{name}"])
        await queue.add(run.id, tasks + more, {"shop.example": Pace(1.0, 2), "other.example": Pace(0, 0)})


def hosts(fleet: Fleet, *args: str) -> dict[str, dict[str, Any]]:
    return {host["name"]: host for host in fleet.user.ask("hosts", *args)}


def test_hosts_are_listed_set_parked_and_released(fleet: Fleet) -> None:
    found = hosts(fleet)
    assert list(found) == ["shop.example", "other.example"]
    shop = found["shop.example"]
    assert (shop["ready"], shop["spacing"], shop["max_in_flight"], shop["in_flight"]) == (4, 1.0, 2, 0)
    assert shop["rule"] is None and not shop["parked"]
    assert hosts(fleet, "--run", "two")["shop.example"]["ready"] == 1

    said = fleet.user.shoal("hosts", "set", "http://Shop.example/x", "--rate", "30/m", "--in-flight", "1")
    assert said.code == 0 and "shop.example: one request every 2 s, 1 at once" in said.out
    shop = hosts(fleet)["shop.example"]
    assert (shop["spacing"], shop["max_in_flight"], shop["rule"], shop["limit"]) == (2.0, 1, 2.0, 1)
    assert "a person" in fleet.user.shoal("hosts").out

    said = fleet.user.shoal("hosts", "park", "shop.example", "--for", "1h", "--reason", "their sale")
    assert "parked for" in said.out and "their sale" in said.out
    claim = fleet.ask(lambda queue: queue.claim("w", 10))
    assert {task.lane for task in claim.tasks} == {"other.example"}
    assert "parked for 59:" in (out := fleet.user.shoal("hosts").out) or "parked for 1h00" in out
    assert fleet.user.ask("hosts", "release", "shop.example")["parked"] is False
    shop = fleet.user.ask("hosts", "set", "shop.example", "--reset")
    assert (shop["spacing"], shop["max_in_flight"], shop["rule"], shop["limit"]) == (1.0, 2, None, None)
    assert fleet.ask(lambda queue: queue.claim("w", 10)).tasks[0].lane == "shop.example"


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_a_host_is_parked_until_released_where_no_time_is_given(fleet: Fleet) -> None:
    assert "until released" in fleet.user.shoal("hosts", "park", "shop.example").out
    assert "until released: parked by hand" in fleet.user.shoal("hosts").out
    assert (
        "parked until released: parked by hand"
        in fleet.user.shoal("why", "http://shop.example/one/0", "--run", "one").out
    )


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("set", "shop.exampel", "--delay", "1s"), "did you mean shop.example?"),
        (("park", "nowhere.test"), "shoal hosts lists those there are"),
        (("set", "shop.example"), "say what to set"),
        (("set", "shop.example", "--delay", "soon"), "--delay: 'soon' is not understood"),
        (("set", "shop.example", "--rate", "0"), "--rate: '0' is not understood"),
        (("set", "shop.example", "--delay", "1", "--rate", "1"), "the same thing twice"),
        (("set", "shop.example", "--reset", "--delay", "1"), "stands alone"),
        (("park", "shop.example", "--for", "0"), "--for: '0' is not understood"),
        (("--run", "nothing"), "there is no run nothing here"),
        (("release",), "say which hosts"),
        (("park", "shop.example", "--all"), "say which hosts"),
        (("park", "shop.example", "--like", "shop"), "say which hosts"),
    ],
)
def test_what_is_not_understood_changes_nothing(fleet: Fleet, args: tuple[str, ...], said: str) -> None:
    before = fleet.ask(lambda queue: queue.lanes())
    done = fleet.user.shoal("hosts", *args)
    assert done.code == 2 and said in done.err
    assert fleet.ask(lambda queue: queue.lanes()) == before


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_hosts_are_changed_by_filter_and_a_dry_run_says_which(fleet: Fleet) -> None:
    would = fleet.user.ask("hosts", "park", "--like", "SHOP", "--dry-run")
    assert would == {"names": ["shop.example"], "count": 1, "dry_run": True}
    assert not any(host["parked"] for host in hosts(fleet).values())
    assert "1 host parked: shop.example." in fleet.user.shoal("hosts", "park", "--like", "shop").out
    assert list(hosts(fleet, "--only", "parked")) == ["shop.example"]
    assert fleet.user.ask("hosts", "set", "--all", "--delay", "2s")["count"] == 2
    assert list(hosts(fleet, "--only", "ruled", "--like", "other")) == ["other.example"]
    assert "2 hosts would be paced: other.example, shop.example." in (
        fleet.user.shoal("hosts", "set", "--only", "ruled", "--reset", "--dry-run").out
    )
    assert fleet.user.ask("hosts", "release", "--all")["names"] == ["shop.example"]
    assert "0 hosts released." in fleet.user.shoal("hosts", "release", "--only", "held").out
    assert "No host matches." in fleet.user.shoal("hosts", "--only", "parked").out
