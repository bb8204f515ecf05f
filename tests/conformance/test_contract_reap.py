"""reap: what dead workers held goes back, and only the guilty are charged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from conformance.harness import LANE, QueueHarness, failed, page, pages, urls
from shoal.core.lane import Pace
from shoal.core.task import digest
from shoal.queue.base import LOST_LIMIT, ReapResult


async def test_an_expired_lease_goes_back_to_ready(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    await harness.claim(lease=10.0)
    await harness.advance(9)
    assert await harness.queue.reap() == ReapResult()
    await harness.advance(2)
    assert await harness.queue.reap() == ReapResult(returned=3)
    stats = await harness.stats(run)
    assert (stats.ready, stats.leased, stats.delayed) == (3, 0, 0)


async def test_reaping_twice_is_harmless(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.claim(lease=10.0)
    await harness.advance(11)
    await harness.queue.reap()
    before = await harness.stats(run)
    assert await harness.queue.reap() == ReapResult()
    assert await harness.stats(run) == before


async def test_reap_gives_back_places_in_flight(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3), pace=Pace(0.0, 1))
    await harness.claim(lease=10.0)
    await harness.advance(11)
    await harness.queue.reap()
    assert (await harness.lane()).in_flight == 0
    assert (await harness.claim()).tasks


async def test_a_dead_workers_leases_go_back_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    await harness.claim(2, "dead")
    kept = await harness.claim(2, "alive")
    assert await harness.queue.reap({"dead": []}) == ReapResult(returned=2)
    assert (await harness.settle_all(kept)) == ["ok", "ok"]


async def test_all_leases_of_a_dead_worker_go_back(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    for _ in range(3):
        await harness.claim(1, "dead")
    assert (await harness.queue.reap({"dead": []})).returned == 3


async def test_a_worker_that_never_was_costs_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.one()
    assert await harness.queue.reap({"nobody": [1, 2, 3]}) == ReapResult()


async def test_only_executing_tasks_are_charged_for_a_dead_worker(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    claim = await harness.claim(3, "dead")
    guilty = claim.tasks[1]
    await harness.lose("dead", [guilty.id])
    lost = {view.id: view.lost for view in await harness.queue.list_tasks(run)}
    assert lost == {task.id: int(task.id == guilty.id) for task in claim.tasks}
    assert (await harness.stats(run)).lost == 1


async def test_of_an_expired_lease_only_started_tasks_are_charged(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    claim = await harness.claim(3, lease=10.0)
    guilty = claim.tasks[0]
    await harness.queue.extend("w1", {claim.lease: [guilty.id]}, lease=10.0)
    await harness.advance(11)
    assert (await harness.queue.reap()).returned == 3
    assert {view.id for view in await harness.queue.list_tasks(run) if view.lost} == {guilty.id}


async def test_a_lease_extended_before_any_task_started_charges_nobody(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    claim = await harness.claim(2, lease=10.0)
    await harness.queue.extend("w1", {claim.lease: []}, lease=10.0)
    await harness.advance(11)
    await harness.queue.reap()
    assert [view.lost for view in await harness.queue.list_tasks(run)] == [0, 0]


async def test_of_a_lease_never_extended_all_are_charged(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    await harness.claim(2, lease=10.0)
    await harness.advance(11)
    await harness.queue.reap()
    assert [view.lost for view in await harness.queue.list_tasks(run)] == [1, 1]
    assert (await harness.stats(run)).lost == 2


async def test_a_lost_worker_costs_no_attempt(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.lose("w1", [leased.id])
    again = await harness.one()
    assert (again.attempts, again.lost) == (0, 1)


async def test_a_settled_task_is_not_reaped(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    claim = await harness.claim(2, lease=10.0)
    await harness.settle(claim.tasks[0])
    await harness.advance(11)
    assert await harness.queue.reap() == ReapResult(returned=1)
    assert (await harness.stats(run)).done == 1


async def test_a_task_whose_workers_keep_dying_is_dead(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    for number in range(LOST_LIMIT):
        assert (await harness.stats(run)).dead == 0
        leased = await harness.one(f"w{number}")
        reaped = await harness.queue.reap({f"w{number}": [leased.id]})
    assert reaped == ReapResult(dead=1)
    (letter,) = await harness.queue.list_tasks(run, state="dead")
    assert (letter.cause, letter.lost) == ("worker_lost", LOST_LIMIT)
    assert (await harness.lane()).in_flight == 0
    assert not (await harness.claim()).tasks


async def test_a_worker_that_comes_back_for_a_dead_letter_is_stale(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    for number in range(LOST_LIMIT):
        leased = await harness.one(f"w{number}")
        await harness.lose(f"w{number}", [leased.id])
    assert await harness.settle(leased) == "stale"
    assert (await harness.stats(run)).dead == 1


async def test_a_task_that_lost_a_worker_is_claimed_alone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    guilty = await harness.one("dead")
    await harness.lose("dead", [guilty.id])
    batches = [await harness.claim(10) for _ in range(2)]
    alone = [claim for claim in batches if guilty.url in urls(claim)]
    assert [urls(claim) for claim in alone] == [[guilty.url]]
    assert sum(len(claim.tasks) for claim in batches) == 4


async def test_two_tasks_that_lost_a_worker_do_not_come_together(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    claim = await harness.claim(2, "dead")
    await harness.lose("dead", [task.id for task in claim.tasks])
    assert [len((await harness.claim(10)).tasks) for _ in range(3)] == [1, 1, 0]


async def test_an_uncharged_task_need_not_be_alone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    await harness.claim(3, "dead")
    await harness.lose("dead")
    assert len((await harness.claim(10)).tasks) == 3


async def test_a_task_in_a_full_lane_that_lost_a_worker_does_not_block_others(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b", pace=Pace(0.0, 1))
    guilty = await harness.one("dead")
    await harness.lose("dead", [guilty.id])
    assert (await harness.one("w2")).id == guilty.id
    await harness.add(run, pages(2, "free", "free.test"))
    assert len((await harness.claim(10, "w3")).tasks) == 2


# time to live


async def test_a_waiting_task_dies_when_its_time_is_over(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", ttl=10.0)
    await harness.add(run, "b")
    await harness.advance(11)
    assert await harness.queue.reap() == ReapResult(expired=1)
    (letter,) = await harness.queue.list_tasks(run, state="dead")
    assert (letter.url, letter.cause) == ("a", "expired")
    assert urls(await harness.claim()) == ["b"]


async def test_a_task_whose_time_is_over_is_not_handed_out(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", ttl=10.0)
    await harness.add(run, "b")
    await harness.advance(11)
    assert urls(await harness.claim()) == ["b"]
    await harness.queue.reap()
    stats = await harness.stats(run)
    assert (stats.dead, stats.leased, stats.ready) == (1, 1, 0)


async def test_a_leased_task_does_not_expire(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", ttl=10.0)
    leased = await harness.one(lease=60.0)
    await harness.advance(20)
    assert await harness.queue.reap() == ReapResult()
    assert await harness.settle(leased) == "ok"


async def test_time_to_live_runs_from_the_first_add(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", ttl=10.0)
    await harness.advance(8)
    await harness.add(run, "a", ttl=10.0)
    await harness.settle(await harness.one(), "retry", after=1.0, **failed("x"))
    await harness.advance(3)
    await harness.queue.reap()
    assert await harness.state_of(run, "a") == "dead"


async def test_a_delayed_task_expires_too(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", delay=100.0, ttl=10.0)
    await harness.advance(11)
    assert (await harness.queue.reap()).expired == 1
    stats = await harness.stats(run)
    assert (stats.dead, stats.delayed, stats.ready) == (1, 0, 0)


LOOKS: dict[str, Callable[[QueueHarness, int], Awaitable[object]]] = {
    "stats": lambda harness, run: harness.queue.stats(run),
    "stats_of": lambda harness, run: harness.queue.stats_of([run]),
    "recount": lambda harness, run: harness.queue.recount(run),
    "list_tasks": lambda harness, run: harness.queue.list_tasks(run),
    "find": lambda harness, run: harness.queue.find(run, digest("c")),
    "dead_groups": lambda harness, run: harness.queue.dead_groups(run),
}


@pytest.mark.parametrize("look", LOOKS)
async def test_what_expired_is_dead_at_the_next_look(harness: QueueHarness, look: str) -> None:
    """Nobody works and nobody tidies up; it is said by what the look itself answers."""
    run, other = await harness.run("run"), await harness.run("other")
    await harness.add(run, [page("a", ttl=10.0), page("b", ttl=10.0, delay=60.0), page("c")])
    await harness.add(other, "d", ttl=10.0)
    await harness.advance(11)
    told = await LOOKS[look](harness, run)
    assert await harness.queue.reap() == ReapResult(expired=1), "of the other run, at which nobody looked"
    after = await LOOKS[look](harness, run)
    assert told == after
    stats = await harness.stats(run)
    assert (stats.ready, stats.delayed, stats.dead, stats.claimable) == (1, 0, 2, 1)
    assert stats == await harness.queue.recount(run)
    assert [(group.cause, group.count) for group in await harness.queue.dead_groups(run)] == [("expired", 2)]
    assert urls(await harness.claim()) == ["c"]


async def test_many_that_expired_are_dead_after_some_looks(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2_500, ttl=10.0))
    await harness.advance(11)
    for _ in range(5):
        stats = await harness.stats(run)
        assert stats == await harness.queue.recount(run)
    assert (stats.ready, stats.dead) == (0, 2_500)


async def test_a_leased_task_does_not_expire_at_a_look(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b", ttl=10.0)
    leased = await harness.one()
    await harness.advance(11)
    assert ((await harness.stats(run)).leased, (await harness.stats(run)).dead) == (1, 1)
    assert await harness.settle(leased) == "ok"


async def test_tasks_of_a_cancelled_run_do_not_expire(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3, ttl=10.0))
    await harness.add(run, [page("a", ttl=10.0), page("b", ttl=10.0, delay=5.0)])
    await harness.queue.set_run(run, "cancel")
    await harness.advance(11)
    assert await harness.queue.reap() == ReapResult()
    stats = await harness.stats(run)
    assert (stats.cancelled, stats.dead, stats.ready) == (5, 0, 0)


async def test_a_returned_task_whose_time_is_over_is_never_handed_out_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", ttl=10.0)
    await harness.one(lease=20.0)
    await harness.advance(21)
    await harness.queue.reap()
    assert not (await harness.claim()).tasks
    await harness.queue.reap()
    assert await harness.state_of(run, "a") == "dead"


async def test_many_expired_tasks_in_front_do_not_hide_a_living_one(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(200, "old", ttl=10.0))
    await harness.add(run, "alive")
    await harness.advance(11)
    found: list[str] = []
    for _ in range(20):
        found += urls(await harness.claim(10))
    assert found == ["alive"]


async def test_the_lane_of_expired_tasks_goes_on(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", ttl=10.0, pace=Pace(0.0, 1))
    await harness.advance(11)
    await harness.queue.reap()
    assert (await harness.lane(LANE)).ready == 0
    await harness.add(run, "b", pace=Pace(0.0, 1))
    assert urls(await harness.claim()) == ["b"]
