"""Lead and courtesy: what a run may catch up on, and when a slot is left to another worker's run."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, pages
from conformance.model import ModelQueue
from shoal.core.lane import Pace

RUN_LEAD, LANE_LEAD = 64, 16  # tasks, by weight
SPACING = 1.0


@pytest.fixture(autouse=True)
def needs_fairness(harness: QueueHarness) -> None:
    if isinstance(harness.queue, ModelQueue):
        pytest.skip("the model lets nobody catch up and leaves no slot to another, which is allowed")


async def take(harness: QueueHarness, count: int) -> None:
    """Have so many tasks handed out and done."""
    while count > 0:
        claim = await harness.claim(min(count, 50))
        await harness.settle_all(claim)
        count -= len(claim.tasks)


async def winners(harness: QueueHarness, count: int) -> list[int]:
    """The runs that get the next tasks, one claim each."""
    won = []
    for _ in range(count):
        leased = await harness.one()
        await harness.settle(leased)
        won.append(leased.run)
    return won


@pytest.mark.parametrize("weight", [1, 2])
async def test_a_run_that_had_nothing_to_do_catches_up_on_sixty_four_tasks_by_weight(
    harness: QueueHarness, weight: int
) -> None:
    harness.need_one_order()
    busy = [await harness.run(f"busy{number}") for number in range(2)]
    for run in busy:
        await harness.add(run, pages(150, lane=f"{run}.test"))
    late = await harness.run("late", weight=weight)
    await take(harness, 200)
    await harness.add(late, pages(200, lane="late.test"))
    won = await winners(harness, RUN_LEAD * weight + 2)
    assert won[:-2] == [late] * RUN_LEAD * weight
    assert late not in won[-2:], "then it has its share and no more"


@pytest.mark.parametrize("weight", [1, 3])
async def test_a_run_that_had_nothing_in_a_lane_catches_up_on_sixteen_tasks_by_weight(
    harness: QueueHarness, weight: int
) -> None:
    first, late = await harness.run("first"), await harness.run("late", weight=weight)
    await harness.add(first, pages(150, "f"))
    await harness.add(late, "early")
    await take(harness, 101)
    await harness.add(late, pages(100, "l"))
    won = await winners(harness, LANE_LEAD * weight + 1)
    assert won[:-1] == [late] * LANE_LEAD * weight
    assert won[-1] == first, "then it has its share and no more"


@pytest.mark.parametrize("weights", [(1, 10), (10, 1), (1, 1)])
async def test_a_run_that_comes_to_a_lane_starts_level_by_weight(
    harness: QueueHarness, weights: tuple[int, int]
) -> None:
    first, late = await harness.run("first", weight=weights[0]), await harness.run("late", weight=weights[1])
    await harness.add(first, pages(300, "f"))
    await take(harness, 200)
    await harness.add(late, pages(100, "l"))
    won = await winners(harness, 2 * sum(weights))
    assert abs(won.count(late) - 2 * weights[1]) <= 1, won


async def test_what_other_workers_took_of_a_lane_limits_the_lead_in_it_too(harness: QueueHarness) -> None:
    one, two = await rivals(harness, Pace(0.0, 100))
    for _ in range(50):
        await harness.settle(await harness.one("one", serves=["one"]))
    await harness.claim(1, "two", serves=["two"])
    both = await winners(harness, LANE_LEAD)
    assert both == [two] * (LANE_LEAD - 1) + [one]


async def rivals(harness: QueueHarness, pace: Pace = Pace(SPACING, 0), urgency: int = 0) -> tuple[int, int]:
    """Two runs that want the same lane, each with a worker of its own; the first may be more urgent."""
    one = await harness.run("one", name="one", priority=urgency)
    two = await harness.run("two", name="two")
    for run in (one, two):
        await harness.add(run, pages(60), pace)
    for name in ("one", "two"):
        await harness.claim(0, name, serves=[name])
    return one, two


async def gets(harness: QueueHarness, name: str, limit: int = 50) -> int:
    """How many tasks the worker of a run gets."""
    claim = await harness.claim(limit, name, serves=[name])
    await harness.settle_all(claim)
    return len(claim.tasks)


async def test_slots_to_come_are_not_hoarded_where_others_want_them(harness: QueueHarness) -> None:
    await rivals(harness)
    assert await gets(harness, "one") == 1
    assert [await gets(harness, name) for name in ("one", "two")] == [0, 0]
    await harness.advance(SPACING - 0.001)
    assert [await gets(harness, name) for name in ("one", "two")] == [0, 0]


async def test_slots_to_come_are_given_ahead_where_nobody_works_for_the_others(harness: QueueHarness) -> None:
    await rivals(harness)
    await harness.advance(10)
    assert await gets(harness, "one") == 3


@pytest.mark.parametrize(("moment", "taken"), [(0.0, 0), (0.249, 0), (0.25, 1)])
async def test_a_slot_is_left_to_who_had_less_for_a_quarter_of_the_spacing(
    harness: QueueHarness, moment: float, taken: int
) -> None:
    await rivals(harness)
    assert await gets(harness, "one") == 1
    await harness.advance(SPACING + moment)
    assert await gets(harness, "one") == taken
    assert await gets(harness, "two") == 1 - taken


async def test_a_slot_is_not_left_to_who_had_as_much(harness: QueueHarness) -> None:
    await rivals(harness)
    for name in ("one", "two", "one"):
        assert await gets(harness, name) == 1
        await harness.advance(SPACING)


async def test_a_slot_is_left_to_a_more_urgent_run_though_it_had_more(harness: QueueHarness) -> None:
    await rivals(harness, urgency=5)
    assert await gets(harness, "one", 1) == 1
    await harness.advance(SPACING)
    assert await gets(harness, "two") == 0
    await harness.advance(SPACING / 4)
    assert await gets(harness, "two") == 1, "it is not kept for it longer than a moment"


async def test_a_more_urgent_run_leaves_no_slot_but_the_sixteenth(harness: QueueHarness) -> None:
    await rivals(harness, urgency=5)
    for _ in range(14):
        assert await gets(harness, "one", 1) == 1
        await harness.advance(SPACING)
        assert await gets(harness, "two") == 0
    assert await gets(harness, "one", 1) == 1
    await harness.advance(SPACING)
    assert await gets(harness, "one", 1) == 0
    assert await gets(harness, "two") == 1
