"""Push: tasks are added and leased to a named worker in one step, under the rules of any claim."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from conformance.harness import LANE, QueueHarness, outcome, page, pages, urls
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.task import LaneChange, OutboxEntry, Task
from shoal.queue.base import MAX_OUTBOX_PER_RUN, MAX_PUSH, PushResult

FREE = {LANE: UNLIMITED_PACE, "b.test": UNLIMITED_PACE}
BROWSER = ("browser",)


async def push(
    harness: QueueHarness, run: int, tasks: list[Task], worker: str = "w1", pace: Pace | None = None, **more: Any
) -> PushResult:
    paces = {LANE: pace} if pace else FREE
    return await harness.queue.push(run, tasks, worker, paces, **more)


async def test_what_is_pushed_is_leased_to_that_worker(harness: QueueHarness) -> None:
    run = await harness.run()
    task = page("a", kind="typed", priority=3, depth=2, meta={"k": [1]}, ack="auto")
    result = await push(harness, run, [task, page("b")], "w7")
    assert result.answers == ("leased", "leased")
    first, second = sorted(result.claim.tasks, key=lambda it: it.url)
    assert (first.run, first.lane, first.lease, first.kind) == (run, LANE, result.claim.lease, "typed")
    assert (first.priority, first.depth, first.meta, first.ack) == (3, 2, {"k": [1]}, "auto")
    assert (second.ack, second.attempts, second.lost) == ("manual", 0, 0)
    stats = await harness.stats(run)
    assert (stats.seen, stats.ready, stats.leased) == (2, 0, 2)
    assert (await harness.lane()).in_flight == 2
    assert urls(await harness.claim(worker="w2")) == []
    [view] = [it for it in await harness.queue.list_tasks(run, state="leased") if it.url == "b"]
    assert (view.worker, view.lease) == ("w7", result.claim.lease)
    assert await harness.queue.recount(run) == await harness.queue.stats(run)


async def test_it_is_settled_like_any_other(harness: QueueHarness) -> None:
    run = await harness.run()
    result = await push(harness, run, [page("a", ttl=60.0), page("b"), page("c")])
    by_url = {task.url: task for task in result.claim.tasks}
    assert await harness.settle(by_url["a"], records=(b"{}",)) == "ok"
    assert await harness.settle(by_url["b"], "retry", after=5.0) == "ok"
    assert await harness.settle(by_url["c"], "released") == "ok"
    assert await harness.settle(by_url["a"]) == "already"
    assert [task.url for task in (await harness.claim()).tasks] == ["c"]
    stats = await harness.stats(run)
    assert (stats.done, stats.delayed, stats.leased, stats.records) == (1, 1, 1, 1)


async def test_known_tasks_are_told_as_known_and_stay_where_they_are(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "old")
    result = await push(harness, run, [page("old"), page("new"), page("new")])
    assert result.answers == ("known", "leased", "known")
    assert urls(result.claim) == ["new"]
    assert await harness.state_of(run, "old") == "ready"
    assert (await push(harness, run, [page("old"), page("new")], "w2")) == PushResult(("known", "known"))


async def test_a_repeated_request_returns_the_same_batch(harness: QueueHarness) -> None:
    run = await harness.run()
    tasks = [page("a"), page("b"), page("c", needs=BROWSER)]
    result = await push(harness, run, tasks, request_id="r1")
    assert result.answers == ("leased", "leased", "added")
    assert await harness.settle(result.claim.tasks[0]) == "ok"
    again = await push(harness, run, tasks, request_id="r1")
    assert again.claim.lease == result.claim.lease
    assert urls(again.claim) == ["b"]
    assert again.answers == ("known", "leased", "known")
    assert (await push(harness, run, tasks, "w2", request_id="r1")).claim.tasks == (), "that is another worker's"
    assert (await harness.stats(run)).leased == 1


async def test_one_request_that_is_sent_twice_at_once_is_one_batch(harness: QueueHarness) -> None:
    run, other = await harness.run(), await harness.open()
    words: dict[str, Any] = {"request_id": "r1"}
    sent = [queue.push(run, pages(50), "w1", FREE, **words) for queue in (harness.queue, other)]
    one, two = await asyncio.gather(*sent)
    assert one.claim.lease == two.claim.lease
    assert {one.answers, two.answers} == {("leased",) * 50}
    assert (await harness.stats(run)).leased == 50


async def test_the_worker_gets_its_batch_by_a_claim_with_the_same_request(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "waiting")
    result = await push(harness, run, [page("a"), page("b")], "w7", request_id="r1")
    claim = await harness.claim(worker="w7", request_id="r1")
    assert (claim.lease, sorted(urls(claim))) == (result.claim.lease, ["a", "b"])


async def test_after_its_lease_a_repeated_request_leases_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await push(harness, run, [page("a")], request_id="r1", lease=5.0)
    await harness.advance(6)
    again = await push(harness, run, [page("a")], request_id="r1", lease=5.0)
    assert again.claim.tasks == ()
    assert again.answers == ("known",)


async def test_what_a_dead_worker_was_given_goes_to_others(harness: QueueHarness) -> None:
    run = await harness.run()
    result = await push(harness, run, [page("a"), page("b")])
    executing = next(task.id for task in result.claim.tasks if task.url == "a")
    await harness.lose("w1", [executing])
    assert urls(await harness.claim(worker="w2")) == ["a"], "it lost a worker, and comes alone"
    assert urls(await harness.claim(worker="w2")) == ["b"]
    assert await harness.settle(result.claim.tasks[0]) == "stale"


async def test_a_silent_workers_lease_ends_unless_it_is_extended(harness: QueueHarness) -> None:
    run = await harness.run()
    result = await push(harness, run, [page("a")], lease=10.0)
    await harness.advance(8)
    assert (await harness.queue.extend("w1", {result.claim.lease: []}, lease=10.0)).lost == frozenset()
    await harness.advance(8)
    assert (await harness.queue.reap()).returned == 0
    await harness.advance(8)
    assert (await harness.queue.reap()).returned == 1


async def test_slots_are_those_of_the_lane(harness: QueueHarness) -> None:
    run = await harness.run()
    result = await push(harness, run, pages(8), pace=Pace(0.5, 0))
    assert result.answers == ("leased",) * 5 + ("added",) * 3, "five fit within two seconds"
    assert [task.start_in for task in result.claim.tasks] == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert urls(result.claim) == ["p0", "p1", "p2", "p3", "p4"]
    assert (await harness.claim(worker="w2")).tasks == (), "the lane has no slot left within the horizon"
    await harness.advance(2.5)
    claim = await harness.claim(1, worker="w2")
    assert urls(claim) == ["p5"]


async def test_a_push_takes_places_and_finds_none_in_a_full_lane(harness: QueueHarness) -> None:
    run = await harness.run()
    result = await push(harness, run, pages(3), pace=Pace(0.0, 2))
    assert result.answers == ("leased", "leased", "added")
    assert (await push(harness, run, [page("late")], pace=Pace(0.0, 2))).answers == ("added",)
    await harness.settle(result.claim.tasks[0])
    assert urls(await harness.claim(worker="w2")) == ["p2"], "what was only added waits for any claim"


@pytest.mark.parametrize(
    "change", [LaneChange(LANE, hold_for=5.0), LaneChange(LANE, park_for=5.0)], ids=["held", "parked"]
)
async def test_nothing_is_pushed_into_a_lane_that_is_kept_quiet(harness: QueueHarness, change: LaneChange) -> None:
    run = await harness.run()
    await harness.add(run, "first")
    await harness.queue.set_lane(change)
    assert (await push(harness, run, [page("a"), page("b", "b.test")])).answers == ("added", "leased")


async def test_a_probe_of_a_parked_lane_is_left_to_claims(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.set_lane(LaneChange(LANE, park_for=5.0))
    await harness.advance(6)
    assert (await push(harness, run, [page("a")])).answers == ("added",)
    assert (await harness.one()).probe == 1


async def test_only_a_worker_that_has_what_it_needs_is_given_it(harness: QueueHarness) -> None:
    run = await harness.run()
    tasks = [page("plain"), page("b", needs=BROWSER), page("be", needs=("browser", "exit:de"))]
    result = await push(harness, run, tasks, capabilities=BROWSER)
    assert result.answers == ("leased", "leased", "added")
    assert {task.url: task.needs for task in result.claim.tasks} == {"plain": (), "b": BROWSER}
    assert (await harness.stats(run)).needs == {"browser+exit:de": 1}
    assert urls(await harness.claim(capabilities=("browser", "exit:de"))) == ["be"]
    assert (await harness.stats(run)).needs == {}


async def test_delayed_and_expired_tasks_are_only_added(harness: QueueHarness) -> None:
    run = await harness.run()
    result = await push(harness, run, [page("later", delay=5.0), page("over", ttl=0.0), page("brief", ttl=3.0)])
    assert result.answers == ("added", "added", "leased")
    stats = await harness.stats(run)
    assert (stats.delayed, stats.leased, stats.dead) == (1, 1, 1)
    await harness.advance(5)
    assert urls(await harness.claim()) == ["later"]


async def test_a_paused_run_takes_tasks_and_leases_none(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, "pause")
    assert await push(harness, run, [page("a")]) == PushResult(("added",))


@pytest.mark.parametrize("action", ["cancel", "finish"])
async def test_an_ended_run_takes_nothing(harness: QueueHarness, action: Any) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, action)
    assert await push(harness, run, [page("a"), page("b")]) == PushResult(("rejected", "rejected"))


async def test_never_more_than_max_pages_are_pushed(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=3)
    assert (await push(harness, run, pages(2))).answers == ("leased", "leased")
    assert (await push(harness, run, pages(2, "q"))).answers == ("leased", "added")
    assert (await harness.claim(worker="w2")).tasks == ()


async def test_a_full_outbox_holds_back_what_is_pushed(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    entries = tuple(OutboxEntry("feed", str(n), b"") for n in range(MAX_OUTBOX_PER_RUN))
    await harness.queue.settle([outcome(await harness.one(), outbox=entries)])
    assert (await push(harness, run, [page("b")])).answers == ("added",)


async def test_what_another_run_has_had_is_seen(harness: QueueHarness) -> None:
    first, second = await harness.run(seen_set="all"), await harness.run("other", seen_set="all")
    assert (await push(harness, first, [page("a")])).answers == ("leased",)
    result = await push(harness, second, [page("a"), page("b")], request_id="r1")
    assert result.answers == ("seen", "leased")
    assert (await push(harness, second, [page("a"), page("b")], request_id="r1")).answers == ("seen", "leased")


async def test_a_pushed_task_of_a_cancelled_run_may_still_bring_its_records(harness: QueueHarness) -> None:
    run = await harness.run()
    result = await push(harness, run, [page("a")], request_id="r1")
    await harness.queue.set_run(run, "cancel")
    assert (await push(harness, run, [page("a")], request_id="r1")).claim.tasks == ()
    assert await harness.settle(result.claim.tasks[0], records=(b"{}",)) == "ok"
    assert (await harness.stats(run)).done == 1


async def test_a_run_pays_for_what_it_pushes(harness: QueueHarness) -> None:
    harness.need_one_order()
    busy, other = await harness.run("busy"), await harness.run("other")
    for run in (busy, other):
        await harness.add(run, pages(40, f"{run}-", f"{run}.test"), UNLIMITED_PACE)
    await harness.queue.push(busy, pages(20, "pushed", "c.test"), "w1", {"c.test": UNLIMITED_PACE})
    given = [(await harness.one()).run for _ in range(20)]
    assert given.count(other) > given.count(busy), "the other comes first until it has had as much"


async def test_more_than_a_push_may_bring_is_refused(harness: QueueHarness) -> None:
    run = await harness.run()
    with pytest.raises(ValueError, match="at most 1,000"):
        await push(harness, run, pages(MAX_PUSH + 1))
    assert (await harness.stats(run)).seen == 0
    result = await push(harness, run, pages(MAX_PUSH))
    assert set(result.answers) == {"leased"}
    assert await push(harness, run, []) == PushResult()
