"""Repeating a verb is harmless: a lost answer can always be asked for again."""

from __future__ import annotations

from itertools import pairwise

from conformance.world import LANE, World, outcome, page, pages, urls
from shoal.core.lane import FREE, Mark, Pace
from shoal.core.task import LaneChange


async def test_a_repeated_request_gives_the_same_batch(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10))
    first = await world.claim(3, request_id="r1")
    again = await world.claim(3, request_id="r1")
    assert again.lease == first.lease
    assert sorted(task.id for task in again.tasks) == sorted(task.id for task in first.tasks)
    assert (await world.stats(run)).leased == 3


async def test_a_repeated_request_tells_all_that_the_first_answer_told(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a", meta={"k": [1]}, priority=3, depth=2, kind="image")])
    await world.settle(await world.one(), "retry", cause="x")
    first = await world.claim(request_id="r1")
    assert (await world.claim(request_id="r1")).tasks == first.tasks


async def test_a_repeated_request_does_not_bunch_its_slots(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(0.5, 0))
    first = await world.claim(4, request_id="r1")
    before = await world.slots(first)
    await world.advance(0.2)
    again = await world.claim(4, request_id="r1")
    slots = await world.slots(again)
    assert len(slots) == len(before) >= 2
    assert all(later - earlier >= 499_999 for earlier, later in pairwise(slots[1:]))
    assert slots[1:] == before[1:], "a slot that has not come yet stays where it was"


async def test_a_repeated_request_costs_no_slot(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(10), pace=Pace(1.0, 0))
    await world.claim(1, request_id="r1")
    before = await world.lane()
    await world.claim(1, request_id="r1")
    assert await world.lane() == before


async def test_another_request_gets_another_batch(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    first, second = await world.claim(2, request_id="r1"), await world.claim(2, request_id="r2")
    assert not set(urls(first)) & set(urls(second))


async def test_requests_of_two_workers_are_two_requests(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    first, second = await world.claim(2, "w1", request_id="r"), await world.claim(2, "w2", request_id="r")
    assert not set(urls(first)) & set(urls(second))


async def test_claims_without_a_request_id_are_never_the_same(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    assert not set(urls(await world.claim(2))) & set(urls(await world.claim(2)))


async def test_a_request_is_remembered_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    first = await world.claim(2, request_id="r1")
    await world.reopen()
    assert (await world.claim(2, request_id="r1")).lease == first.lease


async def test_a_request_whose_lease_is_over_gets_new_work(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(2))
    first = await world.claim(2, lease=10.0, request_id="r1")
    await world.queue.extend("w1", {first.lease: []}, lease=10.0)
    await world.advance(11)
    await world.queue.reap()
    second = await world.claim(2, request_id="r1")
    assert second.lease > first.lease
    assert len(second.tasks) == 2


async def test_a_request_that_got_nothing_may_get_something_later(world: World) -> None:
    run = await world.run()
    assert not (await world.claim(request_id="r1")).tasks
    await world.add(run, "a")
    assert urls(await world.claim(request_id="r1")) == ["a"]


async def test_extending_twice_is_extending_once(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    answers = [await world.queue.extend("w1", {leased.lease: [leased.id]}) for _ in range(2)]
    assert answers[0] == answers[1]
    assert not answers[0].lost


async def test_a_whole_batch_settled_twice_changes_nothing(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    tasks = (await world.claim()).tasks
    results = ["done", "retry", "dead", "released", "cancelled"]
    good = {"records": (b"{}",), "found": (page("new"),), "skipped": (("scope", "y"),)}
    hold = (LaneChange(LANE, hold_for=10.0),)
    batch = [
        outcome(task, result, cause="x", after=50.0, lanes=hold, **(good if result == "done" else {}))
        for task, result in zip(tasks, results, strict=True)
    ]
    assert await world.queue.settle(batch) == ["ok"] * 5
    before, lane = await world.stats(run), await world.lane()
    assert await world.queue.settle(batch) == ["already"] * 5
    assert await world.stats(run) == before
    assert await world.lane() == lane


async def test_half_a_batch_settled_then_the_whole_settles_the_rest(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(4))
    batch = [outcome(task, records=(b"{}",)) for task in (await world.claim()).tasks]
    await world.queue.settle(batch[:2])
    assert await world.queue.settle(batch) == ["already", "already", "ok", "ok"]
    assert (await world.stats(run)).records == 4


async def test_found_tasks_are_there_however_often_settle_is_repeated(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    done = outcome(await world.one(), found=tuple(pages(5, "found")))
    for _ in range(3):
        await world.queue.settle([done])
    stats = await world.stats(run)
    assert (stats.seen, stats.ready) == (6, 5)


async def test_reaping_a_dead_worker_twice_charges_once(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    for _ in range(2):
        await world.queue.reap({"w1": [leased.id]})
    stats = await world.stats(run)
    assert (stats.ready, stats.lost, stats.dead) == (1, 1, 0)


async def test_reviving_twice_revives_once(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.settle_all(await world.claim(), "dead", cause="x")
    assert [await world.queue.revive(run) for _ in range(2)] == [2, 0]
    assert (await world.stats(run)).ready == 2


async def test_setting_a_lane_twice_is_setting_it_once(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", pace=FREE)
    for _ in range(2):
        await world.queue.set_lane(LaneChange(LANE, spacing=2.0, park_for=60.0, reason="x"))
    lane = await world.lane()
    assert (lane.spacing, lane.parked, lane.held_until) == (2.0, True, await world.queue.now() + 60_000_000)


async def test_registering_twice_is_one_worker(world: World) -> None:
    for _ in range(2):
        await world.queue.register(Mark("w", "w", "h", 1, "1", 5, 5))
    assert len(await world.queue.workers()) == 1


async def test_starting_a_run_twice_is_one_run(world: World) -> None:
    assert await world.run("same") == await world.run("same")
    assert len(await world.queue.runs()) == 1
