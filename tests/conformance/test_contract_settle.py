"""settle: what became of a task, in one step, by nobody but its holder."""

from __future__ import annotations

import json

import pytest

from conformance.world import World, failed, outcome, page, pages
from shoal.core.lane import FREE, Pace
from shoal.core.task import Attempt, digest

RECORDS = (b'{"n":1}', b'{"n":2}')


async def data(world: World, run: int) -> list:
    return [json.loads(record.data) for record in await world.queue.records(run)]


# results


async def test_done_stores_records_adds_links_and_acknowledges(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    assert await world.settle(leased, records=RECORDS, found=(page("b"), page("c"))) == "ok"
    stats = await world.stats(run)
    assert (stats.done, stats.leased, stats.ready, stats.records, stats.seen) == (1, 0, 2, 2, 3)
    assert await data(world, run) == [{"n": 1}, {"n": 2}]
    assert {record.task for record in await world.queue.records(run)} == {leased.id}


async def test_done_is_never_handed_out_again(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(lease=5.0))
    await world.advance(1000)
    await world.queue.reap()
    assert not (await world.claim()).tasks
    assert await world.state_of(run, "a") == "done"


async def test_retry_is_due_after_its_delay_and_costs_an_attempt(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "retry", after=10.0, **failed("http.500"))
    stats = await world.stats(run)
    assert (stats.ready, stats.delayed, stats.retries, stats.leased) == (1, 1, 1, 0)
    await world.advance(9)
    assert not (await world.claim()).tasks
    await world.advance(2)
    assert (await world.one()).attempts == 1


async def test_retry_without_delay_is_ready_at_once(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "retry", after=0.0, **failed("x"))
    assert (await world.one()).attempts == 1


async def test_a_retried_task_tells_its_earlier_failures_by_cause(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    for cause in ("http.500", "timeout.total", "http.500"):
        await world.settle(await world.one(), "retry", **failed(cause))
    assert (await world.one()).failures == {"http.500": 2, "timeout.total": 1}


async def test_a_retry_lives_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "retry", after=10.0, **failed("x"))
    await world.reopen()
    assert not (await world.claim()).tasks
    await world.advance(11)
    leased = await world.one()
    assert (leased.attempts, leased.failures) == (1, {"x": 1})


async def test_dead_is_a_dead_letter_with_cause_attempts_and_evidence(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "retry", **failed("http.500"))
    evidence = {"status": 404, "body": "gone"}
    await world.settle(await world.one(), "dead", evidence=evidence, **failed("http.404"))
    assert (await world.stats(run)).dead == 1
    (letter,) = await world.queue.look(run, state="dead")
    assert (letter.cause, letter.attempts) == ("http.404", 2)
    assert letter.evidence == evidence
    assert [attempt.cause for attempt in letter.history] == ["http.500", "http.404"]
    assert letter.history[-1].message == "it was http.404"
    assert not (await world.claim()).tasks


async def test_released_is_ready_as_it_was_and_costs_no_attempt(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", priority=5, meta={"x": 1})
    before = await world.one()
    await world.settle(before, "released")
    after = await world.one()
    assert (after.id, after.attempts, after.lost, after.meta) == (before.id, 0, 0, {"x": 1})
    assert after.lease > before.lease
    assert (await world.stats(run)).retries == 0


async def test_cancelled_ends_without_failure(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "cancelled", cause="robots")
    stats = await world.stats(run)
    assert (stats.cancelled, stats.dead, stats.open) == (1, 0, 0)
    (view,) = await world.queue.look(run, state="cancelled")
    assert view.cause == "robots"


async def test_part_takes_links_and_leaves_the_task_leased(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    part = {"found": (page("b"), page("c")), "skipped": (("scope", "x"),)}
    assert await world.settle(leased, "part", **part) == "ok"
    stats = await world.stats(run)
    assert (stats.leased, stats.ready, stats.done, stats.skipped) == (1, 2, 0, {"scope": 1})
    assert await world.settle(leased, found=(page("c"), page("d")), records=RECORDS) == "ok"
    stats = await world.stats(run)
    assert (stats.leased, stats.ready, stats.done, stats.records) == (0, 3, 1, 2)


async def test_part_keeps_no_records(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "part", records=RECORDS)
    assert not await world.queue.records(run)
    assert (await world.stats(run)).records == 0


async def test_found_tasks_take_the_paces_given_with_settle(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    found = (page("b", "b.test"), page("c", "c.test"))
    await world.queue.settle([outcome(leased, found=found)], {"b.test": Pace(3.0, 9)})
    lane, other = await world.lane("b.test"), await world.lane("c.test")
    assert (lane.spacing, lane.max_in_flight) == (3.0, 9)
    assert (other.spacing, other.max_in_flight) == (1.0, 2)


async def test_found_tasks_come_out_with_depth_parent_and_meta(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    parent = await world.one()
    await world.settle(parent, found=(page("b", depth=1, parent=parent.id, meta={"k": "v"}, priority=3),))
    child = await world.one()
    assert (child.depth, child.parent, child.meta, child.priority) == (1, parent.id, {"k": "v"}, 3)


async def test_skipped_links_are_counted_by_reason_and_are_no_tasks(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    links = (("robots", "x"), ("robots", "y"), ("depth", "z"))
    await world.settle(await world.one(), skipped=links)
    stats = await world.stats(run)
    assert (stats.skipped, stats.seen, stats.open) == ({"robots": 2, "depth": 1}, 1, 0)
    assert sorted(await world.queue.skipped(run)) == sorted(links)


async def test_sizes_of_answers_add_up(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    for size in (1000, 234):
        await world.settle(await world.one(), attempt=Attempt(at=1, worker="w", size=size))
    assert (await world.stats(run)).bytes == 1234


# batches


async def test_a_batch_may_be_settled_in_parts_and_any_order(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    tasks = (await world.claim(5)).tasks
    assert await world.queue.settle([outcome(tasks[3])]) == ["ok"]
    assert await world.queue.settle([outcome(tasks[4], "retry"), outcome(tasks[0])]) == ["ok", "ok"]
    assert (await world.stats(run)).leased == 2
    assert await world.queue.settle([outcome(tasks[2]), outcome(tasks[1])]) == ["ok", "ok"]
    stats = await world.stats(run)
    assert (stats.done, stats.ready, stats.leased) == (4, 1, 0)


async def test_one_call_settles_tasks_of_many_claims_and_runs(world: World) -> None:
    one, other = await world.run("one"), await world.run("other")
    await world.add(one, "a b")
    await world.add(other, "a b")
    held = [await world.one(f"w{number}") for number in range(4)]
    assert await world.queue.settle([outcome(leased, records=RECORDS[:1]) for leased in held]) == ["ok"] * 4
    for run in (one, other):
        assert ((await world.stats(run)).done, (await world.stats(run)).records) == (2, 2)


async def test_settling_nothing_is_nothing(world: World) -> None:
    assert await world.queue.settle([]) == []


async def test_a_batch_that_cannot_be_stored_leaves_nothing_behind(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    one, other = (await world.claim(2)).tasks
    before = await world.stats(run)
    good = outcome(one, records=RECORDS, found=(page("c"),), skipped=(("scope", "x"),))
    with pytest.raises(Exception, match=r"."):
        await world.queue.settle([good, outcome(other, found=(page("d", meta={"no": object()}),))])
    assert await world.stats(run) == before
    assert await world.queue.settle([good, outcome(other)]) == ["ok", "ok"]
    assert (await world.stats(run)).records == 2


async def test_what_was_acknowledged_is_there_after_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), records=RECORDS, found=(page("b"),), skipped=(("scope", "x"),))
    before = await world.stats(run)
    await world.reopen()
    assert await world.stats(run) == before
    assert await data(world, run) == [{"n": 1}, {"n": 2}]
    assert (await world.one()).url == "b"


# redirects to the same page


async def test_a_redirect_to_a_new_address_is_kept_and_that_address_is_known(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), records=RECORDS, found=(page("b"),), same_as=digest("target"))
    assert (await world.stats(run)).records == 2
    assert await world.add(run, "target") == ["known"]
    assert (await world.stats(run)).seen == 2, "the address a redirect led to is not a task of its own"


async def test_a_redirect_to_a_known_page_is_done_without_records_and_links(world: World) -> None:
    run = await world.run()
    await world.add(run, "target a")
    held = {leased.url: leased for leased in (await world.claim()).tasks}
    words = {"records": RECORDS, "found": (page("b"),), "same_as": digest("target")}
    assert await world.settle(held["a"], **words) == "ok"
    stats = await world.stats(run)
    assert (stats.done, stats.records, stats.seen) == (1, 0, 2)


async def test_of_two_redirects_to_one_address_the_first_is_kept(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    for leased in (await world.claim()).tasks:
        await world.settle(leased, records=RECORDS, same_as=digest("target"))
    stats = await world.stats(run)
    assert (stats.done, stats.records) == (2, 2)


async def test_a_redirect_to_itself_is_kept(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), records=RECORDS, same_as=digest("a"))
    assert (await world.stats(run)).records == 2


async def test_a_redirect_in_another_run_is_another_matter(world: World) -> None:
    one, other = await world.run("one"), await world.run("other")
    await world.add(one, "target", pace=FREE)
    await world.add(other, "a", pace=FREE)
    for leased in (await world.claim()).tasks:
        if leased.run == other:
            await world.settle(leased, records=RECORDS, same_as=digest("target"))
    assert (await world.stats(other)).records == 2
