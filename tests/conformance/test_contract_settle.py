"""settle: what became of a task, in one step, by nobody but its holder."""

from __future__ import annotations

import json

import pytest

from conformance.harness import QueueHarness, failed, outcome, page, pages, urls
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.task import Attempt, digest

RECORDS = (b'{"n":1}', b'{"n":2}')


async def data(harness: QueueHarness, run: int) -> list:
    return [json.loads(record.data) for record in await harness.queue.records(run)]


# results


async def test_done_stores_records_adds_links_and_acknowledges(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    assert await harness.settle(leased, records=RECORDS, found=(page("b"), page("c"))) == "ok"
    stats = await harness.stats(run)
    assert (stats.done, stats.leased, stats.ready, stats.records, stats.seen) == (1, 0, 2, 2, 3)
    assert await data(harness, run) == [{"n": 1}, {"n": 2}]
    assert {record.task for record in await harness.queue.records(run)} == {leased.id}


async def test_done_is_never_handed_out_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(lease=5.0))
    await harness.advance(1000)
    await harness.queue.reap()
    assert not (await harness.claim()).tasks
    assert await harness.state_of(run, "a") == "done"


async def test_retry_is_due_after_its_delay_and_costs_an_attempt(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "retry", after=10.0, **failed("http.500"))
    stats = await harness.stats(run)
    assert (stats.ready, stats.delayed, stats.retries, stats.leased) == (1, 1, 1, 0)
    await harness.advance(9)
    assert not (await harness.claim()).tasks
    await harness.advance(2)
    assert (await harness.one()).attempts == 1


async def test_retry_without_delay_is_ready_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "retry", after=0.0, **failed("x"))
    assert (await harness.one()).attempts == 1


async def test_a_retried_task_tells_its_earlier_failures_by_cause(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    for cause in ("http.500", "timeout.total", "http.500"):
        await harness.settle(await harness.one(), "retry", **failed(cause))
    assert (await harness.one()).failures == {"http.500": 2, "timeout.total": 1}


async def test_a_retry_lives_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "retry", after=10.0, **failed("x"))
    await harness.reopen()
    assert not (await harness.claim()).tasks
    await harness.advance(11)
    leased = await harness.one()
    assert (leased.attempts, leased.failures) == (1, {"x": 1})


async def test_dead_is_a_dead_letter_with_cause_attempts_and_evidence(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "retry", **failed("http.500"))
    evidence = {"status": 404, "body": "gone"}
    await harness.settle(await harness.one(), "dead", evidence=evidence, **failed("http.404"))
    assert (await harness.stats(run)).dead == 1
    (letter,) = await harness.queue.list_tasks(run, state="dead")
    assert (letter.cause, letter.attempts) == ("http.404", 2)
    assert letter.evidence == evidence
    assert [attempt.cause for attempt in letter.history] == ["http.500", "http.404"]
    assert letter.history[-1].message == "it was http.404"
    assert not (await harness.claim()).tasks


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
async def test_released_goes_back_to_its_place(harness: QueueHarness, order: tuple[int, ...]) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    tasks = (await harness.claim(3)).tasks
    await harness.advance(1)
    await harness.queue.settle([outcome(tasks[number], "released") for number in order[:2]])
    await harness.settle(tasks[order[2]], "released")
    assert [(await harness.one()).url for _ in range(5)] == ["p0", "p1", "p2", "p3", "p4"]
    view = await harness.queue.find(run, digest("p0"))
    assert view is not None and view.added_at == view.due_at


async def test_the_place_of_a_released_task_is_the_same_after_the_clock_stepped_back(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    due = await harness.queue.now()
    await harness.advance(-0.5)
    await harness.settle(await harness.one(), "released")
    view = await harness.queue.find(run, digest("p0"))
    assert view is not None and view.due_at == due
    assert urls(await harness.claim()) == ["p0", "p1"], "nor does it wait for the clock"


async def test_released_for_later_is_due_then_and_costs_no_attempt(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    await harness.settle(await harness.one(), "released", after=5.0)
    assert urls(await harness.claim()) == ["p1"]
    stats = await harness.stats(run)
    assert (stats.ready, stats.delayed, stats.leased, stats.retries) == (1, 1, 1, 0)
    claim = await harness.claim()
    assert not claim.tasks and claim.next_in == 5.0
    await harness.advance(5)
    again = await harness.one()
    assert (again.url, again.attempts, again.lost, again.failures) == ("p0", 0, 0, None)
    assert (await harness.stats(run)).delayed == 0


async def test_released_is_ready_as_it_was_and_costs_no_attempt(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", priority=5, meta={"x": 1})
    before = await harness.one()
    await harness.settle(before, "released")
    after = await harness.one()
    assert (after.id, after.attempts, after.lost, after.meta) == (before.id, 0, 0, {"x": 1})
    assert after.lease > before.lease
    assert (await harness.stats(run)).retries == 0


async def test_cancelled_ends_without_failure(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "cancelled", cause="robots")
    stats = await harness.stats(run)
    assert (stats.cancelled, stats.dead, stats.open) == (1, 0, 0)
    (view,) = await harness.queue.list_tasks(run, state="cancelled")
    assert view.cause == "robots"


async def test_part_takes_links_and_leaves_the_task_leased(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    part = {"found": (page("b"), page("c")), "skipped": (("scope", "x"),)}
    assert await harness.settle(leased, "part", **part) == "ok"
    stats = await harness.stats(run)
    assert (stats.leased, stats.ready, stats.done, stats.skipped) == (1, 2, 0, {"scope": 1})
    assert await harness.settle(leased, found=(page("c"), page("d")), records=RECORDS) == "ok"
    stats = await harness.stats(run)
    assert (stats.leased, stats.ready, stats.done, stats.records) == (0, 3, 1, 2)


async def test_part_keeps_no_records(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "part", records=RECORDS)
    assert not await harness.queue.records(run)
    assert (await harness.stats(run)).records == 0


async def test_found_tasks_take_the_paces_given_with_settle(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    found = (page("b", "b.test"), page("c", "c.test"))
    await harness.queue.settle([outcome(leased, found=found)], {"b.test": Pace(3.0, 9)})
    lane, other = await harness.lane("b.test"), await harness.lane("c.test")
    assert (lane.spacing, lane.max_in_flight) == (3.0, 9)
    assert (other.spacing, other.max_in_flight) == (1.0, 2)


async def test_found_tasks_come_out_with_depth_parent_and_meta(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    parent = await harness.one()
    await harness.settle(parent, found=(page("b", depth=1, parent=parent.id, meta={"k": "v"}, priority=3),))
    child = await harness.one()
    assert (child.depth, child.parent, child.meta, child.priority) == (1, parent.id, {"k": "v"}, 3)


async def test_skipped_links_are_counted_by_reason_and_are_no_tasks(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    links = (("robots", "x"), ("robots", "y"), ("depth", "z"))
    await harness.settle(await harness.one(), skipped=links)
    stats = await harness.stats(run)
    assert (stats.skipped, stats.seen, stats.open) == ({"robots": 2, "depth": 1}, 1, 0)
    assert sorted(await harness.queue.skipped(run)) == sorted(links)


async def test_sizes_of_answers_add_up(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    for size in (1000, 234):
        await harness.settle(await harness.one(), attempt=Attempt(at=1, worker="w", size=size))
    assert (await harness.stats(run)).bytes == 1234


# batches


async def test_a_batch_may_be_settled_in_parts_and_any_order(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    tasks = (await harness.claim(5)).tasks
    assert await harness.queue.settle([outcome(tasks[3])]) == ["ok"]
    assert await harness.queue.settle([outcome(tasks[4], "retry"), outcome(tasks[0])]) == ["ok", "ok"]
    assert (await harness.stats(run)).leased == 2
    assert await harness.queue.settle([outcome(tasks[2]), outcome(tasks[1])]) == ["ok", "ok"]
    stats = await harness.stats(run)
    assert (stats.done, stats.ready, stats.leased) == (4, 1, 0)


async def test_one_call_settles_tasks_of_many_claims_and_runs(harness: QueueHarness) -> None:
    one, other = await harness.run("one"), await harness.run("other")
    await harness.add(one, "a b")
    await harness.add(other, "a b")
    held = [await harness.one(f"w{number}") for number in range(4)]
    assert await harness.queue.settle([outcome(leased, records=RECORDS[:1]) for leased in held]) == ["ok"] * 4
    for run in (one, other):
        assert ((await harness.stats(run)).done, (await harness.stats(run)).records) == (2, 2)


async def test_settling_nothing_is_nothing(harness: QueueHarness) -> None:
    assert await harness.queue.settle([]) == []


async def test_a_batch_that_cannot_be_stored_leaves_nothing_behind(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    one, other = (await harness.claim(2)).tasks
    before = await harness.stats(run)
    good = outcome(one, records=RECORDS, found=(page("c"),), skipped=(("scope", "x"),))
    with pytest.raises(Exception, match=r"."):
        await harness.queue.settle([good, outcome(other, found=(page("d", meta={"no": object()}),))])
    assert await harness.stats(run) == before
    assert await harness.queue.settle([good, outcome(other)]) == ["ok", "ok"]
    assert (await harness.stats(run)).records == 2


async def test_what_was_acknowledged_is_there_after_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), records=RECORDS, found=(page("b"),), skipped=(("scope", "x"),))
    before = await harness.stats(run)
    await harness.reopen()
    assert await harness.stats(run) == before
    assert await data(harness, run) == [{"n": 1}, {"n": 2}]
    assert (await harness.one()).url == "b"


# redirects to the same page


async def test_a_redirect_to_a_new_url_is_kept_and_that_url_is_known(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), records=RECORDS, found=(page("b"),), redirect_digest=digest("target"))
    assert (await harness.stats(run)).records == 2
    assert await harness.add(run, "target") == ["known"]
    assert (await harness.stats(run)).seen == 2, "the address a redirect led to is not a task of its own"


async def test_a_redirect_to_a_known_page_is_done_without_records_and_links(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "target a")
    held = {leased.url: leased for leased in (await harness.claim()).tasks}
    words = {"records": RECORDS, "found": (page("b"),), "redirect_digest": digest("target")}
    assert await harness.settle(held["a"], **words) == "ok"
    stats = await harness.stats(run)
    assert (stats.done, stats.records, stats.seen) == (1, 0, 2)


async def test_of_two_redirects_to_one_url_the_first_is_kept(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, records=RECORDS, redirect_digest=digest("target"))
    stats = await harness.stats(run)
    assert (stats.done, stats.records) == (2, 2)


async def test_a_redirect_to_itself_is_kept(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), records=RECORDS, redirect_digest=digest("a"))
    assert (await harness.stats(run)).records == 2


async def test_a_redirect_in_another_run_is_another_matter(harness: QueueHarness) -> None:
    one, other = await harness.run("one"), await harness.run("other")
    await harness.add(one, "target", pace=UNLIMITED_PACE)
    await harness.add(other, "a", pace=UNLIMITED_PACE)
    for leased in (await harness.claim()).tasks:
        if leased.run == other:
            await harness.settle(leased, records=RECORDS, redirect_digest=digest("target"))
    assert (await harness.stats(other)).records == 2
