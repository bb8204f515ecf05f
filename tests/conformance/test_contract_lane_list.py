"""The list of lanes: paged, searched and narrowed, for people who look at thousands of hosts."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.harness import QueueHarness, page, pages
from shoal.core.task import LaneChange

NAMES = ["Z.test", "a-1.test", "a.test", "a1.test", "b%.test", "b_.test", "c.test:8080", "é.test"]  # by bytes


async def listed(harness: QueueHarness, **how: Any) -> list[str]:
    return [lane.name for lane in await harness.queue.lanes(**how)]


async def many(harness: QueueHarness) -> int:
    """A run with a task in every lane, and one more in those with an a."""
    run = await harness.run()
    for name in reversed(NAMES):
        await harness.add(run, pages(1 + ("a" in name), name, name))
    return run


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("of_a_run", [False, True])
async def test_pages_of_lanes_by_name_follow_each_other(harness: QueueHarness, size: int, of_a_run: bool) -> None:
    run = await many(harness)
    await harness.add(await harness.run("other"), [page("x", "other.test")])
    seen: list[str] = []
    how: dict[str, Any] = {"run": run} if of_a_run else {}
    while some := await listed(harness, order="name", after=seen[-1] if seen else "", limit=size, **how):
        assert len(some) <= size
        assert not set(some) & set(seen)
        seen += some
    assert seen == (NAMES if of_a_run else sorted([*NAMES, "other.test"]))


async def test_a_page_by_name_tells_the_same_of_a_lane(harness: QueueHarness) -> None:
    run = await many(harness)
    await harness.claim(3)
    for how in ({}, {"run": run}):
        by_ready = {lane.name: lane for lane in await harness.queue.lanes(**how)}
        assert {lane.name: lane for lane in await harness.queue.lanes(order="name", **how)} == by_ready


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("a", ["a-1.test", "a.test", "a1.test"]),
        (".test", NAMES),
        (":80", ["c.test:8080"]),
        ("%", ["b%.test"]),
        ("_", ["b_.test"]),
        ("*", []),
        ("é", ["é.test"]),
        ("b%.test", ["b%.test"]),
        ("nowhere", []),
    ],
)
async def test_lanes_are_searched_by_a_part_of_the_name(harness: QueueHarness, part: str, expected: list[str]) -> None:
    run = await many(harness)
    for how in ({}, {"run": run}):
        assert await listed(harness, like=part, order="name", **how) == expected
        assert sorted(await listed(harness, like=part, **how)) == expected


async def test_lanes_found_by_a_part_of_the_name_come_with_the_most_ready_first(harness: QueueHarness) -> None:
    run = await many(harness)
    await harness.add(run, pages(5, "more", "é.test"))
    assert (await listed(harness, like="test"))[0] == "é.test"
    assert await listed(harness, like="test", limit=1) == ["é.test"]
    assert await listed(harness, like="test", limit=2, order="name", after="a.test") == ["a1.test", "b%.test"]


async def marked(harness: QueueHarness) -> int:
    """Lanes in every condition, each named for its own."""
    run = await harness.run()
    names = ["plain", "held", "parked", "paced", "limited", "over", "both"]
    await harness.add(run, [page(name, f"{name}.test") for name in names])
    for change in (
        LaneChange("over.test", hold_for=5.0, park_for=5.0),
        LaneChange("held.test", hold_for=60.0),
        LaneChange("parked.test", park_for=60.0),
        LaneChange("paced.test", spacing_override=0.5),
        LaneChange("limited.test", limit=3),
        LaneChange("both.test", park_for=60.0, spacing_override=0.0),
    ):
        await harness.queue.set_lane(change)
    await harness.advance(10)
    return run


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        ("", ["both", "held", "limited", "over", "paced", "parked", "plain"]),
        ("parked", ["both", "parked"]),
        ("held", ["both", "held", "parked"]),
        ("overridden", ["both", "limited", "paced"]),
    ],
)
async def test_lanes_in_one_condition_only(harness: QueueHarness, only: Any, expected: list[str]) -> None:
    run = await marked(harness)
    names = [f"{name}.test" for name in expected]
    for how in ({}, {"run": run}):
        assert await listed(harness, only=only, order="name", **how) == names
        assert sorted(await listed(harness, only=only, **how)) == names
    assert await listed(harness, only=only, order="name", limit=1, after=names[0]) == names[1:2]


async def test_a_rule_taken_back_and_a_lane_released_are_no_longer_listed(harness: QueueHarness) -> None:
    await marked(harness)
    for change in (LaneChange("both.test", park_for=0.0, spacing_override=-1.0), LaneChange("limited.test", limit=-1)):
        await harness.queue.set_lane(change)
    assert await listed(harness, only="parked") == ["parked.test"]
    assert await listed(harness, only="overridden") == ["paced.test"]


async def test_lanes_without_any_run_are_listed_too(harness: QueueHarness) -> None:
    await harness.queue.set_lane(LaneChange("new.test", spacing_override=2.0))
    await harness.add(await harness.run(), [page("a", "busy.test")])
    assert await listed(harness) == ["busy.test", "new.test"]
    assert await listed(harness, only="overridden") == ["new.test"]
    assert await listed(harness, order="name") == ["busy.test", "new.test"]


@pytest.mark.parametrize("order", ["ready", "name"])
async def test_just_the_named_lanes_are_listed(harness: QueueHarness, order: Any) -> None:
    run = await many(harness)
    await harness.add(await harness.run("other"), [page("x", "other.test")])
    wanted = ("é.test", "a.test", "other.test", "nowhere.test")
    assert sorted(await listed(harness, names=wanted, order=order)) == ["a.test", "other.test", "é.test"]
    assert sorted(await listed(harness, names=wanted, order=order, run=run)) == ["a.test", "é.test"]
    assert await listed(harness, names=["nowhere.test"], order=order) == []


async def test_filters_of_lanes_hold_together(harness: QueueHarness) -> None:
    run = await marked(harness)
    assert await listed(harness, only="held", like="park") == ["parked.test"]
    assert await listed(harness, only="held", names=["parked.test", "plain.test"], run=run) == ["parked.test"]
    assert await listed(harness, only="overridden", like="park", order="name") == []
    assert await listed(harness, names=["plain.test"], like="held") == []


async def test_ready_work_of_ended_runs_counts_no_more(harness: QueueHarness) -> None:
    run, other = await harness.run("one"), await harness.run("other")
    await harness.add(run, pages(5, lane="one.test"))
    await harness.add(other, [*pages(2, lane="two.test"), *pages(1, "q", "one.test")])
    await harness.queue.set_run(run, "cancel")
    for order in ("ready", "name"):
        ready = {lane.name: lane.ready for lane in await harness.queue.lanes(order=order)}
        assert ready == {"one.test": 1, "two.test": 2}
    assert await listed(harness) == ["two.test", "one.test"]
