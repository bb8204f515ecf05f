"""Rules: what a person says of a lane counts in place of all else."""

from __future__ import annotations

from itertools import pairwise

import pytest

from conformance.harness import LANE, QueueHarness, pages
from shoal.core.lane import Pace
from shoal.core.task import LaneChange

SECOND = 1_000_000


async def change(harness: QueueHarness, lane: str = LANE, **words: float) -> None:
    await harness.queue.set_lane(LaneChange(lane, **words))  # type: ignore[arg-type]


@pytest.mark.parametrize("rule", [0.0, 0.25, 30.0])
async def test_a_rule_replaces_what_runs_ask_and_what_was_learned(harness: QueueHarness, rule: float) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(2.0, 0))
    await change(harness, spacing=5.0)
    assert (await harness.lane()).spacing_override < 0
    await change(harness, spacing_override=rule)
    lane = await harness.lane()
    assert (lane.spacing_override, lane.spacing, lane.requested, lane.learned) == (rule, rule, 2.0, 5.0)


async def test_a_rule_taken_back_gives_way_to_the_others(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(2.0, 0))
    await change(harness, spacing_override=0.1)
    await change(harness, spacing_override=-1.0)
    assert ((await harness.lane()).spacing_override < 0, (await harness.lane()).spacing) == (True, 2.0)
    await change(harness, spacing=5.0)
    assert (await harness.lane()).spacing == 5.0


async def test_nothing_learned_or_asked_later_moves_a_rule(harness: QueueHarness) -> None:
    run = await harness.run("one")
    await harness.add(run, "a", pace=Pace(1.0, 1))
    await change(harness, spacing_override=0.5, limit=4)
    await change(harness, spacing=9.0)
    other = await harness.run("other")
    await harness.add(other, "b", pace=Pace(7.0, 3))
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight, lane.learned, lane.requested) == (0.5, 4, 9.0, 7.0)
    await harness.settle_all(await harness.claim(), lanes=(LaneChange(LANE, spacing=12.0),))
    await harness.queue.set_run(other, "cancel")
    assert ((await harness.lane()).spacing, (await harness.lane()).max_in_flight) == (0.5, 4)
    await change(harness, spacing_override=-1.0, limit=-1)
    assert ((await harness.lane()).spacing, (await harness.lane()).max_in_flight) == (12.0, 1)


async def test_tasks_are_spaced_by_the_rule(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(10.0, 0))
    await change(harness, spacing_override=0.5)
    claim = await harness.claim()
    slots = await harness.slots(claim)
    assert len(slots) >= 4 and {task.spacing for task in claim.tasks} == {0.5}
    assert min(later - earlier for earlier, later in pairwise(slots)) >= 0.5 * SECOND - 2


async def test_a_rule_of_nothing_lets_all_go_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(10.0, 2))
    await change(harness, spacing_override=0.0, limit=0)
    claim = await harness.claim()
    assert len(claim.tasks) == 10 and {task.start_in for task in claim.tasks} == {0.0}


async def test_a_slower_rule_counts_from_the_last_request(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b", pace=Pace(1.0, 0))
    await harness.one()
    await change(harness, spacing_override=10.0)
    assert (await harness.queue.reserve(LANE)).wait == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("back", [-1.0, 3.0])
async def test_a_rule_made_slower_or_taken_back_counts_from_the_last_request(
    harness: QueueHarness, back: float
) -> None:
    run = await harness.run()
    await harness.add(run, "a b", pace=Pace(3.0, 0))
    await change(harness, spacing_override=1.0)
    await harness.one()
    await change(harness, spacing_override=back)
    assert (await harness.queue.reserve(LANE)).wait == pytest.approx(3.0, abs=0.1)


async def test_a_limit_replaces_what_runs_ask(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(0.0, 1))
    await change(harness, limit=3)
    lane = await harness.lane()
    assert (lane.limit, lane.max_in_flight) == (3, 3)
    assert len((await harness.claim()).tasks) == 3
    assert not (await harness.claim()).tasks


async def test_a_limit_taken_back_gives_way_to_what_runs_ask(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(0.0, 2))
    await change(harness, limit=0)
    assert ((await harness.lane()).limit, (await harness.lane()).max_in_flight) == (0, 0)
    await change(harness, limit=-1)
    assert ((await harness.lane()).limit, (await harness.lane()).max_in_flight) == (-1, 2)
    assert len((await harness.claim()).tasks) == 2


async def test_a_smaller_limit_waits_until_enough_have_come_back(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10))
    held = await harness.claim(4)
    await change(harness, limit=2)
    assert not (await harness.claim()).tasks
    for leased in held.tasks[:2]:
        await harness.settle(leased)
    assert not (await harness.claim()).tasks
    await harness.settle(held.tasks[2])
    assert len((await harness.claim()).tasks) == 1


async def test_a_larger_limit_opens_a_full_lane_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(0.0, 1))
    await harness.one()
    assert not (await harness.claim()).tasks
    await change(harness, limit=5)
    assert len((await harness.claim()).tasks) == 4


async def test_a_parked_lane_is_probed_one_at_a_time_whatever_its_limit(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    await change(harness, limit=5, spacing_override=0.0, park_for=10.0)
    assert not (await harness.claim()).tasks
    await harness.advance(11)
    assert len((await harness.claim()).tasks) == 1


async def test_a_hold_is_obeyed_whatever_the_rule(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await change(harness, spacing_override=0.0, hold_for=20.0)
    assert not (await harness.claim()).tasks


async def test_a_rule_can_be_given_before_the_lane_is_known(harness: QueueHarness) -> None:
    await change(harness, "new.test", spacing_override=4.0, limit=1)
    run = await harness.run()
    await harness.add(run, pages(3, lane="new.test"), pace=Pace(0.5, 8))
    lane = await harness.lane("new.test")
    assert (lane.spacing, lane.max_in_flight, lane.requested) == (4.0, 1, 0.5)


async def test_rules_outlive_a_restart_and_the_runs(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=Pace(1.0, 1))
    await change(harness, spacing_override=0.5, limit=4)
    await harness.queue.set_run(run, "cancel")
    await harness.queue.purge(run=run)
    await harness.reopen()
    lane = await harness.lane()
    assert (lane.spacing_override, lane.limit, lane.spacing, lane.max_in_flight) == (0.5, 4, 0.5, 4)


async def test_a_rule_alone_leaves_holds_and_lessons_as_they_are(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await change(harness, hold_for=60.0, spacing=2.0)
    before = await harness.lane()
    await change(harness, limit=2)
    after = await harness.lane()
    assert (after.held_until, after.learned, after.spacing) == (before.held_until, 2.0, 2.0)


async def test_a_reserved_slot_keeps_to_the_rule_not_to_the_given_pace(harness: QueueHarness) -> None:
    await change(harness, "new.test", spacing_override=2.0)
    for number in range(3):
        slot = await harness.queue.reserve("new.test", Pace(9.0, 1))
        assert (slot.wait, slot.spacing) == (pytest.approx(2.0 * number, abs=1e-5), 2.0)
