"""`shoal hosts`: what people set holds for every worker and run, at once."""

from __future__ import annotations

from typing import Any

import pytest
from local_fleet import LocalFleet

from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.queue.base import Queue
from shoal.sources.start_task import start_tasks


@pytest.fixture
def fleet(fleet: LocalFleet) -> LocalFleet:
    fleet.ask(_waiting)
    return fleet


async def _waiting(queue: Queue) -> None:
    for name, pages in (("one", 3), ("two", 1)):
        run = await queue.start_run(NewRun(name, name, f"20260215_12000{pages}_{name}"))
        tasks, _ = start_tasks(f"http://shop.example/{name}/{n}" for n in range(pages))
        more, _ = start_tasks([f"http://other.example/{name}"])
        await queue.add(run.id, tasks + more, {"shop.example": Pace(1.0, 2), "other.example": Pace(0, 0)})


def hosts(fleet: LocalFleet, *args: str) -> dict[str, dict[str, Any]]:
    return {host["name"]: host for host in fleet.user.ask("hosts", *args)}


def test_hosts_are_listed_set_parked_and_released(fleet: LocalFleet) -> None:
    found = hosts(fleet)
    assert list(found) == ["shop.example", "other.example"]
    shop = found["shop.example"]
    assert (shop["ready"], shop["spacing"], shop["max_in_flight"], shop["in_flight"]) == (4, 1.0, 2, 0)
    assert shop["rule"] is None and not shop["parked"]
    assert hosts(fleet, "--run", "two")["shop.example"]["ready"] == 1

    said = fleet.user.shoal("hosts", "set", "http://Shop.example/x", "--rate", "30/m", "--in-flight", "1")
    assert said.code == 0 and "shop.example: 1 page every 2 s, 1 at once" in said.out
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
def test_a_host_is_parked_until_released_where_no_time_is_given(fleet: LocalFleet) -> None:
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
        (("park", "nowhere.test"), "shoal hosts lists them"),
        (("set", "shop.example"), "nothing to set"),
        (("set", "shop.example", "--delay", "soon"), "--delay: 'soon' is not understood"),
        (("set", "shop.example", "--rate", "0"), "--rate: '0' is not understood"),
        (("set", "shop.example", "--delay", "1", "--rate", "1"), "conflict"),
        (("set", "shop.example", "--reset", "--delay", "1"), "cannot be combined"),
        (("park", "shop.example", "--for", "0"), "--for: '0' is not understood"),
        (("--run", "nothing"), "there is no run nothing here"),
        (("release",), "no hosts selected"),
        (("park", "shop.example", "--all"), "no hosts selected"),
        (("park", "shop.example", "--like", "shop"), "no hosts selected"),
    ],
)
def test_what_is_not_understood_changes_nothing(fleet: LocalFleet, args: tuple[str, ...], said: str) -> None:
    before = fleet.ask(lambda queue: queue.lanes())
    done = fleet.user.shoal("hosts", *args)
    assert done.code == 2 and said in done.err
    assert fleet.ask(lambda queue: queue.lanes()) == before


@pytest.mark.parametrize("fleet", ["redis"], indirect=True)
def test_hosts_are_changed_by_filter_and_a_dry_run_says_which(fleet: LocalFleet) -> None:
    would = fleet.user.ask("hosts", "park", "--like", "SHOP", "--dry-run")
    assert would == {"names": ["shop.example"], "count": 1, "dry_run": True}
    assert not any(host["parked"] for host in hosts(fleet).values())
    assert "1 host parked: shop.example." in fleet.user.shoal("hosts", "park", "--like", "shop").out
    assert list(hosts(fleet, "--only", "parked")) == ["shop.example"]
    assert fleet.user.ask("hosts", "set", "--all", "--delay", "2s")["count"] == 2
    assert list(hosts(fleet, "--only", "overridden", "--like", "other")) == ["other.example"]
    assert "2 hosts would be changed: other.example, shop.example." in (
        fleet.user.shoal("hosts", "set", "--only", "overridden", "--reset", "--dry-run").out
    )
    assert fleet.user.ask("hosts", "release", "--all")["names"] == ["shop.example"]
    assert "0 hosts released." in fleet.user.shoal("hosts", "release", "--only", "held").out
    assert "No host matches." in fleet.user.shoal("hosts", "--only", "parked").out
