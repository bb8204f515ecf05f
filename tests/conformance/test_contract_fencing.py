"""Fencing: nobody settles what was given to another, and nothing counts twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conformance.harness import LANE, QueueHarness, outcome, page
from shoal.core.task import Attempt, LaneChange, LeasedTask

RECORDS = (b'{"n":1}', b'{"n":2}')


async def two_holders(harness: QueueHarness, run: int) -> tuple[LeasedTask, LeasedTask]:
    """A task whose worker was too slow, and the same task in the hands of another."""
    old = await harness.one("slow", lease=5.0)
    await harness.advance(6)
    await harness.queue.reap()
    new = await harness.one("quick", lease=60.0)
    assert old.id == new.id
    assert new.lease > old.lease
    return old, new


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled", "part"])
async def test_a_late_answer_is_stale_and_nothing_of_it_is_kept(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old, new = await two_holders(harness, run)
    before = await harness.stats(run)
    late = outcome(
        old, result, cause="late", records=RECORDS, found=(page("b"),), skipped=(("scope", "x"),),
        lanes=(LaneChange(LANE, hold_for=600.0),), attempt=Attempt(at=1, worker="slow", size=5),
    )  # fmt: skip
    assert await harness.queue.settle([late]) == ["stale"]
    after = await harness.stats(run)
    assert after.stale == before.stale + 1
    assert (after.leased, after.seen, after.records, after.skipped, after.bytes) == (1, 1, 0, {}, 0)
    assert (await harness.lane()).held_until == 0
    assert await harness.settle(new) == "ok"


async def test_an_answer_is_stale_as_soon_as_its_lease_was_reaped(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old = await harness.one(lease=5.0)
    await harness.advance(6)
    await harness.queue.reap()
    assert await harness.settle(old, records=RECORDS) == "stale"
    assert (await harness.stats(run)).ready == 1


async def test_a_late_answer_after_the_other_finished_is_stale(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old, new = await two_holders(harness, run)
    assert await harness.settle(new, records=RECORDS) == "ok"
    assert await harness.settle(old, records=RECORDS) == "stale"
    assert (await harness.stats(run)).records == 2


@pytest.mark.parametrize("wrong", [-1, 1])
async def test_a_lease_number_that_was_never_given_is_stale(harness: QueueHarness, wrong: int) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    assert await harness.settle(replace(leased, lease=leased.lease + wrong)) == "stale"
    assert (await harness.stats(run)).leased == 1


async def test_a_lease_covers_only_its_own_tasks(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    one, other = await harness.one("w1"), await harness.one("w2")
    assert await harness.settle(replace(one, lease=other.lease)) == "stale"
    assert (await harness.stats(run)).leased == 2


async def test_a_task_that_never_was_is_stale(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    assert await harness.settle(replace(leased, id=leased.id + 77)) == "stale"


async def test_fencing_holds_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old, new = await two_holders(harness, run)
    await harness.reopen()
    assert await harness.settle(old) == "stale"
    assert await harness.settle(new) == "ok"


async def test_fencing_holds_when_the_clock_steps_back(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old = await harness.one("slow")
    await harness.lose("slow")
    await harness.advance(-5)
    new = await harness.one("quick")
    assert new.lease > old.lease
    assert await harness.settle(old) == "stale"
    assert await harness.settle(new) == "ok"


# repeating


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled"])
async def test_the_same_outcome_twice_is_already(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    words = {"cause": "x", "after": 5.0, "records": RECORDS if result == "done" else ()}
    assert await harness.settle(leased, result, **words) == "ok"
    before = await harness.stats(run)
    assert await harness.settle(leased, result, **words) == "already"
    assert await harness.stats(run) == before
    assert before.stale == 0


async def test_a_second_answer_does_not_change_the_first(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.settle(leased, records=RECORDS)
    assert await harness.settle(leased, "retry", cause="changed my mind") == "already"
    assert await harness.state_of(run, "a") == "done"


async def test_a_settled_pair_is_remembered_for_two_leases(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one(lease=30.0)
    await harness.settle(leased, records=RECORDS)
    await harness.advance(59)
    await harness.queue.reap()
    assert await harness.settle(leased, records=RECORDS) == "already"


@pytest.mark.parametrize("result", ["retry", "released"])
async def test_a_repeated_answer_is_already_when_the_task_went_on(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    first = await harness.one("w1")
    await harness.settle(first, result, cause="x")
    second = await harness.one("w2")
    assert await harness.settle(first, result, cause="x") == "already"
    assert await harness.settle(second) == "ok"
    assert await harness.settle(first, result, cause="x") == "already"
    assert (await harness.stats(run)).stale == 0


async def test_the_same_pair_twice_in_one_call_counts_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    twice = [outcome(leased, records=RECORDS)] * 2
    assert await harness.queue.settle(twice) == ["ok", "already"]
    assert (await harness.stats(run)).records == 2


async def test_links_of_a_repeated_part_are_not_duplicated(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    for _ in range(2):
        assert await harness.settle(leased, "part", found=(page("b"),)) == "ok"
    assert (await harness.stats(run)).seen == 2


async def test_a_part_after_the_end_adds_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.settle(leased)
    assert await harness.settle(leased, "part", found=(page("b"),)) in ("already", "stale")
    assert (await harness.stats(run)).seen == 1


async def test_a_stale_outcome_does_not_harm_its_neighbours(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old, new = await two_holders(harness, run)
    await harness.add(run, "b")
    other = await harness.one()
    assert await harness.queue.settle([outcome(old), outcome(other), outcome(new)]) == ["stale", "ok", "ok"]
    assert (await harness.stats(run)).done == 2
