"""Needs: a task that needs capabilities goes only to workers that declare them, and is nobody else's burden."""

from __future__ import annotations

import pytest

from conformance.harness import LANE, QueueHarness, failed, outcome, page, pages, urls
from shoal.core.lane import UNLIMITED_PACE, Pace, WorkerStatus
from shoal.core.needs import MAX_NEEDS_SETS
from shoal.core.task import LaneChange, Task, digest
from shoal.errors import UsageError

BROWSER = ("browser",)
BOTH = ("browser", "exit:de")


def needy(count: int, needs: tuple[str, ...] = BROWSER, **more: object) -> list[Task]:
    return pages(count, prefix="n", needs=needs, **more)


async def test_a_task_goes_only_to_who_has_what_it_needs(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("plain"), page("b", needs=BROWSER), page("be", needs=("exit:de", "browser"))])
    assert urls(await harness.claim()) == ["plain"]
    assert urls(await harness.claim()) == []
    assert urls(await harness.claim(capabilities=("exit:de",))) == []
    with_browser = await harness.claim(capabilities=BROWSER)
    assert {task.url: task.needs for task in with_browser.tasks} == {"b": BROWSER}
    with_both = await harness.claim(capabilities=("gpu", "exit:de", "browser"))
    assert {task.url: task.needs for task in with_both.tasks} == {"be": BOTH}


async def test_who_has_more_gets_work_without_needs_too(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a"), page("b", needs=BROWSER), page("c"), page("d", needs=BOTH), page("e")])
    assert urls(await harness.claim(capabilities=BOTH)) == ["a", "b", "c", "d", "e"]


async def test_a_repeated_claim_says_the_same_needs(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("b", needs=BROWSER), page("plain")])
    claim = await harness.claim(capabilities=BROWSER, request_id="r1")
    again = await harness.claim(capabilities=BROWSER, request_id="r1")
    assert {task.url: task.needs for task in again.tasks} == {"b": BROWSER, "plain": ()}
    assert again.lease == claim.lease


async def test_order_in_a_lane_is_that_of_all_a_worker_can_do(harness: QueueHarness) -> None:
    run = await harness.run()
    tasks = [
        page("low", priority=-100), page("n-low", priority=-100, needs=BROWSER), page("plain"),
        page("n-plain", needs=BROWSER), page("n-high", priority=100, needs=BOTH), page("high", priority=100),
    ]  # fmt: skip
    await harness.add(run, tasks)
    assert urls(await harness.claim(2, capabilities=BROWSER)) == ["high", "plain"]
    assert urls(await harness.claim(2, capabilities=BOTH)) == ["n-high", "n-plain"]
    assert urls(await harness.claim(2, capabilities=BOTH)) == ["low", "n-low"]


async def test_the_oldest_of_all_a_worker_can_do_is_not_starved(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("old", priority=-100, needs=BROWSER)])
    await harness.advance(1)
    await harness.add(run, [*pages(30, priority=100), *needy(30, priority=100)])
    seen = urls(await harness.claim(20, capabilities=BROWSER))
    assert "old" in seen


async def test_next_in_does_not_speak_of_what_a_worker_cannot_do(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, needy(3), Pace(1.0, 0))
    assert (await harness.claim()).next_in is None
    assert len((await harness.claim(3, capabilities=BROWSER)).tasks) == 3
    assert (await harness.claim(capabilities=BROWSER)).next_in is None, "all of it is handed out"
    await harness.add(run, [page("one more", needs=BROWSER)], Pace(1.0, 0))
    assert (await harness.claim(capabilities=BROWSER)).next_in is not None
    assert (await harness.claim()).next_in is None


async def test_work_without_needs_is_found_behind_work_with_them(harness: QueueHarness) -> None:
    run = await harness.run()
    for number in range(40):
        await harness.add(run, [page(f"far{number}", f"{number}.test", needs=BROWSER)])
    await harness.add(run, [*needy(5), page("plain")])
    assert urls(await harness.claim(1)) == ["plain"]


async def test_places_and_slots_of_a_lane_are_shared_by_all_its_work(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [*pages(5), *needy(5)], Pace(0.0, 3))
    assert len((await harness.claim(2)).tasks) == 2
    assert len((await harness.claim(5, capabilities=BROWSER)).tasks) == 1
    assert (await harness.claim(5, capabilities=BROWSER)).tasks == ()
    assert (await harness.lane()).in_flight == 3
    spaced = await harness.run("spaced", name="spaced")
    await harness.add(spaced, [page("s", "slow.test"), page("n", "slow.test", needs=BROWSER)], Pace(1.5, 0))
    (first,) = (await harness.claim(1, serves=("spaced",))).tasks
    (second,) = (await harness.claim(1, serves=("spaced",), capabilities=BROWSER)).tasks
    assert (first.start_in, second.start_in) == (0.0, 1.5)


async def test_the_account_says_what_is_needed(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [*pages(2), *needy(3), page("both", needs=BOTH), page("later", needs=BOTH, delay=5.0)])
    stats = await harness.stats(run)
    assert (stats.ready, stats.delayed, stats.needs) == (7, 1, {"browser": 3, "browser+exit:de": 1})
    assert stats == await harness.queue.recount(run)
    assert stats.claimable == 6
    claim = await harness.claim(1, capabilities=BROWSER)
    assert (await harness.stats(run)).needs == {
        "browser": 3 - sum(bool(it.needs) for it in claim.tasks),
        "browser+exit:de": 1,
    }
    await harness.advance(6)
    assert (await harness.stats(run)).needs["browser+exit:de"] == 2
    assert await harness.stats(run) == await harness.queue.recount(run)


async def test_claimable_is_what_some_worker_could_take(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [*pages(2), *needy(3)], Pace(0.0, 0))
    assert (await harness.stats(run)).claimable == 5
    await harness.claim()
    assert (await harness.stats(run)).claimable == 3
    await harness.queue.set_lane(LaneChange(LANE, hold_for=60.0))
    assert (await harness.stats(run)).claimable == 0


@pytest.mark.parametrize("result", ["retry", "released"])
@pytest.mark.parametrize("after", [0.0, 5.0])
async def test_what_comes_back_needs_the_same(harness: QueueHarness, result: str, after: float) -> None:
    run = await harness.run()
    await harness.add(run, needy(1))
    leased = await harness.one(capabilities=BROWSER)
    await harness.settle(leased, result, after=after, **failed("http.500"))
    await harness.advance(6)
    assert (await harness.stats(run)).needs == {"browser": 1}
    assert (await harness.claim()).tasks == ()
    again = await harness.one(capabilities=BROWSER)
    assert (again.url, again.needs) == ("n0", BROWSER)
    assert (await harness.stats(run)).needs == {}
    assert await harness.stats(run) == await harness.queue.recount(run)


async def test_a_task_that_lost_its_worker_goes_alone_to_who_has_what_it_needs(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [*needy(2), page("plain")], Pace(0.0, 0))
    leased = (await harness.claim(1, worker="w1", capabilities=BOTH)).tasks[0]
    await harness.lose("w1", [leased.id])
    assert urls(await harness.claim(capabilities=("exit:de",))) == ["plain"]
    assert urls(await harness.claim(capabilities=BROWSER)) == [leased.url]
    assert len(urls(await harness.claim(capabilities=BROWSER))) == 1


async def test_dead_letters_come_back_with_their_needs(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, needy(2))
    for leased in (await harness.claim(capabilities=BROWSER)).tasks:
        await harness.settle(leased, "dead", **failed("http.404"))
    view = await harness.queue.find(run, digest("n0"))
    assert view is not None and view.needs == BROWSER
    assert await harness.queue.revive(run) == 2
    assert (await harness.stats(run)).needs == {"browser": 2}
    assert (await harness.claim()).tasks == ()
    assert len((await harness.claim(capabilities=BROWSER)).tasks) == 2


async def test_what_goes_is_counted_no_more(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [*needy(2), page("short", needs=BROWSER, ttl=5.0), page("later", needs=BROWSER, delay=9.0)])
    await harness.advance(6)
    await harness.queue.reap()
    assert (await harness.stats(run)).needs == {"browser": 2}
    assert await harness.queue.drop(run) == 3
    stats = await harness.stats(run)
    assert (stats.needs, stats.ready, stats.cancelled, stats.dead) == ({}, 0, 3, 1)
    assert stats == await harness.queue.recount(run)


async def test_a_cancelled_run_needs_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, needy(3))
    await harness.queue.set_run(run, "cancel")
    assert (await harness.stats(run)).needs == {}
    assert (await harness.claim(capabilities=BROWSER)).tasks == ()


async def test_found_tasks_have_needs_of_their_own(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("plain")])
    await harness.settle(await harness.one(), found=(page("js", needs=BROWSER), page("text")))
    assert urls(await harness.claim()) == ["text"]
    assert urls(await harness.claim(capabilities=BROWSER)) == ["js"]


async def test_views_say_what_a_task_needs(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("b", needs=BROWSER), page("later", needs=BOTH, delay=9.0), page("plain")])
    views = await harness.queue.list_tasks(run)
    assert {view.url: view.needs for view in views} == {"b": BROWSER, "later": BOTH, "plain": ()}
    assert {view.url for view in await harness.queue.list_tasks(run, state="ready")} >= {"b", "plain"}
    leased = await harness.claim(capabilities=BROWSER)
    views = await harness.queue.list_tasks(run, state="leased")
    assert {view.url: view.needs for view in views} == {task.url: task.needs for task in leased.tasks}


async def test_a_run_moves_with_what_its_tasks_need(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [*needy(2), page("both", needs=BOTH, delay=60.0), page("plain")])
    dead = await harness.one(capabilities=BROWSER)
    assert dead.url == "n0"
    await harness.settle(dead, "dead", **failed("http.404"))
    await harness.queue.set_run(run, "pause")
    exported = await harness.queue.export_run(run)
    assert {it.task.url: it.task.needs for it in exported} == {
        "n0": BROWSER, "n1": BROWSER, "both": BOTH, "plain": (),
    }  # fmt: skip
    other = await harness.run("other", name="other")
    await harness.queue.set_run(other, "pause")
    await harness.queue.import_run(other, exported, paces={LANE: UNLIMITED_PACE})
    assert (await harness.stats(other)).needs == {"browser": 1}
    await harness.queue.set_run(other, "resume")
    assert await harness.queue.revive(other) == 1
    assert urls(await harness.claim(serves=("other",))) == ["plain"]
    assert sorted(urls(await harness.claim(serves=("other",), capabilities=BROWSER))) == ["n0", "n1"]
    assert await harness.stats(other) == await harness.queue.recount(other)


async def test_too_many_combinations_in_one_run_are_refused(harness: QueueHarness) -> None:
    run = await harness.run()
    many = [page(f"t{number}", needs=(f"exit:{number}",)) for number in range(MAX_NEEDS_SETS)]
    await harness.add(run, many)
    with pytest.raises(UsageError, match="one too many"):
        await harness.add(run, [page("one", needs=("exit:x",))])
    assert (await harness.stats(run)).seen == MAX_NEEDS_SETS
    assert await harness.add(run, [page("known", needs=("exit:3",))]) == ["added"]
    other = await harness.run("other", name="other")
    assert await harness.add(other, [page("one", needs=("exit:x",))]) == ["added"], "another run counts by itself"


async def test_a_found_task_of_one_combination_too_many_is_a_skipped_link(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("plain")])
    found = tuple(page(f"t{number}", needs=(f"exit:{number}",)) for number in range(MAX_NEEDS_SETS + 2))
    assert await harness.settle(await harness.one(), found=found) == "ok"
    stats = await harness.stats(run)
    assert (stats.done, stats.ready, stats.skipped) == (1, MAX_NEEDS_SETS, {"needs": 2})
    assert sorted(await harness.queue.skipped(run)) == [("needs", "t16"), ("needs", "t17")]


@pytest.mark.parametrize("needs", [("Browser",), ("",), ("a b",), ("a+b",), ("x" * 33,), ("a", "b", "c", "d", "e")])
async def test_what_is_no_capability_is_refused(harness: QueueHarness, needs: tuple[str, ...]) -> None:
    run = await harness.run()
    with pytest.raises(UsageError, match="capabilit"):
        await harness.add(run, [page("plain"), page("bad", needs=needs)])
    assert (await harness.stats(run)).seen == 0
    if len(needs) == 1:
        with pytest.raises(UsageError, match="capabilit"):
            await harness.claim(capabilities=needs)
    await harness.add(run, [page("plain")])
    leased = await harness.one()
    with pytest.raises(UsageError, match="capabilit"):
        await harness.queue.settle([outcome(leased, found=(page("bad", needs=needs),))])
    assert await harness.settle(leased) == "ok", "nothing was changed before"


async def test_a_run_that_goes_takes_its_needs_along(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, needy(3))
    await harness.queue.set_run(run, "cancel")
    while await harness.queue.purge(run=run) == 0:
        pass
    again = await harness.run()
    await harness.add(again, needy(1, BOTH))
    assert (await harness.stats(again)).needs == {"browser+exit:de": 1}
    assert len((await harness.claim(capabilities=BOTH)).tasks) == 1


async def test_runs_that_share_a_lane_are_served_by_what_a_worker_has(harness: QueueHarness) -> None:
    urgent, other = await harness.run("urgent", priority=10), await harness.run("other", name="other")
    await harness.add(urgent, needy(20), Pace(0.0, 0))
    await harness.add(other, pages(20), Pace(0.0, 0))
    assert len((await harness.claim(5)).tasks) == 5, "what a worker cannot do holds nothing back"
    mine = await harness.claim(10, capabilities=BROWSER)
    assert [task.run for task in mine.tasks].count(urgent) >= 9


async def test_the_registry_knows_what_a_worker_has(harness: QueueHarness) -> None:
    await harness.queue.register(WorkerStatus("w1", "w1", "host", 1, "1", 1, 0, capabilities=BOTH))
    (status,) = await harness.queue.workers()
    assert status.capabilities == BOTH
