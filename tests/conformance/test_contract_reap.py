"""reap: what dead workers held goes back, and only the guilty are charged."""

from __future__ import annotations

from conformance.world import LANE, World, failed, page, pages, urls
from shoal.core.lane import Pace
from shoal.queue.base import LOST_LIMIT, Reaped


async def test_an_expired_lease_goes_back_to_ready(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    await world.claim(lease=10.0)
    await world.advance(9)
    assert await world.queue.reap() == Reaped()
    await world.advance(2)
    assert await world.queue.reap() == Reaped(returned=3)
    stats = await world.stats(run)
    assert (stats.ready, stats.leased, stats.delayed) == (3, 0, 0)


async def test_reaping_twice_is_harmless(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.claim(lease=10.0)
    await world.advance(11)
    await world.queue.reap()
    before = await world.stats(run)
    assert await world.queue.reap() == Reaped()
    assert await world.stats(run) == before


async def test_reap_gives_back_places_in_flight(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3), pace=Pace(0.0, 1))
    await world.claim(lease=10.0)
    await world.advance(11)
    await world.queue.reap()
    assert (await world.lane()).in_flight == 0
    assert (await world.claim()).tasks


async def test_a_dead_workers_leases_go_back_at_once(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    await world.claim(2, "dead")
    kept = await world.claim(2, "alive")
    assert await world.queue.reap({"dead": []}) == Reaped(returned=2)
    assert (await world.settle_all(kept)) == ["ok", "ok"]


async def test_all_leases_of_a_dead_worker_go_back(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    for _ in range(3):
        await world.claim(1, "dead")
    assert (await world.queue.reap({"dead": []})).returned == 3


async def test_a_worker_that_never_was_costs_nothing(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.one()
    assert await world.queue.reap({"nobody": [1, 2, 3]}) == Reaped()


async def test_only_executing_tasks_are_charged_for_a_dead_worker(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    claim = await world.claim(3, "dead")
    guilty = claim.tasks[1]
    await world.lose("dead", [guilty.id])
    lost = {view.id: view.lost for view in await world.queue.look(run)}
    assert lost == {task.id: int(task.id == guilty.id) for task in claim.tasks}
    assert (await world.stats(run)).lost == 1


async def test_of_an_expired_lease_only_started_tasks_are_charged(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    claim = await world.claim(3, lease=10.0)
    guilty = claim.tasks[0]
    await world.queue.extend("w1", {claim.lease: [guilty.id]}, lease=10.0)
    await world.advance(11)
    assert (await world.queue.reap()).returned == 3
    assert {view.id for view in await world.queue.look(run) if view.lost} == {guilty.id}


async def test_a_lease_extended_before_any_task_started_charges_nobody(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(2))
    claim = await world.claim(2, lease=10.0)
    await world.queue.extend("w1", {claim.lease: []}, lease=10.0)
    await world.advance(11)
    await world.queue.reap()
    assert [view.lost for view in await world.queue.look(run)] == [0, 0]


async def test_of_a_lease_never_extended_all_are_charged(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(2))
    await world.claim(2, lease=10.0)
    await world.advance(11)
    await world.queue.reap()
    assert [view.lost for view in await world.queue.look(run)] == [1, 1]
    assert (await world.stats(run)).lost == 2


async def test_a_lost_worker_costs_no_attempt(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.lose("w1", [leased.id])
    again = await world.one()
    assert (again.attempts, again.lost) == (0, 1)


async def test_a_settled_task_is_not_reaped(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    claim = await world.claim(2, lease=10.0)
    await world.settle(claim.tasks[0])
    await world.advance(11)
    assert await world.queue.reap() == Reaped(returned=1)
    assert (await world.stats(run)).done == 1


async def test_a_task_whose_workers_keep_dying_is_dead(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    for number in range(LOST_LIMIT):
        assert (await world.stats(run)).dead == 0
        leased = await world.one(f"w{number}")
        reaped = await world.queue.reap({f"w{number}": [leased.id]})
    assert reaped == Reaped(dead=1)
    (letter,) = await world.queue.look(run, state="dead")
    assert (letter.cause, letter.lost) == ("worker_lost", LOST_LIMIT)
    assert (await world.lane()).in_flight == 0
    assert not (await world.claim()).tasks


async def test_a_worker_that_comes_back_for_a_dead_letter_is_stale(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    for number in range(LOST_LIMIT):
        leased = await world.one(f"w{number}")
        await world.lose(f"w{number}", [leased.id])
    assert await world.settle(leased) == "stale"
    assert (await world.stats(run)).dead == 1


async def test_a_task_that_lost_a_worker_is_claimed_alone(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    guilty = await world.one("dead")
    await world.lose("dead", [guilty.id])
    batches = [await world.claim(10) for _ in range(2)]
    alone = [claim for claim in batches if guilty.url in urls(claim)]
    assert [urls(claim) for claim in alone] == [[guilty.url]]
    assert sum(len(claim.tasks) for claim in batches) == 4


async def test_two_tasks_that_lost_a_worker_do_not_come_together(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    claim = await world.claim(2, "dead")
    await world.lose("dead", [task.id for task in claim.tasks])
    assert [len((await world.claim(10)).tasks) for _ in range(3)] == [1, 1, 0]


async def test_an_uncharged_task_need_not_be_alone(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    await world.claim(3, "dead")
    await world.lose("dead")
    assert len((await world.claim(10)).tasks) == 3


async def test_a_task_in_a_full_lane_that_lost_a_worker_does_not_block_others(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b", pace=Pace(0.0, 1))
    guilty = await world.one("dead")
    await world.lose("dead", [guilty.id])
    assert (await world.one("w2")).id == guilty.id
    await world.add(run, pages(2, "free", "free.test"))
    assert len((await world.claim(10, "w3")).tasks) == 2


# time to live


async def test_a_waiting_task_dies_when_its_time_is_over(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", ttl=10.0)
    await world.add(run, "b")
    await world.advance(11)
    assert await world.queue.reap() == Reaped(expired=1)
    (letter,) = await world.queue.look(run, state="dead")
    assert (letter.url, letter.cause) == ("a", "expired")
    assert urls(await world.claim()) == ["b"]


async def test_a_task_whose_time_is_over_is_not_handed_out(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", ttl=10.0)
    await world.add(run, "b")
    await world.advance(11)
    assert urls(await world.claim()) == ["b"]
    await world.queue.reap()
    stats = await world.stats(run)
    assert (stats.dead, stats.leased, stats.ready) == (1, 1, 0)


async def test_a_leased_task_does_not_expire(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", ttl=10.0)
    leased = await world.one(lease=60.0)
    await world.advance(20)
    assert await world.queue.reap() == Reaped()
    assert await world.settle(leased) == "ok"


async def test_time_to_live_runs_from_the_first_add(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", ttl=10.0)
    await world.advance(8)
    await world.add(run, "a", ttl=10.0)
    await world.settle(await world.one(), "retry", after=1.0, **failed("x"))
    await world.advance(3)
    await world.queue.reap()
    assert await world.state_of(run, "a") == "dead"


async def test_a_delayed_task_expires_too(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", delay=100.0, ttl=10.0)
    await world.advance(11)
    assert (await world.queue.reap()).expired == 1
    stats = await world.stats(run)
    assert (stats.dead, stats.delayed, stats.ready) == (1, 0, 0)


async def test_tasks_of_a_cancelled_run_do_not_expire(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3, ttl=10.0))
    await world.add(run, [page("a", ttl=10.0), page("b", ttl=10.0, delay=5.0)])
    await world.queue.set_run(run, "cancel")
    await world.advance(11)
    assert await world.queue.reap() == Reaped()
    stats = await world.stats(run)
    assert (stats.cancelled, stats.dead, stats.ready) == (5, 0, 0)


async def test_a_returned_task_whose_time_is_over_is_never_handed_out_again(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", ttl=10.0)
    await world.one(lease=20.0)
    await world.advance(21)
    await world.queue.reap()
    assert not (await world.claim()).tasks
    await world.queue.reap()
    assert await world.state_of(run, "a") == "dead"


async def test_many_expired_tasks_in_front_do_not_hide_a_living_one(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(200, "old", ttl=10.0))
    await world.add(run, "alive")
    await world.advance(11)
    found: list[str] = []
    for _ in range(20):
        found += urls(await world.claim(10))
    assert found == ["alive"]


async def test_the_lane_of_expired_tasks_goes_on(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", ttl=10.0, pace=Pace(0.0, 1))
    await world.advance(11)
    await world.queue.reap()
    assert (await world.lane(LANE)).ready == 0
    await world.add(run, "b", pace=Pace(0.0, 1))
    assert urls(await world.claim()) == ["b"]
