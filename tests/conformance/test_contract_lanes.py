"""Lanes: the whole fleet is polite as one."""

from __future__ import annotations

from itertools import pairwise

import pytest

from conformance.world import LANE, World, failed, outcome, page, pages
from shoal.core.lane import FREE, Pace
from shoal.core.task import LaneChange
from shoal.queue.base import SLOT_HORIZON

SECOND = 1_000_000


async def drain(world: World, pace: float, rounds: int = 60) -> list[int]:
    """Claim as two workers would, small step by small step; when each request may start."""
    slots: list[int] = []
    for number in range(rounds):
        claim = await world.claim(1 + number % 3, f"w{number % 2}")
        slots += await world.slots(claim)
        await world.settle_all(claim)
        await world.advance(pace)
    return sorted(slots)


def gaps(slots: list[int]) -> list[float]:
    return [(later - earlier) / SECOND for earlier, later in pairwise(slots)]


@pytest.mark.parametrize("spacing", [0.25, 1.0, 3.0])
async def test_slots_of_a_lane_are_at_least_its_spacing_apart(world: World, spacing: float) -> None:
    run = await world.run()
    await world.add(run, pages(20), pace=Pace(spacing, 0))
    slots = await drain(world, 0.4)
    assert len(slots) >= 5
    assert min(gaps(slots)) >= spacing - 1e-5


async def test_spacing_holds_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4), pace=Pace(5.0, 0))
    first = await world.slots(await world.claim())
    await world.reopen()
    assert not (await world.claim()).tasks
    await world.advance(5.0)
    later = await world.slots(await world.claim())
    assert later[0] - first[-1] >= 5 * SECOND


async def test_a_claim_reserves_no_slot_beyond_the_horizon(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(20), pace=Pace(0.5, 0))
    claim = await world.claim(20)
    assert 2 <= len(claim.tasks) <= 1 + SLOT_HORIZON / 0.5
    assert all(0 <= task.start_in <= SLOT_HORIZON for task in claim.tasks)
    assert min(gaps(await world.slots(claim))) >= 0.5 - 1e-5


async def test_slots_of_two_claims_do_not_overlap(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(20), pace=Pace(0.5, 0))
    one = await world.slots(await world.claim(3, "w1"))
    await world.advance(0.6)
    two = await world.slots(await world.claim(3, "w2"))
    await world.advance(2.0)
    three = await world.slots(await world.claim(3, "w3"))
    assert min(gaps(one + two + three)) >= 0.5 - 1e-5


async def test_a_task_says_the_spacing_it_was_given_under(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("paced", "paced.test")], pace=Pace(1.5, 0))
    await world.add(run, [page("free", "free.test")], pace=FREE)
    claim = await world.claim()
    assert {task.url: task.spacing for task in claim.tasks} == {"paced": 1.5, "free": 0.0}


async def test_a_lane_without_spacing_starts_all_at_once(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(50))
    claim = await world.claim(50)
    assert {task.start_in for task in claim.tasks} == {0.0}
    assert len(claim.tasks) == 50


async def test_never_more_in_flight_than_the_lane_allows(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(0.0, 3))
    first = await world.claim(10, "w1")
    assert len(first.tasks) == 3
    assert not (await world.claim(10, "w2")).tasks
    await world.settle(first.tasks[0])
    assert len((await world.claim(10, "w2")).tasks) == 1


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled"])
async def test_every_result_gives_the_place_in_flight_back(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a b", pace=Pace(0.0, 1))
    leased = await world.one()
    assert (await world.lane()).in_flight == 1
    await world.settle(leased, result, cause="x", after=60.0)
    assert (await world.lane()).in_flight == 0
    assert (await world.one()).lane == LANE


async def test_the_default_pace_is_one_a_second_and_two_in_flight(world: World) -> None:
    run = await world.run()
    await world.queue.add(run, pages(10))
    claim = await world.claim()
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight) == (1.0, 2)
    assert 1 <= len(claim.tasks) <= 2


async def test_the_slowest_run_sets_the_pace_of_a_lane(world: World) -> None:
    slow, fast = await world.run("slow", name="slow"), await world.run("fast", name="fast")
    await world.add(fast, pages(10, "f"), pace=Pace(0.0, 5))
    await world.add(slow, pages(10, "s"), pace=Pace(2.0, 0))
    lane = await world.lane()
    assert (lane.spacing, lane.asked, lane.max_in_flight) == (2.0, 2.0, 5)
    assert min(gaps(await drain(world, 0.7))) >= 2.0 - 1e-5


@pytest.mark.parametrize("action", ["finish", "cancel"])
async def test_a_run_that_ended_asks_nothing_of_a_lane(world: World, action: str) -> None:
    slow, fast = await world.run("slow", name="slow"), await world.run("fast", name="fast")
    await world.add(fast, pages(10, "f"), pace=Pace(0.0, 5))
    await world.add(slow, "s", pace=Pace(8.0, 1))
    await world.settle(await world.one(serves=["slow"]))
    await world.queue.set_run(slow, action)
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.0, 5)
    await world.advance(8)
    assert len((await world.claim()).tasks) == 5


async def test_a_pace_given_once_stays(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(4.0, 1))
    await world.add(run, "b", pace=None)
    assert (await world.lane()).spacing == 4.0


async def test_a_pace_given_again_replaces_the_old_one(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(4.0, 1))
    await world.add(run, "b", pace=Pace(0.5, 7))
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.5, 7)


async def test_a_pace_given_with_known_tasks_replaces_the_old_one_too(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(0.5, 7))
    assert await world.add(run, "a", pace=Pace(4.0, 1)) == ["known"]
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight) == (4.0, 1)


async def test_found_tasks_keep_the_pace_of_their_lane(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(0.5, 3))
    await world.settle(await world.one(), found=(page("b"),))
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.5, 3)


# hold, park, learned spacing


async def test_a_held_lane_hands_out_nothing_until_its_time(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.settle(await world.one(), "retry", lanes=(LaneChange(LANE, hold_for=60.0, reason="429"),))
    until = await world.queue.now() + 60 * SECOND
    await world.advance(57.5)
    assert not (await world.claim()).tasks
    await world.advance(2.4)
    assert all(slot >= until for slot in await world.slots(await world.claim()))
    await world.advance(0.2)
    assert (await world.claim(worker="w2")).tasks or (await world.stats(run)).leased


async def test_a_hold_moves_the_host_and_no_other(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("held", "held.test"), page("free", "free.test")])
    await world.queue.set_lane(LaneChange("held.test", hold_for=60.0))
    assert [task.url for task in (await world.claim()).tasks] == ["free"]


async def test_a_shorter_hold_does_not_shorten_a_longer_one(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_lane(LaneChange(LANE, hold_for=60.0))
    await world.queue.set_lane(LaneChange(LANE, hold_for=5.0))
    await world.advance(30)
    assert not (await world.claim()).tasks


async def test_parking_for_less_does_not_shorten_a_hold(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_lane(LaneChange(LANE, hold_for=60.0))
    await world.queue.set_lane(LaneChange(LANE, park_for=5.0, reason="tired"))
    await world.advance(30)
    assert not (await world.claim()).tasks


async def test_a_hold_is_shown_with_its_reason(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_lane(LaneChange(LANE, hold_for=60.0, reason="http.429"))
    lane = await world.lane()
    assert lane.held_until == await world.queue.now() + 60 * SECOND
    assert (lane.parked, lane.reason) == (False, "http.429")


async def test_a_parked_lane_is_shown_as_parked_and_hands_out_nothing(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_lane(LaneChange(LANE, park_for=600.0, reason="blocks us"))
    lane = await world.lane()
    assert (lane.parked, lane.reason) == (True, "blocks us")
    assert not (await world.claim()).tasks
    await world.advance(601)
    assert not (await world.lane()).parked
    assert (await world.claim()).tasks


async def test_after_a_park_one_request_at_a_time_goes_out_to_find_out(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    await world.queue.set_lane(LaneChange(LANE, park_for=60.0, reason="down"))
    await world.advance(61)
    assert (await world.stats(run)).claimable == 1
    claim = await world.claim()
    assert [task.probe for task in claim.tasks] == [1]
    assert not (await world.claim()).tasks
    park = LaneChange(LANE, park_for=60.0, reason="still down")
    await world.settle(claim.tasks[0], "retry", after=0.0, lanes=(park,), **failed("connect"))
    assert not (await world.claim()).tasks
    await world.advance(61)
    again = await world.one()
    assert again.probe == 2
    await world.settle(again, lanes=(LaneChange(LANE, park_for=0.0),))
    assert [task.probe for task in (await world.claim()).tasks] == [0] * 4


async def test_several_workers_that_park_a_lane_for_the_same_failures_park_it_once(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    for seconds in (60.0, 50.0):
        await world.queue.set_lane(LaneChange(LANE, park_for=seconds, reason="down"))
    await world.advance(61)
    assert (await world.one()).probe == 1


async def test_parking_for_nothing_releases_the_lane(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_lane(LaneChange(LANE, park_for=600.0, reason="blocks us"))
    await world.queue.set_lane(LaneChange(LANE, park_for=0.0))
    assert not (await world.lane()).parked
    assert (await world.claim()).tasks


async def test_a_hold_lives_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_lane(LaneChange(LANE, park_for=60.0, reason="blocks us"))
    await world.reopen()
    assert (await world.lane()).parked
    assert not (await world.claim()).tasks


async def test_learned_spacing_slows_a_lane_and_zero_forgets_it(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(30), pace=Pace(0.5, 0))
    await world.queue.set_lane(LaneChange(LANE, spacing=3.0))
    lane = await world.lane()
    assert (lane.spacing, lane.asked, lane.learned) == (3.0, 0.5, 3.0)
    assert min(gaps(await drain(world, 0.7, 20))) >= 3.0 - 1e-5
    await world.queue.set_lane(LaneChange(LANE, spacing=0.0))
    assert ((await world.lane()).spacing, (await world.lane()).learned) == (0.5, 0.0)


async def test_learned_spacing_never_makes_a_lane_faster_than_asked(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(5.0, 0))
    await world.queue.set_lane(LaneChange(LANE, spacing=1.0))
    assert (await world.lane()).spacing == 5.0


async def test_a_lane_change_leaves_alone_what_it_does_not_name(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(1.0, 4))
    await world.queue.set_lane(LaneChange(LANE, spacing=2.0))
    await world.queue.set_lane(LaneChange(LANE, hold_for=10.0))
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight, lane.parked) == (2.0, 4, False)
    assert lane.held_until > 0


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled"])
async def test_lane_changes_count_with_every_result(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.settle(await world.one(), result, cause="x", lanes=(LaneChange(LANE, hold_for=60.0),))
    assert (await world.lane()).held_until > 0
    assert not (await world.claim()).tasks


async def test_lane_changes_of_a_stale_outcome_are_dropped(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old = await world.one()
    await world.lose("w1")
    assert await world.settle(old, lanes=(LaneChange(LANE, park_for=60.0, reason="late"),)) == "stale"
    assert not (await world.lane()).parked


# reserve


async def test_reserved_slots_are_spaced_like_tasks(world: World) -> None:
    slots = []
    for _ in range(4):
        slot = await world.queue.reserve("new.test", Pace(0.5, 0))
        slots.append(await world.queue.now() + round(slot.wait * SECOND))
    assert slots[0] == await world.queue.now()
    assert min(gaps(slots)) >= 0.5 - 1e-5


async def test_reserve_and_claim_share_the_slots_of_a_lane(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(0.5, 0))
    slots = await world.slots(await world.claim(2))
    for _ in range(2):
        slots.append(await world.queue.now() + round((await world.queue.reserve(LANE)).wait * SECOND))
    await world.advance(1.2)
    slots += await world.slots(await world.claim(2))
    assert len(slots) >= 5
    assert min(gaps(sorted(slots))) >= 0.5 - 1e-5


async def test_reserve_waits_out_a_hold(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_lane(LaneChange(LANE, hold_for=20.0))
    slot = await world.queue.reserve(LANE)
    assert slot.wait >= 20.0
    assert not slot.parked


async def test_reserve_in_a_parked_lane_takes_no_slot_and_says_why(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(5.0, 0))
    await world.queue.set_lane(LaneChange(LANE, park_for=60.0, reason="blocks us"))
    for _ in range(3):
        assert (await world.queue.reserve(LANE)).parked == "blocks us"
    await world.advance(61)
    assert (await world.queue.reserve(LANE)).wait == 0.0


async def test_reserving_is_not_being_in_flight(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(0.0, 1))
    await world.queue.reserve(LANE)
    assert (await world.lane()).in_flight == 0
    assert (await world.claim()).tasks


# the account of places


async def test_places_in_flight_add_up_to_leased_tasks(world: World) -> None:
    run = await world.run()
    await world.add(run, [page(f"{lane}{n}", f"{lane}.test") for lane in "abc" for n in range(4)])

    async def check() -> None:
        in_flight = sum(lane.in_flight for lane in await world.queue.lanes())
        assert in_flight == (await world.stats(run)).leased

    claim = await world.claim(7)
    await check()
    one, two, three, four = claim.tasks[:4]
    await world.queue.settle([outcome(one), outcome(two, "retry"), outcome(three, "dead", cause="x")])
    await check()
    await world.lose("w1", [four.id])
    await check()
    await world.claim(5)
    await world.queue.set_run(run, "cancel")
    await check()


async def test_lanes_with_the_most_ready_work_come_first(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(2, "s", "small.test"))
    await world.add(run, pages(9, "b", "big.test") + pages(5, "m", "middle.test"))
    listed = await world.queue.lanes(run=run)
    expected = [("big.test", 9), ("middle.test", 5), ("small.test", 2)]
    assert [(lane.name, lane.ready) for lane in listed] == expected
    assert [lane.name for lane in await world.queue.lanes(limit=1)] == ["big.test"]


async def test_lanes_of_a_run_are_only_its_own(world: World) -> None:
    one, other = await world.run("one", name="one"), await world.run("other", name="other")
    await world.add(one, [page("a", "one.test")])
    await world.add(other, [page("a", "other.test")])
    assert [lane.name for lane in await world.queue.lanes(run=one)] == ["one.test"]


async def test_a_slot_further_away_than_one_would_wait_is_not_taken(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(10.0, 0))
    await world.one()
    far = await world.queue.reserve(LANE, within=5.0)
    assert not far.taken and far.wait == pytest.approx(10.0, abs=0.1)
    near = await world.queue.reserve(LANE, within=15.0)
    assert near.taken and near.wait == pytest.approx(10.0, abs=0.1) and near.spacing == 10.0


async def test_a_spacing_learned_counts_from_the_last_request(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b", pace=Pace(1.0, 0))
    await world.one()
    await world.queue.set_lane(LaneChange(LANE, spacing=10.0, reason="crawl-delay"))
    slot = await world.queue.reserve(LANE)
    assert slot.wait == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize(("given", "expected"), [(5.0, 5.0), (0.1, 2.0), (2.0, 2.0)])
async def test_the_slower_of_the_lanes_own_pace_and_the_given_one_counts(
    world: World, given: float, expected: float
) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(2.0, 0))
    for number in range(3):
        slot = await world.queue.reserve(LANE, Pace(given, 1))
        assert slot.wait == pytest.approx(number * expected, abs=1e-4)
        assert slot.spacing == expected
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight) == (2.0, 0), "the lane itself is as it was"


async def test_a_slow_request_beside_the_tasks_makes_the_next_task_wait(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b", pace=Pace(0.5, 0))
    await world.queue.reserve(LANE, Pace(10.0, 1))
    assert not (await world.claim()).tasks
    await world.advance(10)
    assert (await world.claim()).tasks


async def test_a_slower_pace_given_counts_also_where_no_run_asks(world: World) -> None:
    await world.queue.reserve("new.test", Pace(1.0, 1))
    await world.advance(1)
    assert (await world.queue.reserve("new.test", Pace(4.0, 1))).wait == 0.0
    assert (await world.queue.reserve("new.test")).wait == pytest.approx(4.0, abs=1e-4)
