"""Fencing: nobody settles what was given to another, and nothing counts twice."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from conformance.world import LANE, World, outcome, page
from shoal.core.task import Attempt, LaneChange, Leased

RECORDS = (b'{"n":1}', b'{"n":2}')


async def two_holders(world: World, run: int) -> tuple[Leased, Leased]:
    """A task whose worker was too slow, and the same task in the hands of another."""
    old = await world.one("slow", lease=5.0)
    await world.advance(6)
    await world.queue.reap()
    new = await world.one("quick", lease=60.0)
    assert old.id == new.id
    assert new.lease > old.lease
    return old, new


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled", "part"])
async def test_a_late_answer_is_stale_and_nothing_of_it_is_kept(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a")
    old, new = await two_holders(world, run)
    before = await world.stats(run)
    late = outcome(
        old, result, cause="late", records=RECORDS, found=(page("b"),), skipped=(("scope", "x"),),
        lanes=(LaneChange(LANE, hold_for=600.0),), attempt=Attempt(at=1, worker="slow", size=5),
    )  # fmt: skip
    assert await world.queue.settle([late]) == ["stale"]
    after = await world.stats(run)
    assert after.stale == before.stale + 1
    assert (after.leased, after.seen, after.records, after.skipped, after.bytes) == (1, 1, 0, {}, 0)
    assert (await world.lane()).held_until == 0
    assert await world.settle(new) == "ok"


async def test_an_answer_is_stale_as_soon_as_its_lease_was_reaped(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old = await world.one(lease=5.0)
    await world.advance(6)
    await world.queue.reap()
    assert await world.settle(old, records=RECORDS) == "stale"
    assert (await world.stats(run)).ready == 1


async def test_a_late_answer_after_the_other_finished_is_stale(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old, new = await two_holders(world, run)
    assert await world.settle(new, records=RECORDS) == "ok"
    assert await world.settle(old, records=RECORDS) == "stale"
    assert (await world.stats(run)).records == 2


@pytest.mark.parametrize("wrong", [-1, 1])
async def test_a_lease_number_that_was_never_given_is_stale(world: World, wrong: int) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    assert await world.settle(replace(leased, lease=leased.lease + wrong)) == "stale"
    assert (await world.stats(run)).leased == 1


async def test_a_lease_covers_only_its_own_tasks(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    one, other = await world.one("w1"), await world.one("w2")
    assert await world.settle(replace(one, lease=other.lease)) == "stale"
    assert (await world.stats(run)).leased == 2


async def test_a_task_that_never_was_is_stale(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    assert await world.settle(replace(leased, id=leased.id + 77)) == "stale"


async def test_fencing_holds_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old, new = await two_holders(world, run)
    await world.reopen()
    assert await world.settle(old) == "stale"
    assert await world.settle(new) == "ok"


async def test_fencing_holds_when_the_clock_steps_back(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old = await world.one("slow")
    await world.lose("slow")
    await world.advance(-5)
    new = await world.one("quick")
    assert new.lease > old.lease
    assert await world.settle(old) == "stale"
    assert await world.settle(new) == "ok"


# repeating


@pytest.mark.parametrize("result", ["done", "retry", "dead", "released", "cancelled"])
async def test_the_same_outcome_twice_is_already(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    words = {"cause": "x", "after": 5.0, "records": RECORDS if result == "done" else ()}
    assert await world.settle(leased, result, **words) == "ok"
    before = await world.stats(run)
    assert await world.settle(leased, result, **words) == "already"
    assert await world.stats(run) == before
    assert before.stale == 0


async def test_a_second_answer_does_not_change_the_first(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.settle(leased, records=RECORDS)
    assert await world.settle(leased, "retry", cause="changed my mind") == "already"
    assert await world.state_of(run, "a") == "done"


async def test_a_settled_pair_is_remembered_for_two_leases(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one(lease=30.0)
    await world.settle(leased, records=RECORDS)
    await world.advance(59)
    await world.queue.reap()
    assert await world.settle(leased, records=RECORDS) == "already"


@pytest.mark.parametrize("result", ["retry", "released"])
async def test_a_repeated_answer_is_already_when_the_task_went_on(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a")
    first = await world.one("w1")
    await world.settle(first, result, cause="x")
    second = await world.one("w2")
    assert await world.settle(first, result, cause="x") == "already"
    assert await world.settle(second) == "ok"
    assert await world.settle(first, result, cause="x") == "already"
    assert (await world.stats(run)).stale == 0


async def test_the_same_pair_twice_in_one_call_counts_once(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    twice = [outcome(leased, records=RECORDS)] * 2
    assert await world.queue.settle(twice) == ["ok", "already"]
    assert (await world.stats(run)).records == 2


async def test_links_of_a_repeated_part_are_not_doubled(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    for _ in range(2):
        assert await world.settle(leased, "part", found=(page("b"),)) == "ok"
    assert (await world.stats(run)).seen == 2


async def test_a_part_after_the_end_adds_nothing(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.settle(leased)
    assert await world.settle(leased, "part", found=(page("b"),)) in ("already", "stale")
    assert (await world.stats(run)).seen == 1


async def test_a_stale_outcome_does_not_harm_its_neighbours(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old, new = await two_holders(world, run)
    await world.add(run, "b")
    other = await world.one()
    assert await world.queue.settle([outcome(old), outcome(other), outcome(new)]) == ["stale", "ok", "ok"]
    assert (await world.stats(run)).done == 2
