"""Repeating a verb is harmless: a lost answer can always be asked for again."""

from __future__ import annotations

from itertools import pairwise

from conformance.harness import LANE, QueueHarness, outcome, page, pages, urls
from shoal.core.lane import UNLIMITED_PACE, Pace, WorkerStatus
from shoal.core.task import LaneChange


async def test_a_repeated_request_gives_the_same_batch(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10))
    first = await harness.claim(3, request_id="r1")
    again = await harness.claim(3, request_id="r1")
    assert again.lease == first.lease
    assert sorted(task.id for task in again.tasks) == sorted(task.id for task in first.tasks)
    assert (await harness.stats(run)).leased == 3


async def test_a_repeated_request_tells_all_that_the_first_answer_told(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", meta={"k": [1]}, priority=3, depth=2, kind="image")])
    await harness.settle(await harness.one(), "retry", cause="x")
    first = await harness.claim(request_id="r1")
    assert (await harness.claim(request_id="r1")).tasks == first.tasks


async def test_a_repeated_request_does_not_bunch_its_slots(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(0.5, 0))
    first = await harness.claim(4, request_id="r1")
    before = await harness.slots(first)
    await harness.advance(0.2)
    again = await harness.claim(4, request_id="r1")
    slots = await harness.slots(again)
    assert len(slots) == len(before) >= 2
    assert all(later - earlier >= 499_999 for earlier, later in pairwise(slots[1:]))
    assert slots[1:] == before[1:], "a slot that has not come yet stays where it was"


async def test_a_repeated_request_costs_no_slot(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(10), pace=Pace(1.0, 0))
    await harness.claim(1, request_id="r1")
    before = await harness.lane()
    await harness.claim(1, request_id="r1")
    assert await harness.lane() == before


async def test_another_request_gets_another_batch(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    first, second = await harness.claim(2, request_id="r1"), await harness.claim(2, request_id="r2")
    assert not set(urls(first)) & set(urls(second))


async def test_requests_of_two_workers_are_two_requests(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    first, second = await harness.claim(2, "w1", request_id="r"), await harness.claim(2, "w2", request_id="r")
    assert not set(urls(first)) & set(urls(second))


async def test_claims_without_a_request_id_are_never_the_same(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    assert not set(urls(await harness.claim(2))) & set(urls(await harness.claim(2)))


async def test_a_request_is_remembered_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    first = await harness.claim(2, request_id="r1")
    await harness.reopen()
    assert (await harness.claim(2, request_id="r1")).lease == first.lease


async def test_a_request_whose_lease_is_over_gets_new_work(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    first = await harness.claim(2, lease=10.0, request_id="r1")
    await harness.queue.extend("w1", {first.lease: []}, lease=10.0)
    await harness.advance(11)
    await harness.queue.reap()
    second = await harness.claim(2, request_id="r1")
    assert second.lease > first.lease
    assert len(second.tasks) == 2


async def test_a_request_whose_lease_ran_out_gets_new_work_before_anybody_has_reaped(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    first = await harness.claim(2, lease=10.0, request_id="r1")
    await harness.advance(11)
    second = await harness.claim(2, request_id="r1")
    assert second.lease > first.lease
    assert not set(urls(first)) & set(urls(second))
    assert (await harness.claim(2, request_id="r1")).tasks == second.tasks
    assert (await harness.queue.reap()).returned == 2
    assert (await harness.claim(2, request_id="r1")).tasks == second.tasks, "the end of the first lease is not its end"


async def test_a_repeated_request_brings_nothing_that_was_cancelled(harness: QueueHarness) -> None:
    gone, kept = await harness.run("gone"), await harness.run("kept")
    await harness.add(gone, pages(2, "g"))
    await harness.add(kept, pages(2, "k"))
    first = await harness.claim(4, request_id="r1")
    assert {task.run for task in first.tasks} == {gone, kept}
    await harness.queue.set_run(gone, "cancel")
    again = await harness.claim(4, request_id="r1")
    assert again.lease == first.lease
    assert sorted(urls(again)) == ["k0", "k1"]
    await harness.queue.set_run(kept, "cancel")
    assert not (await harness.claim(4, request_id="r1")).tasks


async def test_a_repeated_request_brings_nothing_that_was_settled(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    first = await harness.claim(5, request_id="r1")
    done, retried, released, dead, left = first.tasks
    await harness.queue.settle([outcome(done), outcome(retried, "retry"), outcome(released, "released")])
    await harness.settle(dead, "dead", cause="x")
    assert (await harness.claim(5, request_id="r1")).tasks == (left,)


async def test_a_request_that_got_nothing_may_get_something_later(harness: QueueHarness) -> None:
    run = await harness.run()
    assert not (await harness.claim(request_id="r1")).tasks
    await harness.add(run, "a")
    assert urls(await harness.claim(request_id="r1")) == ["a"]


async def test_extending_twice_is_extending_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    answers = [await harness.queue.extend("w1", {leased.lease: [leased.id]}) for _ in range(2)]
    assert answers[0] == answers[1]
    assert not answers[0].lost


async def test_a_whole_batch_settled_twice_changes_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    tasks = (await harness.claim()).tasks
    results = ["done", "retry", "dead", "released", "cancelled"]
    good = {"records": (b"{}",), "found": (page("new"),), "skipped": (("scope", "y"),)}
    hold = (LaneChange(LANE, hold_for=10.0),)
    batch = [
        outcome(task, result, cause="x", after=50.0, lanes=hold, **(good if result == "done" else {}))
        for task, result in zip(tasks, results, strict=True)
    ]
    assert await harness.queue.settle(batch) == ["ok"] * 5
    before, lane = await harness.stats(run), await harness.lane()
    assert await harness.queue.settle(batch) == ["already"] * 5
    assert await harness.stats(run) == before
    assert await harness.lane() == lane


async def test_half_a_batch_settled_then_the_whole_settles_the_rest(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    batch = [outcome(task, records=(b"{}",)) for task in (await harness.claim()).tasks]
    await harness.queue.settle(batch[:2])
    assert await harness.queue.settle(batch) == ["already", "already", "ok", "ok"]
    assert (await harness.stats(run)).records == 4


async def test_found_tasks_are_there_however_often_settle_is_repeated(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    done = outcome(await harness.one(), found=tuple(pages(5, "found")))
    for _ in range(3):
        await harness.queue.settle([done])
    stats = await harness.stats(run)
    assert (stats.seen, stats.ready) == (6, 5)


async def test_reaping_a_dead_worker_twice_charges_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    for _ in range(2):
        await harness.queue.reap({"w1": [leased.id]})
    stats = await harness.stats(run)
    assert (stats.ready, stats.lost, stats.dead) == (1, 1, 0)


async def test_reviving_twice_revives_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.settle_all(await harness.claim(), "dead", cause="x")
    assert [await harness.queue.revive(run) for _ in range(2)] == [2, 0]
    assert (await harness.stats(run)).ready == 2


async def test_setting_a_lane_twice_is_setting_it_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", pace=UNLIMITED_PACE)
    for _ in range(2):
        await harness.queue.set_lane(LaneChange(LANE, spacing=2.0, park_for=60.0, reason="x"))
    lane = await harness.lane()
    assert (lane.spacing, lane.parked, lane.held_until) == (2.0, True, await harness.queue.now() + 60_000_000)


async def test_registering_twice_is_one_worker(harness: QueueHarness) -> None:
    for _ in range(2):
        await harness.queue.register(WorkerStatus("w", "w", "h", 1, "1", 5, 5))
    assert len(await harness.queue.workers()) == 1


async def test_starting_a_run_twice_is_one_run(harness: QueueHarness) -> None:
    assert await harness.run("same") == await harness.run("same")
    assert len(await harness.queue.runs()) == 1
