"""Idle lanes: what nothing refers to any more goes after a while; what is known about a host does not."""

from __future__ import annotations

import pytest

from conformance.harness import LANE, QueueHarness, pages, urls
from shoal.core.lane import Pace
from shoal.core.task import LaneChange
from shoal.queue.base import LANE_KEPT_SECONDS, LEASE_SECONDS

MORE_THAN_A_DAY = LANE_KEPT_SECONDS + 10 * LEASE_SECONDS
HOST = "b.test"


async def visit(harness: QueueHarness, key: str = "crawl") -> int:
    """A run that had one page, and has ended."""
    run = await harness.run(key)
    await harness.add(run, "a")
    await harness.settle_all(await harness.claim())
    await harness.queue.set_run(run, "finish")
    return run


async def has_lane(harness: QueueHarness, name: str = LANE) -> bool:
    for _ in range(3):
        await harness.queue.reap()
    return bool(await harness.queue.lanes(names=[name]))


async def test_the_lane_of_a_removed_run_goes_a_day_after_its_last_slot(harness: QueueHarness) -> None:
    await harness.queue.purge(run=await visit(harness))
    assert await has_lane(harness), "it was used a moment ago"
    await harness.advance(MORE_THAN_A_DAY)
    assert not await has_lane(harness)
    assert not await harness.queue.lanes(order="name")


async def test_a_lane_that_history_names_stays(harness: QueueHarness) -> None:
    run, other = await visit(harness), await visit(harness, "other")
    await harness.queue.purge(run=other)
    await harness.advance(3 * MORE_THAN_A_DAY)
    assert await has_lane(harness)
    (task,) = await harness.queue.list_tasks(run)
    assert task.lane == LANE
    await harness.queue.purge(run=run)
    await harness.advance(MORE_THAN_A_DAY)
    assert not await has_lane(harness)


async def test_a_lane_with_waiting_tasks_stays(harness: QueueHarness) -> None:
    await harness.queue.purge(run=await visit(harness))
    run = await harness.run("next")
    await harness.add(run, "waits")
    await harness.advance(MORE_THAN_A_DAY)
    assert await has_lane(harness)
    assert urls(await harness.claim()) == ["waits"]


@pytest.mark.parametrize(
    "change",
    [
        LaneChange(LANE, spacing=7.0, reason="asked for it"),
        LaneChange(LANE, spacing_override=3.0),
        LaneChange(LANE, limit=2),
        LaneChange(LANE, hold_for=2 * MORE_THAN_A_DAY, reason="robots.txt"),
        LaneChange(LANE, park_for=60.0, reason="keeps failing"),
    ],
    ids=["learnt", "set", "limit", "held", "parked"],
)
async def test_what_is_known_about_a_host_is_not_lost(harness: QueueHarness, change: LaneChange) -> None:
    run = await visit(harness)
    await harness.queue.set_lane(change)
    await harness.queue.purge(run=run)
    await harness.advance(MORE_THAN_A_DAY)
    assert await has_lane(harness)


async def test_a_lane_goes_when_what_was_set_is_taken_back(harness: QueueHarness) -> None:
    await harness.queue.set_lane(LaneChange(HOST, spacing_override=3.0))
    await harness.advance(MORE_THAN_A_DAY)
    assert await has_lane(harness, HOST)
    await harness.queue.set_lane(LaneChange(HOST, spacing_override=-1.0))
    await harness.advance(MORE_THAN_A_DAY)
    assert not await has_lane(harness, HOST)


async def test_a_lane_that_was_only_reserved_goes_too(harness: QueueHarness) -> None:
    await harness.queue.reserve(HOST, Pace(1.0, 1))
    assert await has_lane(harness, HOST)
    await harness.advance(MORE_THAN_A_DAY)
    assert not await has_lane(harness, HOST)


async def test_a_lane_that_went_is_made_again(harness: QueueHarness) -> None:
    await harness.queue.purge(run=await visit(harness))
    await harness.advance(MORE_THAN_A_DAY)
    assert not await has_lane(harness)
    run = await harness.run("next")
    await harness.add(run, pages(2))
    assert len((await harness.claim()).tasks) == 2
    assert (await harness.lane()).in_flight == 2


async def test_of_many_lanes_all_go_a_few_at_a_time(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page for number in range(500) for page in pages(1, f"p{number}", f"h{number}.test")])
    await harness.queue.set_run(run, "cancel")
    await harness.queue.purge(run=run)
    await harness.advance(MORE_THAN_A_DAY)
    for _ in range(200):
        await harness.queue.reap()
        if not await harness.queue.lanes(limit=1):
            break
    assert not await harness.queue.lanes(limit=1)
