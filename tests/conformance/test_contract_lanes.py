"""Lanes: the whole fleet is polite as one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from conformance.harness import LANE, QueueHarness, failed, outcome, page, pages
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.task import LaneChange
from shoal.queue.base import SLOT_HORIZON_SECONDS

SECOND = 1_000_000


async def drain(harness: QueueHarness, pace: float, rounds: int = 60) -> list[int]:
    """Claim as two workers would, small step by small step; when each request may start."""
    slots: list[int] = []
    for number in range(rounds):
        claim = await harness.claim(1 + number % 3, f"w{number % 2}")
        slots += await harness.slots(claim)
        await harness.settle_all(claim)
        await harness.advance(pace)
    return sorted(slots)


def gaps(slots: list[int]) -> list[float]:
    return [(later - earlier) / SECOND for earlier, later in pairwise(slots)]


@pytest.mark.parametrize("spacing", [0.25, 1.0, 3.0])
async def test_slots_of_a_lane_are_at_least_its_spacing_apart(harness: QueueHarness, spacing: float) -> None:
    run = await harness.run()
    await harness.add(run, pages(20), pace=Pace(spacing, 0))
    slots = await drain(harness, 0.4)
    assert len(slots) >= 5
    assert min(gaps(slots)) >= spacing - 1e-5


async def test_spacing_holds_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4), pace=Pace(5.0, 0))
    first = await harness.slots(await harness.claim())
    await harness.reopen()
    assert not (await harness.claim()).tasks
    await harness.advance(5.0)
    later = await harness.slots(await harness.claim())
    assert later[0] - first[-1] >= 5 * SECOND


async def test_a_claim_reserves_no_slot_beyond_the_horizon(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(20), pace=Pace(0.5, 0))
    claim = await harness.claim(20)
    assert 2 <= len(claim.tasks) <= 1 + SLOT_HORIZON_SECONDS / 0.5
    assert all(0 <= task.start_in <= SLOT_HORIZON_SECONDS for task in claim.tasks)
    assert min(gaps(await harness.slots(claim))) >= 0.5 - 1e-5


async def test_slots_of_two_claims_do_not_overlap(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(20), pace=Pace(0.5, 0))
    one = await harness.slots(await harness.claim(3, "w1"))
    await harness.advance(0.6)
    two = await harness.slots(await harness.claim(3, "w2"))
    await harness.advance(2.0)
    three = await harness.slots(await harness.claim(3, "w3"))
    assert min(gaps(one + two + three)) >= 0.5 - 1e-5


async def test_a_task_says_the_spacing_it_was_given_under(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("paced", "paced.test")], pace=Pace(1.5, 0))
    await harness.add(run, [page("free", "free.test")], pace=UNLIMITED_PACE)
    claim = await harness.claim()
    assert {task.url: task.spacing for task in claim.tasks} == {"paced": 1.5, "free": 0.0}


async def test_a_lane_without_spacing_starts_all_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(50))
    claim = await harness.claim(50)
    assert {task.start_in for task in claim.tasks} == {0.0}
    assert len(claim.tasks) == 50


async def test_never_more_in_flight_than_the_lane_allows(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(0.0, 3))
    first = await harness.claim(10, "w1")
    assert len(first.tasks) == 3
    assert not (await harness.claim(10, "w2")).tasks
    await harness.settle(first.tasks[0])
    assert len((await harness.claim(10, "w2")).tasks) == 1


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled"])
async def test_every_result_gives_the_place_in_flight_back(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a b", pace=Pace(0.0, 1))
    leased = await harness.one()
    assert (await harness.lane()).in_flight == 1
    await harness.settle(leased, result, cause="x", after=60.0)
    assert (await harness.lane()).in_flight == 0
    assert (await harness.one()).lane == LANE


async def test_the_default_pace_is_one_a_second_and_two_in_flight(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.add(run, pages(10))
    claim = await harness.claim()
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight) == (1.0, 2)
    assert 1 <= len(claim.tasks) <= 2


async def test_the_slowest_run_sets_the_pace_of_a_lane(harness: QueueHarness) -> None:
    slow, fast = await harness.run("slow", name="slow"), await harness.run("fast", name="fast")
    await harness.add(fast, pages(10, "f"), pace=Pace(0.0, 5))
    await harness.add(slow, pages(10, "s"), pace=Pace(2.0, 0))
    lane = await harness.lane()
    assert (lane.spacing, lane.requested, lane.max_in_flight) == (2.0, 2.0, 5)
    assert min(gaps(await drain(harness, 0.7))) >= 2.0 - 1e-5


@pytest.mark.parametrize("action", ["finish", "cancel"])
async def test_a_run_that_ended_asks_nothing_of_a_lane(harness: QueueHarness, action: str) -> None:
    slow, fast = await harness.run("slow", name="slow"), await harness.run("fast", name="fast")
    await harness.add(fast, pages(10, "f"), pace=Pace(0.0, 5))
    await harness.add(slow, "s", pace=Pace(8.0, 1))
    await harness.settle(await harness.one(serves=["slow"]))
    await harness.queue.set_run(slow, action)
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.0, 5)
    await harness.advance(8)
    assert len((await harness.claim()).tasks) == 5


async def test_a_pace_given_once_stays(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(4.0, 1))
    await harness.add(run, "b", pace=None)
    assert (await harness.lane()).spacing == 4.0


async def test_a_pace_given_again_replaces_the_old_one(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(4.0, 1))
    await harness.add(run, "b", pace=Pace(0.5, 7))
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.5, 7)


async def test_a_pace_given_with_known_tasks_replaces_the_old_one_too(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(0.5, 7))
    assert await harness.add(run, "a", pace=Pace(4.0, 1)) == ["known"]
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight) == (4.0, 1)


async def test_found_tasks_keep_the_pace_of_their_lane(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(0.5, 3))
    await harness.settle(await harness.one(), found=(page("b"),))
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.5, 3)


# hold, park, learned spacing


async def test_a_held_lane_hands_out_nothing_until_its_time(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.settle(await harness.one(), "retry", lanes=(LaneChange(LANE, hold_for=60.0, reason="429"),))
    until = await harness.queue.now() + 60 * SECOND
    await harness.advance(57.5)
    assert not (await harness.claim()).tasks
    await harness.advance(2.4)
    assert all(slot >= until for slot in await harness.slots(await harness.claim()))
    await harness.advance(0.2)
    assert (await harness.claim(worker="w2")).tasks or (await harness.stats(run)).leased


async def test_a_hold_moves_the_host_and_no_other(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("held", "held.test"), page("free", "free.test")])
    await harness.queue.set_lane(LaneChange("held.test", hold_for=60.0))
    assert [task.url for task in (await harness.claim()).tasks] == ["free"]


async def test_a_shorter_hold_does_not_shorten_a_longer_one(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_lane(LaneChange(LANE, hold_for=60.0))
    await harness.queue.set_lane(LaneChange(LANE, hold_for=5.0))
    await harness.advance(30)
    assert not (await harness.claim()).tasks


async def test_parking_for_less_does_not_shorten_a_hold(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_lane(LaneChange(LANE, hold_for=60.0))
    await harness.queue.set_lane(LaneChange(LANE, park_for=5.0, reason="tired"))
    await harness.advance(30)
    assert not (await harness.claim()).tasks


async def test_a_hold_is_shown_with_its_reason(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_lane(LaneChange(LANE, hold_for=60.0, reason="http.429"))
    lane = await harness.lane()
    assert lane.held_until == await harness.queue.now() + 60 * SECOND
    assert (lane.parked, lane.reason) == (False, "http.429")


async def test_a_parked_lane_is_shown_as_parked_and_hands_out_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_lane(LaneChange(LANE, park_for=600.0, reason="blocks us"))
    lane = await harness.lane()
    assert (lane.parked, lane.reason) == (True, "blocks us")
    assert not (await harness.claim()).tasks
    await harness.advance(601)
    assert not (await harness.lane()).parked
    assert (await harness.claim()).tasks


async def test_after_a_park_one_request_at_a_time_goes_out_to_find_out(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    await harness.queue.set_lane(LaneChange(LANE, park_for=60.0, reason="down"))
    await harness.advance(61)
    assert (await harness.stats(run)).claimable == 1
    claim = await harness.claim()
    assert [task.probe for task in claim.tasks] == [1]
    assert not (await harness.claim()).tasks
    park = LaneChange(LANE, park_for=60.0, reason="still down")
    await harness.settle(claim.tasks[0], "retry", after=0.0, lanes=(park,), **failed("connect"))
    assert not (await harness.claim()).tasks
    await harness.advance(61)
    again = await harness.one()
    assert again.probe == 2
    await harness.settle(again, lanes=(LaneChange(LANE, park_for=0.0),))
    assert [task.probe for task in (await harness.claim()).tasks] == [0] * 4


async def test_several_workers_that_park_a_lane_for_the_same_failures_park_it_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    for seconds in (60.0, 50.0):
        await harness.queue.set_lane(LaneChange(LANE, park_for=seconds, reason="down"))
    await harness.advance(61)
    assert (await harness.one()).probe == 1


async def test_parking_for_nothing_releases_the_lane(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_lane(LaneChange(LANE, park_for=600.0, reason="blocks us"))
    await harness.queue.set_lane(LaneChange(LANE, park_for=0.0))
    assert not (await harness.lane()).parked
    assert (await harness.claim()).tasks


async def test_a_hold_lives_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_lane(LaneChange(LANE, park_for=60.0, reason="blocks us"))
    await harness.reopen()
    assert (await harness.lane()).parked
    assert not (await harness.claim()).tasks


async def test_learned_spacing_slows_a_lane_and_zero_forgets_it(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(30), pace=Pace(0.5, 0))
    await harness.queue.set_lane(LaneChange(LANE, spacing=3.0))
    lane = await harness.lane()
    assert (lane.spacing, lane.requested, lane.learned) == (3.0, 0.5, 3.0)
    assert min(gaps(await drain(harness, 0.7, 20))) >= 3.0 - 1e-5
    await harness.queue.set_lane(LaneChange(LANE, spacing=0.0))
    assert ((await harness.lane()).spacing, (await harness.lane()).learned) == (0.5, 0.0)


async def test_learned_spacing_never_makes_a_lane_faster_than_asked(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(5.0, 0))
    await harness.queue.set_lane(LaneChange(LANE, spacing=1.0))
    assert (await harness.lane()).spacing == 5.0


async def test_a_lane_change_leaves_alone_what_it_does_not_name(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(1.0, 4))
    await harness.queue.set_lane(LaneChange(LANE, spacing=2.0))
    await harness.queue.set_lane(LaneChange(LANE, hold_for=10.0))
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight, lane.parked) == (2.0, 4, False)
    assert lane.held_until > 0


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled"])
async def test_lane_changes_count_with_every_result(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.settle(await harness.one(), result, cause="x", lanes=(LaneChange(LANE, hold_for=60.0),))
    assert (await harness.lane()).held_until > 0
    assert not (await harness.claim()).tasks


async def test_lane_changes_of_a_stale_outcome_are_dropped(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old = await harness.one()
    await harness.lose("w1")
    assert await harness.settle(old, lanes=(LaneChange(LANE, park_for=60.0, reason="late"),)) == "stale"
    assert not (await harness.lane()).parked


# reserve


async def test_reserved_slots_are_spaced_like_tasks(harness: QueueHarness) -> None:
    slots = []
    for _ in range(4):
        slot = await harness.queue.reserve("new.test", Pace(0.5, 0))
        slots.append(await harness.queue.now() + round(slot.wait * SECOND))
    assert slots[0] == await harness.queue.now()
    assert min(gaps(slots)) >= 0.5 - 1e-5


async def test_reserve_and_claim_share_the_slots_of_a_lane(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(0.5, 0))
    slots = await harness.slots(await harness.claim(2))
    for _ in range(2):
        slots.append(await harness.queue.now() + round((await harness.queue.reserve(LANE)).wait * SECOND))
    await harness.advance(1.2)
    slots += await harness.slots(await harness.claim(2))
    assert len(slots) >= 5
    assert min(gaps(sorted(slots))) >= 0.5 - 1e-5


async def test_reserve_waits_out_a_hold(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_lane(LaneChange(LANE, hold_for=20.0))
    slot = await harness.queue.reserve(LANE)
    assert slot.wait >= 20.0
    assert not slot.parked


async def test_reserve_in_a_parked_lane_takes_no_slot_and_says_why(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(5.0, 0))
    await harness.queue.set_lane(LaneChange(LANE, park_for=60.0, reason="blocks us"))
    for _ in range(3):
        assert (await harness.queue.reserve(LANE)).parked == "blocks us"
    await harness.advance(61)
    assert (await harness.queue.reserve(LANE)).wait == 0.0


async def test_reserving_is_not_being_in_flight(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(0.0, 1))
    await harness.queue.reserve(LANE)
    assert (await harness.lane()).in_flight == 0
    assert (await harness.claim()).tasks


# the account of places


async def test_places_in_flight_add_up_to_leased_tasks(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"{lane}{n}", f"{lane}.test") for lane in "abc" for n in range(4)])

    async def check() -> None:
        in_flight = sum(lane.in_flight for lane in await harness.queue.lanes())
        assert in_flight == (await harness.stats(run)).leased

    claim = await harness.claim(7)
    await check()
    one, two, three, four = claim.tasks[:4]
    await harness.queue.settle([outcome(one), outcome(two, "retry"), outcome(three, "dead", cause="x")])
    await check()
    await harness.lose("w1", [four.id])
    await check()
    await harness.claim(5)
    await harness.queue.set_run(run, "cancel")
    await check()


async def test_lanes_with_the_most_ready_work_come_first(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2, "s", "small.test"))
    await harness.add(run, pages(9, "b", "big.test") + pages(5, "m", "middle.test"))
    listed = await harness.queue.lanes(run=run)
    expected = [("big.test", 9), ("middle.test", 5), ("small.test", 2)]
    assert [(lane.name, lane.ready) for lane in listed] == expected
    assert [lane.name for lane in await harness.queue.lanes(limit=1)] == ["big.test"]


async def test_lanes_of_a_run_are_only_its_own(harness: QueueHarness) -> None:
    one, other = await harness.run("one", name="one"), await harness.run("other", name="other")
    await harness.add(one, [page("a", "one.test")])
    await harness.add(other, [page("a", "other.test")])
    assert [lane.name for lane in await harness.queue.lanes(run=one)] == ["one.test"]


async def test_a_slot_further_away_than_one_would_wait_is_not_taken(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(10.0, 0))
    await harness.one()
    far = await harness.queue.reserve(LANE, within=5.0)
    assert not far.taken and far.wait == pytest.approx(10.0, abs=0.1)
    near = await harness.queue.reserve(LANE, within=15.0)
    assert near.taken and near.wait == pytest.approx(10.0, abs=0.1) and near.spacing == 10.0


async def test_a_spacing_learned_counts_from_the_last_request(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b", pace=Pace(1.0, 0))
    await harness.one()
    await harness.queue.set_lane(LaneChange(LANE, spacing=10.0, reason="crawl-delay"))
    slot = await harness.queue.reserve(LANE)
    assert slot.wait == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize(("given", "expected"), [(5.0, 5.0), (0.1, 2.0), (2.0, 2.0)])
async def test_the_slower_of_the_lanes_own_pace_and_the_given_one_counts(
    harness: QueueHarness, given: float, expected: float
) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(2.0, 0))
    for number in range(3):
        slot = await harness.queue.reserve(LANE, Pace(given, 1))
        assert slot.wait == pytest.approx(number * expected, abs=1e-4)
        assert slot.spacing == expected
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight) == (2.0, 0), "the lane itself is as it was"


async def test_a_slow_request_beside_the_tasks_makes_the_next_task_wait(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b", pace=Pace(0.5, 0))
    await harness.queue.reserve(LANE, Pace(10.0, 1))
    assert not (await harness.claim()).tasks
    await harness.advance(10)
    assert (await harness.claim()).tasks


async def test_a_slower_pace_given_counts_also_where_no_run_asks(harness: QueueHarness) -> None:
    await harness.queue.reserve("new.test", Pace(1.0, 1))
    await harness.advance(1)
    assert (await harness.queue.reserve("new.test", Pace(4.0, 1))).wait == 0.0
    assert (await harness.queue.reserve("new.test")).wait == pytest.approx(4.0, abs=1e-4)
