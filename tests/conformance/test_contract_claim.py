"""claim and extend: who gets what, under which lease."""

from __future__ import annotations

from itertools import pairwise

from conformance.world import World, page, pages, urls


async def test_a_claim_hands_out_at_most_its_limit(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    assert len((await world.claim(3)).tasks) == 3
    assert len((await world.claim(3)).tasks) == 2


async def test_nothing_is_handed_out_twice(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(30))
    ids = [task.id for _ in range(4) for task in (await world.claim(10)).tasks]
    assert len(ids) == len(set(ids)) == 30


async def test_two_handles_on_one_store_share_the_work(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    other = await world.open()
    one, two = await world.queue.claim("w1", 2), await other.claim("w2", 4)
    assert sorted(urls(one) + urls(two)) == [task.url for task in pages(4)]
    assert two.lease > one.lease


async def test_an_empty_queue_gives_an_empty_claim_without_a_lease(world: World) -> None:
    await world.run()
    claim = await world.claim()
    assert (claim.lease, claim.tasks, claim.next_in) == (0, (), None)


async def test_a_limit_of_nothing_gives_nothing(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    assert not (await world.claim(0)).tasks
    assert (await world.stats(run)).leased == 0


async def test_all_tasks_of_a_claim_carry_its_lease(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    claim = await world.claim()
    assert {task.lease for task in claim.tasks} == {claim.lease}


async def test_lease_numbers_only_grow(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10))
    leases = [(await world.one()).lease for _ in range(10)]
    assert all(later > earlier for earlier, later in pairwise(leases))


async def test_a_lease_number_is_not_below_the_clock(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    for _ in range(2):
        assert (await world.one()).lease >= await world.queue.now()
        await world.advance(5)


async def test_lease_numbers_grow_when_the_clock_steps_back(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    first = await world.one()
    await world.advance(-3600)
    assert (await world.one()).lease > first.lease


async def test_lease_numbers_grow_over_a_restart_with_an_older_clock(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    first = await world.one()
    await world.advance(-60)
    await world.reopen()
    assert (await world.one()).lease > first.lease


async def test_leases_live_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.reopen()
    assert not (await world.claim()).tasks
    assert await world.settle(leased) == "ok"


async def test_next_in_says_when_to_ask_again(world: World) -> None:
    run = await world.run()
    await world.add(run, "later", delay=30.0)
    claim = await world.claim()
    assert not claim.tasks
    assert claim.next_in is not None
    assert 0 < claim.next_in <= 30
    for _ in range(5):
        if claim.tasks:
            break
        assert claim.next_in is not None
        await world.advance(claim.next_in + 0.001)
        claim = await world.claim()
    assert urls(claim) == ["later"]


async def test_next_in_of_a_paced_lane_leads_to_its_next_task(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3), pace=None)
    seen: list[str] = []
    for _ in range(40):
        claim = await world.claim(1)
        seen += urls(claim)
        await world.settle_all(claim)
        if len(seen) == 3:
            break
        if not claim.tasks:
            assert claim.next_in is not None
            await world.advance(claim.next_in + 0.001)
    assert len(seen) == 3


async def test_a_claim_reaches_many_lanes(world: World) -> None:
    run = await world.run()
    await world.queue.add(run, [page(f"{number}", f"host{number}.test") for number in range(40)])
    assert len((await world.claim(40)).tasks) == 40


async def test_a_blocked_lane_in_front_does_not_hide_the_others(world: World) -> None:
    run = await world.run()
    await world.queue.add(run, pages(300, "blocked", "blocked.test"))
    await world.queue.add(run, [page("free", "free.test")])
    await world.claim(2)  # the blocked lane is now full
    assert "free" in urls(await world.claim(5)) or await world.state_of(run, "free") == "leased"


# extend


async def test_an_extended_lease_lives_on(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one(lease=30.0)
    for _ in range(4):
        await world.advance(20)
        answer = await world.queue.extend("w1", {leased.lease: [leased.id]}, lease=30.0)
        assert not answer.lost
        await world.queue.reap()
    assert await world.settle(leased) == "ok"


async def test_extend_says_which_leases_were_lost(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    lost, kept = await world.one(lease=5.0), await world.one(lease=60.0)
    await world.advance(10)
    await world.queue.reap()
    answer = await world.queue.extend("w1", {lost.lease: [lost.id], kept.lease: []})
    assert answer.lost == {lost.lease}


async def test_nobody_extends_the_lease_of_another(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one("w1", lease=10.0)
    assert (await world.queue.extend("w2", {leased.lease: []}, lease=1000.0)).lost == {leased.lease}
    await world.advance(11)
    assert (await world.queue.reap()).returned == 1


async def test_a_zombie_cannot_extend_what_was_given_to_another(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old = await world.one("w1", lease=5.0)
    await world.advance(6)
    await world.queue.reap()
    new = await world.one("w2", lease=5.0)
    assert (await world.queue.extend("w1", {old.lease: [old.id]}, lease=1000.0)).lost == {old.lease}
    await world.advance(6)
    assert (await world.queue.reap()).returned == 1, "the new lease ran out as it was given"
    assert await world.settle(new) == "stale"


async def test_extending_an_unknown_lease_says_it_is_lost(world: World) -> None:
    assert (await world.queue.extend("w1", {12345: []})).lost == {12345}


async def test_extend_names_the_tasks_of_a_cancelled_run(world: World) -> None:
    keep, drop = await world.run("keep", name="keep"), await world.run("drop", name="drop")
    await world.add(keep, "a")
    await world.add(drop, "b")
    claim = await world.claim()
    assert len(claim.tasks) == 2
    await world.queue.set_run(drop, "cancel")
    answer = await world.queue.extend("w1", {claim.lease: [task.id for task in claim.tasks]})
    assert answer.cancelled == {task.id for task in claim.tasks if task.run == drop}
    assert not answer.lost


async def test_extending_a_settled_part_keeps_the_rest(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    claim = await world.claim(lease=10.0)
    first, second = claim.tasks
    await world.settle(first)
    assert not (await world.queue.extend("w1", {claim.lease: [second.id]}, lease=60.0)).lost
    await world.advance(30)
    assert (await world.queue.reap()).returned == 0
    assert await world.settle(second) == "ok"
