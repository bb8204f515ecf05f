"""ack="auto": at most once. Whatever goes wrong, such a task is never handed out again."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, failed, outcome, page, pages, urls
from shoal.core.lane import Pace
from shoal.core.task import UNACKNOWLEDGED, digest


async def test_both_kinds_are_leased_alike_and_say_what_they_are(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("auto", ack="auto"), page("manual")], Pace(0.0, 3))
    claim = await harness.claim()
    assert {task.url: task.ack for task in claim.tasks} == {"auto": "auto", "manual": "manual"}
    stats = await harness.stats(run)
    assert (stats.leased, stats.open) == (2, 2)
    assert (await harness.lane()).in_flight == 2
    assert await harness.settle_all(claim) == ["ok", "ok"]
    stats = await harness.stats(run)
    assert (stats.done, stats.open) == (2, 0)


@pytest.mark.parametrize("after", [0.0, 5.0])
async def test_a_retry_is_a_dead_letter(harness: QueueHarness, after: float) -> None:
    run = await harness.run()
    await harness.add(run, [page("auto", ack="auto"), page("manual")])
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, "retry", after=after, **failed("http.500"))
    stats = await harness.stats(run)
    assert (stats.ready, stats.dead, stats.retries, stats.delayed) == (1, 1, 1, int(after > 0))
    view = await harness.queue.find(run, digest("auto"))
    assert view is not None
    assert (view.state, view.cause, view.attempts) == ("dead", "http.500", 1)
    assert view.history[-1].message == "it was http.500"
    assert stats == await harness.queue.recount(run)


@pytest.mark.parametrize("how", ["expired", "extended and expired", "worker died", "worker died with it"])
async def test_a_lease_that_ends_unsettled_leaves_a_dead_letter(harness: QueueHarness, how: str) -> None:
    run = await harness.run()
    await harness.add(run, [page("auto", ack="auto"), page("manual")], Pace(0.0, 5))
    claim = await harness.claim(worker="w1")
    auto = next(task for task in claim.tasks if task.url == "auto")
    if how == "extended and expired":
        await harness.queue.extend("w1", {claim.lease: [auto.id]})
    if "expired" in how:
        await harness.advance(31)
        answer = await harness.queue.reap()
    else:
        answer = await harness.queue.reap({"w1": [auto.id] if how.endswith("with it") else []})
    assert (answer.returned, answer.dead) == (1, 1)
    assert urls(await harness.claim()) == ["manual"]
    stats = await harness.stats(run)
    assert (stats.dead, stats.leased, stats.is_balanced) == (1, 1, True)
    assert (await harness.lane()).in_flight == 1
    view = await harness.queue.find(run, digest("auto"))
    assert view is not None
    assert (view.state, view.cause, view.lost) == ("dead", UNACKNOWLEDGED, 0)
    assert (view.history[-1].cause, view.history[-1].worker) == (UNACKNOWLEDGED, "w1")
    (group,) = await harness.queue.dead_groups(run)
    assert (group.cause, group.count) == (UNACKNOWLEDGED, 1)
    assert await harness.settle(auto) == "stale", "too late: it is accounted for"
    assert (await harness.stats(run)).dead == 1


async def test_what_was_not_started_may_be_released(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("auto", ack="auto")])
    await harness.settle(await harness.one(), "released")
    again = await harness.one()
    assert (again.url, again.ack, again.attempts) == ("auto", "auto", 0)


async def test_a_person_may_give_it_another_chance(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("auto", ack="auto", meta={"n": 1})])
    await harness.one("w1")
    await harness.lose("w1")
    assert await harness.queue.revive(run) == 1
    again = await harness.one("w2")
    assert (again.url, again.ack, again.meta) == ("auto", "auto", {"n": 1})
    await harness.lose("w2")
    assert (await harness.stats(run)).dead == 1, "it comes once at most, again"


async def test_found_and_delayed_ones_keep_it(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    found = (page("late", ack="auto", delay=3.0), page("lived", ack="auto", ttl=60.0))
    await harness.settle(await harness.one(), found=found)
    await harness.advance(4)
    assert {(task.url, task.ack) for task in (await harness.claim()).tasks} == {("late", "auto"), ("lived", "auto")}


async def test_a_batch_in_one_call(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(30, ack="auto"))
    claim = await harness.claim(30)
    outcomes = [outcome(task, records=(b"{}",) if n % 2 else ()) for n, task in enumerate(claim.tasks)]
    assert await harness.queue.settle(outcomes) == ["ok"] * 30
    assert await harness.queue.settle(outcomes) == ["already"] * 30
    stats = await harness.stats(run)
    assert (stats.done, stats.records, stats.open) == (30, 15, 0)
    assert stats == await harness.queue.recount(run)
    assert not await harness.queue.orphans(run)
