"""claim and extend: who gets what, under which lease."""

from __future__ import annotations

from itertools import pairwise

import pytest

from conformance.harness import QueueHarness, page, pages, urls
from shoal.core.lane import Pace


async def test_a_claim_hands_out_at_most_its_limit(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    assert len((await harness.claim(3)).tasks) == 3
    assert len((await harness.claim(3)).tasks) == 2


async def test_nothing_is_handed_out_twice(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(30))
    ids = [task.id for _ in range(4) for task in (await harness.claim(10)).tasks]
    assert len(ids) == len(set(ids)) == 30


async def test_two_handles_on_one_store_share_the_work(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    other = await harness.open()
    one, two = await harness.queue.claim("w1", 2), await other.claim("w2", 4)
    assert sorted(urls(one) + urls(two)) == [task.url for task in pages(4)]
    assert two.lease > one.lease


async def test_an_empty_queue_gives_an_empty_claim_without_a_lease(harness: QueueHarness) -> None:
    await harness.run()
    claim = await harness.claim()
    assert (claim.lease, claim.tasks, claim.next_in) == (0, (), None)


async def test_a_limit_of_nothing_gives_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    assert not (await harness.claim(0)).tasks
    assert (await harness.stats(run)).leased == 0


async def test_all_tasks_of_a_claim_carry_its_lease(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    claim = await harness.claim()
    assert {task.lease for task in claim.tasks} == {claim.lease}


async def test_lease_numbers_only_grow(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10))
    leases = [(await harness.one()).lease for _ in range(10)]
    assert all(later > earlier for earlier, later in pairwise(leases))


async def test_a_lease_number_is_not_below_the_clock(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    for _ in range(2):
        assert (await harness.one()).lease >= await harness.queue.now()
        await harness.advance(5)


async def test_lease_numbers_grow_when_the_clock_steps_back(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    first = await harness.one()
    await harness.advance(-3600)
    assert (await harness.one()).lease > first.lease


async def test_lease_numbers_grow_over_a_restart_with_an_older_clock(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    first = await harness.one()
    await harness.advance(-60)
    await harness.reopen()
    assert (await harness.one()).lease > first.lease


async def test_leases_live_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.reopen()
    assert not (await harness.claim()).tasks
    assert await harness.settle(leased) == "ok"


async def test_next_in_says_when_to_ask_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "later", delay=30.0)
    claim = await harness.claim()
    assert not claim.tasks
    assert claim.next_in is not None
    assert 0 < claim.next_in <= 30
    for _ in range(5):
        if claim.tasks:
            break
        assert claim.next_in is not None
        await harness.advance(claim.next_in + 0.001)
        claim = await harness.claim()
    assert urls(claim) == ["later"]


async def test_next_in_of_a_paced_lane_leads_to_its_next_task(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3), pace=None)
    seen: list[str] = []
    for _ in range(40):
        claim = await harness.claim(1)
        seen += urls(claim)
        await harness.settle_all(claim)
        if len(seen) == 3:
            break
        if not claim.tasks:
            assert claim.next_in is not None
            await harness.advance(claim.next_in + 0.001)
    assert len(seen) == 3


async def test_a_claim_reaches_many_lanes(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.add(run, [page(f"{number}", f"host{number}.test") for number in range(40)])
    assert len((await harness.claim(40)).tasks) == 40


@pytest.mark.parametrize("pace", [Pace(0.0, 1), Pace(60.0, 0)])
async def test_a_claim_goes_on_to_further_lanes_where_each_gives_little(harness: QueueHarness, pace: Pace) -> None:
    run = await harness.run()
    lanes = [f"h{n}.example" for n in range(60)]
    await harness.add(run, [page(f"{lane}/{n}", lane=lane) for lane in lanes for n in range(3)], pace=pace)
    assert {task.lane for task in (await harness.claim(60)).tasks} == set(lanes)


async def test_a_blocked_lane_in_front_does_not_hide_the_others(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.add(run, pages(300, "blocked", "blocked.test"))
    await harness.queue.add(run, [page("free", "free.test")])
    await harness.claim(2)  # the blocked lane is now full
    assert "free" in urls(await harness.claim(5)) or await harness.state_of(run, "free") == "leased"


# extend


async def test_an_extended_lease_lives_on(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one(lease=30.0)
    for _ in range(4):
        await harness.advance(20)
        answer = await harness.queue.extend("w1", {leased.lease: [leased.id]}, lease=30.0)
        assert not answer.lost
        await harness.queue.reap()
    assert await harness.settle(leased) == "ok"


async def test_extend_says_which_leases_were_lost(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    lost, kept = await harness.one(lease=5.0), await harness.one(lease=60.0)
    await harness.advance(10)
    await harness.queue.reap()
    answer = await harness.queue.extend("w1", {lost.lease: [lost.id], kept.lease: []})
    assert answer.lost == {lost.lease}


async def test_nobody_extends_the_lease_of_another(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one("w1", lease=10.0)
    assert (await harness.queue.extend("w2", {leased.lease: []}, lease=1000.0)).lost == {leased.lease}
    await harness.advance(11)
    assert (await harness.queue.reap()).returned == 1


async def test_a_zombie_cannot_extend_what_was_given_to_another(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old = await harness.one("w1", lease=5.0)
    await harness.advance(6)
    await harness.queue.reap()
    new = await harness.one("w2", lease=5.0)
    assert (await harness.queue.extend("w1", {old.lease: [old.id]}, lease=1000.0)).lost == {old.lease}
    await harness.advance(6)
    assert (await harness.queue.reap()).returned == 1, "the new lease ran out as it was given"
    assert await harness.settle(new) == "stale"


async def test_extending_an_unknown_lease_says_it_is_lost(harness: QueueHarness) -> None:
    assert (await harness.queue.extend("w1", {12345: []})).lost == {12345}


async def test_extend_names_the_tasks_of_a_cancelled_run(harness: QueueHarness) -> None:
    keep, drop = await harness.run("keep", name="keep"), await harness.run("drop", name="drop")
    await harness.add(keep, "a")
    await harness.add(drop, "b")
    claim = await harness.claim()
    assert len(claim.tasks) == 2
    await harness.queue.set_run(drop, "cancel")
    answer = await harness.queue.extend("w1", {claim.lease: [task.id for task in claim.tasks]})
    assert answer.cancelled == {task.id for task in claim.tasks if task.run == drop}
    assert not answer.lost


async def test_extending_a_settled_part_keeps_the_rest(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    claim = await harness.claim(lease=10.0)
    first, second = claim.tasks
    await harness.settle(first)
    assert not (await harness.queue.extend("w1", {claim.lease: [second.id]}, lease=60.0)).lost
    await harness.advance(30)
    assert (await harness.queue.reap()).returned == 0
    assert await harness.settle(second) == "ok"
