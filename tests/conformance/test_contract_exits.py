"""Lanes are a host, or a host and the exit by which its requests leave: each with a pace of its own."""

from __future__ import annotations

from conformance.harness import QueueHarness, outcome, page, urls
from shoal.core.lane import Pace, lane_name
from shoal.core.task import LaneChange, RequestOptions

HOST = "shop.test"
PLAIN, NORTH, SOUTH = HOST, lane_name(HOST, "north"), lane_name(HOST, "south")
LANES = (PLAIN, NORTH, SOUTH)


async def test_lanes_of_one_host_are_paced_apart_by_exit(harness: QueueHarness) -> None:
    run = await harness.run()
    for lane in LANES:
        await harness.add(run, [page(f"{lane}/{n}", lane) for n in range(2)], Pace(10.0, 0))
    first = await harness.claim()
    assert sorted(urls(first)) == sorted(f"{lane}/0" for lane in LANES)
    assert {task.start_in for task in first.tasks} == {0.0}
    assert not (await harness.claim()).tasks
    await harness.advance(10.0)
    assert sorted(urls(await harness.claim())) == sorted(f"{lane}/1" for lane in LANES)


async def test_each_exit_has_its_own_places_in_flight(harness: QueueHarness) -> None:
    run = await harness.run()
    for lane in LANES:
        await harness.add(run, [page(f"{lane}/{n}", lane) for n in range(3)], Pace(0.0, 1))
    assert sorted(task.lane for task in (await harness.claim()).tasks) == sorted(LANES)
    assert {lane: (await harness.lane(lane)).in_flight for lane in LANES} == dict.fromkeys(LANES, 1)


async def test_what_one_exit_is_told_does_not_hold_the_others(harness: QueueHarness) -> None:
    run = await harness.run()
    for lane in LANES:
        await harness.add(run, [page(lane, lane)], Pace(1.0, 0))
    await harness.queue.set_lane(LaneChange(NORTH, hold_for=60.0, reason="asked to wait"))
    assert sorted(urls(await harness.claim())) == sorted([PLAIN, SOUTH])
    assert [lane.name for lane in await harness.queue.lanes(only="held")] == [NORTH]


async def test_a_slot_of_one_exit_is_none_of_another(harness: QueueHarness) -> None:
    assert (await harness.queue.reserve(NORTH, Pace(10.0, 1))).wait == 0.0
    assert (await harness.queue.reserve(SOUTH, Pace(10.0, 1))).wait == 0.0
    assert (await harness.queue.reserve(NORTH)).wait == 10.0


async def test_the_lane_of_a_found_task_and_its_exit_come_back_as_they_were(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "start")
    found = page("next", SOUTH, request_options=RequestOptions(exit="south"))
    await harness.queue.settle([outcome(await harness.one(), found=(found,))])
    leased = await harness.one()
    assert (leased.lane, leased.request_options) == (SOUTH, RequestOptions(exit="south"))
    assert [lane.name for lane in await harness.queue.lanes(like=f"{HOST}@")] == [SOUTH]
