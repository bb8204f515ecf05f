"""Runs: started once, paused, resumed, cancelled, finished, and fair to each other."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from conformance.harness import QueueHarness, page, pages, urls
from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.errors import RunNameTaken, UsageError
from shoal.queue.base import TaskFilter


async def state(harness: QueueHarness, run: int) -> str:
    return next(item.state for item in await harness.queue.runs() if item.id == run)


# registry


async def test_a_run_is_kept_as_it_was_described(harness: QueueHarness) -> None:
    spec = {"start": ["http://a.test/"], "deep": {"n": None, "ü": 1.5}}
    new = NewRun(scraper="books", key="k", name="happy-otter", spec=spec, weight=3, max_pages=10)
    run = await harness.queue.start_run(new)
    assert (run.state, run.scraper, run.key, run.name) == ("running", "books", "k", "happy-otter")
    assert (run.spec, run.weight, run.max_pages) == (spec, 3, 10)
    assert run.created_at == await harness.queue.now()
    await harness.reopen()
    assert await harness.queue.runs() == [run]


async def test_the_same_key_finds_its_run_again(harness: QueueHarness) -> None:
    first = await harness.run("k")
    assert await harness.run("k") == first
    await harness.queue.set_run(first, "pause")
    assert await harness.run("k") == first
    assert await harness.run("another") != first


@pytest.mark.parametrize("action", ["finish", "cancel"])
async def test_the_same_key_starts_anew_when_its_run_has_ended(harness: QueueHarness, action: str) -> None:
    first = await harness.run("k")
    await harness.queue.set_run(first, action)
    assert await harness.run("k") > first


async def test_runs_are_listed_newest_first_and_filtered(harness: QueueHarness) -> None:
    ids = [await harness.run(f"k{number}", name=f"{'ab'[number % 2]}{number}") for number in range(4)]
    await harness.queue.set_run(ids[0], "pause")

    async def listed(**how: object) -> list[int]:
        return [run.id for run in await harness.queue.runs(**how)]

    assert await listed() == ids[::-1]
    assert await listed(limit=2) == ids[:1:-1]
    assert await listed(key="k2") == [ids[2]]
    assert await listed(states=["paused"]) == [ids[0]]
    assert await listed(states=["finished", "cancelled"]) == []


async def test_runs_of_one_scraper_are_listed(harness: QueueHarness) -> None:
    ids = [await harness.run(f"k{number}", scraper=["books", "films"][number % 2]) for number in range(4)]
    await harness.queue.set_run(ids[1], "cancel")

    async def listed(**how: object) -> list[int]:
        return [run.id for run in await harness.queue.runs(**how)]

    assert await listed(scraper="books") == [ids[2], ids[0]]
    assert await listed(scraper="films", states=["running"]) == [ids[3]]
    assert await listed(scraper="films", before=ids[3]) == [ids[1]]
    assert await listed(scraper="film") == []


async def test_pages_of_runs_follow_each_other(harness: QueueHarness) -> None:
    ids = [await harness.run(f"k{number}") for number in range(7)]
    for id in ids[::3]:
        await harness.queue.set_run(id, "pause")
    for how, expected in (({}, ids), ({"states": ["paused"]}, ids[::3])):
        seen: list[int] = []
        while some := await harness.queue.runs(before=seen[-1] if seen else 0, limit=2, **how):
            assert len(some) <= 2
            assert not {run.id for run in some} & set(seen)
            seen += [run.id for run in some]
        assert seen == expected[::-1]
    assert await harness.queue.runs(before=1) == []
    assert len(await harness.queue.runs(before=ids[-1] + 1000)) == 7


async def test_a_name_that_another_run_has_is_refused(harness: QueueHarness) -> None:
    one = await harness.run("1", name="happy-otter")
    with pytest.raises(RunNameTaken, match="happy-otter"):
        await harness.run("2", name="happy-otter")
    assert [run.id for run in await harness.queue.runs()] == [one]


async def test_a_run_is_found_by_its_name_or_a_unique_beginning_of_it(harness: QueueHarness) -> None:
    one, two = await harness.run("1", name="happy-otter"), await harness.run("2", name="happy-otter-2")
    three = await harness.run("3", name="sad-newt")
    meant = {"happy-otter": one, "happy-otter-2": two, "sad": three, "happy-otter-": two}
    for name, expected in meant.items():
        assert [run.id for run in await harness.queue.runs(name=name)] == [expected], name
    assert await harness.queue.runs(name="otter") == []


# pause, resume


async def test_a_paused_run_hands_out_nothing_and_a_resumed_one_does(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_run(run, "pause")
    assert not (await harness.claim()).tasks
    assert (await harness.stats(run)).ready == 1
    await harness.queue.set_run(run, "resume")
    assert urls(await harness.claim()) == ["a"]


async def test_pausing_one_run_does_not_stop_another_in_the_same_lane(harness: QueueHarness) -> None:
    one, other = await harness.run("one"), await harness.run("other")
    await harness.add(one, pages(50, "one"))
    await harness.add(other, pages(3, "other"))
    await harness.queue.set_run(one, "pause")
    assert len((await harness.claim(10)).tasks) == 3


async def test_a_paused_run_settles_what_it_has_handed_out(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.queue.set_run(run, "pause")
    assert await harness.settle(leased, records=(b"{}",), found=(page("b"),)) == "ok"
    stats = await harness.stats(run)
    assert (stats.done, stats.ready, stats.records) == (1, 1, 1)


async def test_a_pause_lives_over_a_restart(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_run(run, "pause")
    await harness.reopen()
    assert not (await harness.claim()).tasks


# cancel


async def test_cancel_moves_open_tasks_at_once(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    await harness.add(run, "later", delay=60.0)
    claim = await harness.claim(2)
    await harness.settle(claim.tasks[0])
    cancelled = await harness.queue.set_run(run, "cancel")
    assert cancelled.state == "cancelled"
    stats = await harness.stats(run)
    assert (stats.done, stats.cancelled, stats.ready, stats.delayed, stats.leased) == (1, 5, 0, 0, 0)


async def test_a_cancelled_run_is_never_handed_out_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    await harness.add(run, "later", delay=10.0)
    await harness.claim(2, lease=5.0)
    await harness.queue.set_run(run, "cancel")
    for _ in range(3):
        assert not (await harness.claim()).tasks
        await harness.advance(20)
        await harness.queue.reap()
    assert (await harness.stats(run)).cancelled == 6


async def test_nothing_is_delayed_in_a_cancelled_run_whatever_others_do_when_its_time_comes(
    harness: QueueHarness,
) -> None:
    gone, run = await harness.run("gone"), await harness.run("run")
    await harness.add(gone, pages(3, delay=10.0))
    await harness.add(run, "a b", delay=10.0)
    await harness.queue.set_run(gone, "cancel")
    for seconds in (0, 11, 11):
        await harness.advance(seconds)
        await harness.claim(1)
        await harness.queue.reap()
        stats = await harness.stats(gone)
        assert (stats.ready, stats.delayed, stats.cancelled) == (0, 0, 3)
        assert stats == await harness.queue.recount(gone)


async def test_tasks_of_a_cancelled_run_are_shown_as_cancelled(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.add(run, "c", delay=60.0)
    await harness.one()
    await harness.queue.set_run(run, "cancel")
    for shown in ("ready", "delayed", "leased"):
        assert await harness.queue.list_tasks(run, state=shown) == []
    assert [await harness.state_of(run, url) for url in "abc"] == ["cancelled"] * 3
    await harness.queue.reap()
    assert [await harness.state_of(run, url) for url in "abc"] == ["cancelled"] * 3


async def test_cancel_gives_places_in_flight_back(harness: QueueHarness) -> None:
    drop, keep = await harness.run("drop"), await harness.run("keep")
    await harness.add(drop, "a", pace=Pace(0.0, 1))
    await harness.one()
    await harness.add(keep, "b", pace=Pace(0.0, 1))
    assert not (await harness.claim()).tasks
    await harness.queue.set_run(drop, "cancel")
    assert (await harness.lane()).in_flight == 0
    assert urls(await harness.claim()) == ["b"]


async def test_a_late_settle_of_a_cancelled_task_keeps_records_and_drops_links(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    leased = await harness.one()
    await harness.queue.set_run(run, "cancel")
    assert await harness.settle(leased, records=(b'{"n":1}',), found=(page("c"),)) == "ok"
    stats = await harness.stats(run)
    assert (stats.done, stats.cancelled, stats.records, stats.seen, stats.open) == (1, 1, 1, 2, 0)
    assert await harness.settle(leased, records=(b'{"n":1}',)) == "already"
    assert (await harness.stats(run)).records == 1


@pytest.mark.parametrize("result", ["retry", "released", "dead", "cancelled", "part"])
async def test_a_late_settle_never_brings_a_cancelled_task_back(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    leased = await harness.one()
    await harness.queue.set_run(run, "cancel")
    await harness.settle(leased, result, cause="x", found=(page("c"),))
    stats = await harness.stats(run)
    assert (stats.open, stats.cancelled, stats.dead, stats.seen) == (0, 2, 0, 2)
    assert not (await harness.claim()).tasks


@pytest.mark.parametrize("result", ["retry", "released", "dead", "cancelled"])
async def test_a_late_settle_that_is_repeated_is_already(harness: QueueHarness, result: str) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.queue.set_run(run, "cancel")
    assert await harness.settle(leased, result, cause="x") == "ok"
    assert await harness.settle(leased, result, cause="x") == "already"
    assert (await harness.stats(run)).stale == 0


async def test_a_late_settle_leaves_places_in_flight_right(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    held = await harness.claim(2)
    await harness.queue.set_run(run, "cancel")
    await harness.settle(held.tasks[0])
    await harness.advance(60)
    await harness.queue.reap()
    assert (await harness.lane()).in_flight == 0


async def test_two_answers_of_a_cancelled_task_keep_one_set_of_records(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    old = await harness.one("slow", lease=5.0)
    await harness.advance(6)
    await harness.queue.reap()
    new = await harness.one("quick")
    await harness.queue.set_run(run, "cancel")
    assert await harness.settle(old, records=(b"{}",)) == "stale"
    assert await harness.settle(new, records=(b"{}",)) == "ok"
    assert (await harness.stats(run)).records == 1


# finish


async def test_a_run_finishes_only_when_nothing_is_open(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    with pytest.raises(UsageError):
        await harness.queue.set_run(run, "finish")
    claim = await harness.claim()
    with pytest.raises(UsageError):
        await harness.queue.set_run(run, "finish")
    await harness.settle(claim.tasks[0])
    await harness.settle(claim.tasks[1], "dead", cause="x")
    finished = await harness.queue.set_run(run, "finish")
    assert (finished.state, finished.finished_at) == ("finished", await harness.queue.now())


async def test_a_found_task_keeps_its_run_open(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), found=(page("b"),))
    with pytest.raises(UsageError):
        await harness.queue.set_run(run, "finish")


@pytest.mark.parametrize(
    ("first", "then"),
    [("finish", "pause"), ("finish", "resume"), ("finish", "cancel"), ("cancel", "pause"), ("cancel", "resume")],
)
async def test_an_action_that_does_not_fit_is_refused(harness: QueueHarness, first: str, then: str) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, first)
    before = await state(harness, run)
    with pytest.raises(UsageError, match=r"\w+"):
        await harness.queue.set_run(run, then)
    assert await state(harness, run) == before


@pytest.mark.parametrize("action", ["pause", "cancel", "finish"])
async def test_repeating_an_action_is_harmless(harness: QueueHarness, action: str) -> None:
    run = await harness.run()
    once = await harness.queue.set_run(run, action)
    assert await harness.queue.set_run(run, action) == once


async def test_resuming_a_running_run_is_harmless(harness: QueueHarness) -> None:
    run = await harness.run()
    assert (await harness.queue.set_run(run, "resume")).state == "running"


async def test_an_unknown_run_is_refused(harness: QueueHarness) -> None:
    with pytest.raises(UsageError):
        await harness.queue.set_run(4711, "pause")


# revive


async def test_revived_dead_letters_are_ready_with_fresh_attempts(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, "dead", cause="http.500")
    assert await harness.queue.revive(run) == 2
    stats = await harness.stats(run)
    assert (stats.dead, stats.ready, stats.seen) == (0, 2, 2)
    claim = await harness.claim()
    assert [(task.attempts, task.lost) for task in claim.tasks] == [(0, 0), (0, 0)]
    assert not any(task.failures for task in claim.tasks)


async def test_no_more_than_the_limit_are_revived_the_oldest_first_and_in_the_end_all(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(7))
    for leased in (await harness.claim(7)).tasks:
        await harness.settle(leased, "dead", cause="http.500")
    ids = [view.id for view in await harness.queue.list_tasks(run, state="dead")]
    for expected in (3, 3, 1, 0):
        assert await harness.queue.revive(run, TaskFilter(cause="http.*"), limit=3) == expected
        ids = ids[expected:]
        assert [view.id for view in await harness.queue.list_tasks(run, state="dead")] == ids
    stats = await harness.stats(run)
    assert (stats.dead, stats.ready) == (0, 7)
    assert stats == await harness.queue.recount(run)


async def test_reviving_a_finished_run_sets_it_running(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), "dead", cause="x")
    await harness.queue.set_run(run, "finish")
    assert await harness.queue.revive(run) == 1
    assert await state(harness, run) == "running"
    await harness.settle(await harness.one())
    assert (await harness.queue.set_run(run, "finish")).state == "finished"


async def test_reviving_nothing_leaves_a_finished_run_finished(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, "finish")
    assert await harness.queue.revive(run) == 0
    assert await state(harness, run) == "finished"


async def test_revived_tasks_keep_the_pace_their_run_asked_for(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3), pace=Pace(0.5, 2))
    for _ in range(3):
        await harness.settle(await harness.one(), "dead", cause="x")
        await harness.advance(1)
    await harness.queue.set_run(run, "finish")
    await harness.queue.revive(run)
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.5, 2)
    assert len((await harness.claim()).tasks) <= 2


async def test_a_worker_that_comes_back_for_a_revived_task_is_stale_or_known(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.settle(leased, "dead", cause="x")
    await harness.queue.revive(run)
    assert await harness.settle(leased, records=(b"{}",)) in ("already", "stale")
    stats = await harness.stats(run)
    assert (stats.ready, stats.records) == (1, 0)


async def test_a_revived_worker_lost_task_gets_all_its_chances_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    for number in range(3):
        await harness.lose(f"w{number}", [(await harness.one(f"w{number}")).id])
    assert await harness.queue.revive(run) == 1
    await harness.lose("w9", [(await harness.one("w9")).id])
    assert (await harness.stats(run)).ready == 1


# once


@pytest.mark.parametrize("end", ["finish", "cancel", "pause"])
async def test_a_run_to_be_started_once_never_starts_again(harness: QueueHarness, end: str) -> None:
    first = await harness.run("schedule/books/5", once=True)
    await harness.queue.set_run(first, end)
    assert await harness.run("schedule/books/5", once=True) == first
    (known,) = await harness.queue.runs(key="schedule/books/5")
    assert known.state != "running", "it is returned as it is"


async def test_who_does_not_say_once_starts_an_ended_run_anew(harness: QueueHarness) -> None:
    first = await harness.run("k", once=True)
    await harness.queue.set_run(first, "finish")
    second = await harness.run("k")
    assert second != first
    await harness.queue.set_run(second, "finish")
    assert await harness.run("k", once=True) == second, "of several the newest is returned"


async def test_of_many_that_start_a_run_once_all_get_the_same(harness: QueueHarness) -> None:
    handles = [harness.queue, await harness.open(), await harness.open()]
    new = [NewRun(scraper="books", key="k", name=f"n{n}", once=True) for n in range(6)]
    started = await asyncio.gather(*(handles[n % 3].start_run(it) for n, it in enumerate(new)))
    assert len({run.id for run in started}) == 1
    assert len(await harness.queue.runs()) == 1


async def test_an_open_run_is_returned_before_an_ended_one(harness: QueueHarness) -> None:
    first = await harness.run("k")
    await harness.queue.set_run(first, "finish")
    second = await harness.run("k")
    assert await harness.run("k", once=True) == second


# purge


async def test_an_ended_run_is_purged_whole(harness: QueueHarness) -> None:
    gone, kept = await harness.run("gone"), await harness.run("kept")
    for run in (gone, kept):
        await harness.add(run, "a")
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, records=(b"{}",))
    await harness.queue.set_run(gone, "finish")
    assert await harness.queue.purge(run=gone) == 1
    assert [run.id for run in await harness.queue.runs()] == [kept]
    assert await harness.queue.purge(older_than=0.0) == 0
    assert len(await harness.queue.records(kept)) == 1


async def test_a_running_run_is_never_purged(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    with suppress(UsageError):
        assert await harness.queue.purge(run=run) == 0
    await harness.advance(1000)
    assert await harness.queue.purge(older_than=1.0) == 0
    assert urls(await harness.claim()) == ["a"]


async def test_only_runs_that_ended_long_ago_are_purged(harness: QueueHarness) -> None:
    old, fresh = await harness.run("old"), await harness.run("fresh")
    await harness.queue.set_run(old, "finish")
    await harness.advance(100)
    await harness.queue.set_run(fresh, "cancel")
    assert await harness.queue.purge(older_than=50.0) == 1
    assert [run.id for run in await harness.queue.runs()] == [fresh]


async def test_the_number_of_a_purged_run_is_not_used_again(harness: QueueHarness) -> None:
    first = await harness.run("k")
    await harness.queue.set_run(first, "finish")
    await harness.queue.purge(run=first)
    assert await harness.run("k") > first


async def test_a_late_answer_for_a_purged_run_is_stale(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.queue.set_run(run, "cancel")
    await harness.queue.purge(run=run)
    assert await harness.settle(leased, records=(b"{}",)) == "stale"
