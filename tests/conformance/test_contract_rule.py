"""Rules: what a person says of a lane counts in place of all else."""

from __future__ import annotations

from itertools import pairwise

import pytest

from conformance.world import LANE, World, pages
from shoal.core.lane import Pace
from shoal.core.task import LaneChange

SECOND = 1_000_000


async def change(world: World, lane: str = LANE, **words: float) -> None:
    await world.queue.set_lane(LaneChange(lane, **words))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [0.0, 0.25, 30.0])
async def test_a_rule_replaces_what_runs_ask_and_what_was_learned(world: World, rule: float) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(2.0, 0))
    await change(world, spacing=5.0)
    assert (await world.lane()).rule < 0
    await change(world, rule=rule)
    lane = await world.lane()
    assert (lane.rule, lane.spacing, lane.asked, lane.learned) == (rule, rule, 2.0, 5.0)


async def test_a_rule_taken_back_gives_way_to_the_others(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(2.0, 0))
    await change(world, rule=0.1)
    await change(world, rule=-1.0)
    assert ((await world.lane()).rule < 0, (await world.lane()).spacing) == (True, 2.0)
    await change(world, spacing=5.0)
    assert (await world.lane()).spacing == 5.0


async def test_nothing_learned_or_asked_later_moves_a_rule(world: World) -> None:
    run = await world.run("one")
    await world.add(run, "a", pace=Pace(1.0, 1))
    await change(world, rule=0.5, limit=4)
    await change(world, spacing=9.0)
    other = await world.run("other")
    await world.add(other, "b", pace=Pace(7.0, 3))
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight, lane.learned, lane.asked) == (0.5, 4, 9.0, 7.0)
    await world.settle_all(await world.claim(), lanes=(LaneChange(LANE, spacing=12.0),))
    await world.queue.set_run(other, "cancel")
    assert ((await world.lane()).spacing, (await world.lane()).max_in_flight) == (0.5, 4)
    await change(world, rule=-1.0, limit=-1)
    assert ((await world.lane()).spacing, (await world.lane()).max_in_flight) == (12.0, 1)


async def test_tasks_are_spaced_by_the_rule(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(10.0, 0))
    await change(world, rule=0.5)
    claim = await world.claim()
    slots = await world.slots(claim)
    assert len(slots) >= 4 and {task.spacing for task in claim.tasks} == {0.5}
    assert min(later - earlier for earlier, later in pairwise(slots)) >= 0.5 * SECOND - 2


async def test_a_rule_of_nothing_lets_all_go_at_once(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(10.0, 2))
    await change(world, rule=0.0, limit=0)
    claim = await world.claim()
    assert len(claim.tasks) == 10 and {task.start_in for task in claim.tasks} == {0.0}


async def test_a_slower_rule_counts_from_the_last_request(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b", pace=Pace(1.0, 0))
    await world.one()
    await change(world, rule=10.0)
    assert (await world.queue.reserve(LANE)).wait == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("back", [-1.0, 3.0])
async def test_a_rule_made_slower_or_taken_back_counts_from_the_last_request(
    world: World, back: float
) -> None:
    run = await world.run()
    await world.add(run, "a b", pace=Pace(3.0, 0))
    await change(world, rule=1.0)
    await world.one()
    await change(world, rule=back)
    assert (await world.queue.reserve(LANE)).wait == pytest.approx(3.0, abs=0.1)


async def test_a_limit_replaces_what_runs_ask(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(0.0, 1))
    await change(world, limit=3)
    lane = await world.lane()
    assert (lane.limit, lane.max_in_flight) == (3, 3)
    assert len((await world.claim()).tasks) == 3
    assert not (await world.claim()).tasks


async def test_a_limit_taken_back_gives_way_to_what_runs_ask(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(0.0, 2))
    await change(world, limit=0)
    assert ((await world.lane()).limit, (await world.lane()).max_in_flight) == (0, 0)
    await change(world, limit=-1)
    assert ((await world.lane()).limit, (await world.lane()).max_in_flight) == (-1, 2)
    assert len((await world.claim()).tasks) == 2


async def test_a_smaller_limit_waits_until_enough_have_come_back(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10))
    held = await world.claim(4)
    await change(world, limit=2)
    assert not (await world.claim()).tasks
    for leased in held.tasks[:2]:
        await world.settle(leased)
    assert not (await world.claim()).tasks
    await world.settle(held.tasks[2])
    assert len((await world.claim()).tasks) == 1


async def test_a_larger_limit_opens_a_full_lane_at_once(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(0.0, 1))
    await world.one()
    assert not (await world.claim()).tasks
    await change(world, limit=5)
    assert len((await world.claim()).tasks) == 4


async def test_a_parked_lane_is_probed_one_at_a_time_whatever_its_limit(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    await change(world, limit=5, rule=0.0, park_for=10.0)
    assert not (await world.claim()).tasks
    await world.advance(11)
    assert len((await world.claim()).tasks) == 1


async def test_a_hold_is_obeyed_whatever_the_rule(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await change(world, rule=0.0, hold_for=20.0)
    assert not (await world.claim()).tasks


async def test_a_rule_can_be_given_before_the_lane_is_known(world: World) -> None:
    await change(world, "new.test", rule=4.0, limit=1)
    run = await world.run()
    await world.add(run, pages(3, lane="new.test"), pace=Pace(0.5, 8))
    lane = await world.lane("new.test")
    assert (lane.spacing, lane.max_in_flight, lane.asked) == (4.0, 1, 0.5)


async def test_rules_outlive_a_restart_and_the_runs(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=Pace(1.0, 1))
    await change(world, rule=0.5, limit=4)
    await world.queue.set_run(run, "cancel")
    await world.queue.purge(run=run)
    await world.reopen()
    lane = await world.lane()
    assert (lane.rule, lane.limit, lane.spacing, lane.max_in_flight) == (0.5, 4, 0.5, 4)


async def test_a_rule_alone_leaves_holds_and_lessons_as_they_are(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await change(world, hold_for=60.0, spacing=2.0)
    before = await world.lane()
    await change(world, limit=2)
    after = await world.lane()
    assert (after.held_until, after.learned, after.spacing) == (before.held_until, 2.0, 2.0)


async def test_a_reserved_slot_keeps_to_the_rule_not_to_the_given_pace(world: World) -> None:
    await change(world, "new.test", rule=2.0)
    for number in range(3):
        slot = await world.queue.reserve("new.test", Pace(9.0, 1))
        assert (slot.wait, slot.spacing) == (pytest.approx(2.0 * number, abs=1e-5), 2.0)
