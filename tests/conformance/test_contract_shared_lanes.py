"""Lanes that many runs want: what one run takes is known to all others when they look, however many there are."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.harness import LANE, QueueHarness, page, pages, urls
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.task import LaneChange

ONE_AT_A_TIME = Pace(0.0, 1)
MINUTE = Pace(60.0, 0)


async def two_runs(harness: QueueHarness, pace: Pace, lanes: tuple[str, ...] = (LANE,)) -> tuple[int, int]:
    """Two runs that different workers serve, with work in the same lanes."""
    first, second = await harness.run("first", scraper="first"), await harness.run("second", scraper="second")
    for run, name in ((first, "f"), (second, "s")):
        for lane in lanes:
            await harness.add(run, [page(f"{name}{lane}{number}", lane) for number in range(3)], pace=pace)
    return first, second


async def test_a_lane_that_another_run_filled_is_found_when_it_opens(harness: QueueHarness) -> None:
    await two_runs(harness, ONE_AT_A_TIME)
    claim = await harness.claim(5, serves=["first"])
    assert len(claim.tasks) == 1
    nothing = await harness.claim(5, "w2", serves=["second"])
    assert not nothing.tasks and nothing.next_in is None, "nobody knows when a place is free"
    await harness.settle_all(claim)
    assert len((await harness.claim(5, "w2", serves=["second"])).tasks) == 1


async def test_work_that_comes_to_a_full_lane_is_found_when_it_opens(harness: QueueHarness) -> None:
    await two_runs(harness, ONE_AT_A_TIME)
    claim = await harness.claim(5, serves=["first"])
    late = await harness.run("late", scraper="late")
    await harness.add(late, "late", pace=ONE_AT_A_TIME)
    await harness.settle_all(claim)
    assert urls(await harness.claim(5, "w2", serves=["late"])) == ["late"]


async def test_a_lane_that_another_run_used_is_not_due_before_its_time(harness: QueueHarness) -> None:
    _, second = await two_runs(harness, MINUTE)
    assert (await harness.stats(second)).claimable > 0
    assert (await harness.claim(5, serves=["first"])).tasks
    assert (await harness.stats(second)).claimable == 0
    nothing = await harness.claim(5, "w2", serves=["second"])
    assert not nothing.tasks and nothing.next_in == pytest.approx(59.0, abs=1.5)
    await harness.advance(61.0)
    assert (await harness.claim(5, "w2", serves=["second"])).tasks


async def test_a_lane_that_was_parked_for_all_is_found_by_all_when_it_is_released(harness: QueueHarness) -> None:
    await two_runs(harness, UNLIMITED_PACE)
    await harness.queue.set_lane(LaneChange(LANE, park_for=3600.0, reason="asked to"))
    for name in ("first", "second"):
        assert not (await harness.claim(5, serves=[name])).tasks
    await harness.queue.set_lane(LaneChange(LANE, park_for=0.0))
    for name in ("first", "second"):
        assert (await harness.claim(5, serves=[name])).tasks


async def test_lanes_that_others_used_do_not_hide_one_that_is_free(harness: QueueHarness) -> None:
    lanes = tuple(f"h{number}.test" for number in range(40))
    _, second = await two_runs(harness, MINUTE, lanes)
    while (await harness.claim(50, serves=["first"])).tasks:
        pass
    await harness.advance(1.0)
    await harness.add(second, [page("free", "free.test")], pace=MINUTE)
    assert urls(await harness.claim(1, "w2", serves=["second"])) == ["free"]


@pytest.mark.parametrize("pace", [ONE_AT_A_TIME, Pace(0.5, 0), UNLIMITED_PACE], ids=["places", "spacing", "no limits"])
async def test_each_of_very_many_runs_gets_its_turn_in_a_lane(harness: QueueHarness, pace: Pace) -> None:
    runs = [await harness.run(f"k{number}") for number in range(40)]
    for run in runs:
        await harness.add(run, pages(3), pace=pace)
    got: Counter[int] = Counter()
    while got.total() < 2 * len(runs):
        claim = await harness.claim(1)
        got.update(task.run for task in claim.tasks)
        await harness.settle_all(claim)
        await harness.advance(0.5)
    assert set(got) == set(runs) and max(got.values()) <= 3, got
