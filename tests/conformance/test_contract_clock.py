"""A clock that steps back: everything lasts longer by the step at most, and nothing ends sooner."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, page, pages, urls
from conformance.model import ModelQueue
from shoal.core.lane import Pace
from shoal.core.task import LaneChange
from shoal.queue.base import ReapResult

STEP = 3600.0
LONGEST_WAIT = 60.0  # seconds for a slot, however far the clock went back


async def test_a_lease_ends_when_the_clock_comes_to_its_end_again_and_no_sooner(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    claim = await harness.claim(lease=10.0)
    await harness.advance(-STEP)
    assert await harness.queue.reap() == ReapResult()
    assert not (await harness.queue.extend("w1", {claim.lease: []}, lease=10.0)).lost
    await harness.advance(STEP + 9)
    assert await harness.queue.reap() == ReapResult()
    await harness.advance(2)
    assert await harness.queue.reap() == ReapResult(returned=2)


async def test_what_is_handed_out_meanwhile_has_its_own_time(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    before = await harness.one()
    await harness.advance(-STEP)
    after = await harness.claim(1, lease=10.0)
    assert after.lease > before.lease
    await harness.advance(11)
    assert await harness.queue.reap() == ReapResult(returned=1)
    assert await harness.settle(after.tasks[0]) == "stale"
    assert await harness.settle(before) == "ok"


async def test_delays_and_times_to_live_last_longer_by_the_step(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("late", delay=5.0), page("short", delay=5.0, ttl=8.0)])
    await harness.advance(-STEP)
    assert not (await harness.claim()).tasks
    await harness.advance(STEP + 4)
    assert not (await harness.claim()).tasks
    await harness.advance(2)
    assert urls(await harness.claim(1)) == ["late"]
    await harness.advance(3)
    assert (await harness.queue.reap()).expired == 1


async def test_what_was_due_is_handed_out_though_the_clock_says_it_is_not(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    await harness.advance(-STEP)
    assert len((await harness.claim()).tasks) == 3


@pytest.mark.parametrize("spacing", [0.5, 90.0])
async def test_no_host_waits_for_the_clock_longer_than_for_a_slot(harness: QueueHarness, spacing: float) -> None:
    if isinstance(harness.queue, ModelQueue):
        pytest.skip("the model waits for the clock, which is allowed")
    run = await harness.run()
    await harness.add(run, pages(9), Pace(spacing, 0))
    await harness.one()
    await harness.advance(-STEP)
    await harness.claim(1)
    await harness.advance(max(LONGEST_WAIT, spacing))
    assert (await harness.one()).url == "p1"


async def test_a_host_that_asked_for_quiet_gets_it(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    await harness.queue.set_lane(LaneChange("a.test", hold_for=20.0))
    await harness.advance(-STEP)
    assert not (await harness.claim()).tasks
    await harness.advance(STEP + 19 - 2)
    assert not [task for task in (await harness.claim()).tasks if task.start_in < 2.9]
    await harness.advance(4)
    assert (await harness.claim()).tasks
