"""Runs: started once, paused, resumed, cancelled, finished, and fair to each other."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from conformance.world import World, page, pages, urls
from shoal.core.lane import Pace
from shoal.core.run import NewRun
from shoal.errors import Usage
from shoal.queue.base import Where


async def state(world: World, run: int) -> str:
    return next(item.state for item in await world.queue.runs() if item.id == run)


# registry


async def test_a_run_is_kept_as_it_was_described(world: World) -> None:
    spec = {"start": ["http://a.test/"], "deep": {"n": None, "ü": 1.5}}
    new = NewRun(scraper="books", key="k", name="happy-otter", spec=spec, weight=3, max_pages=10)
    run = await world.queue.start_run(new)
    assert (run.state, run.scraper, run.key, run.name) == ("running", "books", "k", "happy-otter")
    assert (run.spec, run.weight, run.max_pages) == (spec, 3, 10)
    assert run.created_at == await world.queue.now()
    await world.reopen()
    assert await world.queue.runs() == [run]


async def test_the_same_key_finds_its_run_again(world: World) -> None:
    first = await world.run("k")
    assert await world.run("k") == first
    await world.queue.set_run(first, "pause")
    assert await world.run("k") == first
    assert await world.run("another") != first


@pytest.mark.parametrize("action", ["finish", "cancel"])
async def test_the_same_key_starts_anew_when_its_run_has_ended(world: World, action: str) -> None:
    first = await world.run("k")
    await world.queue.set_run(first, action)
    assert await world.run("k") > first


async def test_runs_are_listed_newest_first_and_filtered(world: World) -> None:
    ids = [await world.run(f"k{number}", name=f"{'ab'[number % 2]}{number}") for number in range(4)]
    await world.queue.set_run(ids[0], "pause")

    async def listed(**how: object) -> list[int]:
        return [run.id for run in await world.queue.runs(**how)]

    assert await listed() == ids[::-1]
    assert await listed(limit=2) == ids[:1:-1]
    assert await listed(key="k2") == [ids[2]]
    assert await listed(states=["paused"]) == [ids[0]]
    assert await listed(states=["finished", "cancelled"]) == []


async def test_runs_of_one_scraper_are_listed(world: World) -> None:
    ids = [await world.run(f"k{number}", scraper=["books", "films"][number % 2]) for number in range(4)]
    await world.queue.set_run(ids[1], "cancel")

    async def listed(**how: object) -> list[int]:
        return [run.id for run in await world.queue.runs(**how)]

    assert await listed(scraper="books") == [ids[2], ids[0]]
    assert await listed(scraper="films", states=["running"]) == [ids[3]]
    assert await listed(scraper="films", before=ids[3]) == [ids[1]]
    assert await listed(scraper="film") == []


async def test_pages_of_runs_follow_each_other(world: World) -> None:
    ids = [await world.run(f"k{number}") for number in range(7)]
    for id in ids[::3]:
        await world.queue.set_run(id, "pause")
    for how, expected in (({}, ids), ({"states": ["paused"]}, ids[::3])):
        seen: list[int] = []
        while some := await world.queue.runs(before=seen[-1] if seen else 0, limit=2, **how):
            assert len(some) <= 2
            assert not {run.id for run in some} & set(seen)
            seen += [run.id for run in some]
        assert seen == expected[::-1]
    assert await world.queue.runs(before=1) == []
    assert len(await world.queue.runs(before=ids[-1] + 1000)) == 7


async def test_a_run_is_found_by_its_name_or_a_unique_beginning_of_it(world: World) -> None:
    one, two = await world.run("1", name="happy-otter"), await world.run("2", name="happy-otter-2")
    three = await world.run("3", name="sad-newt")
    meant = {"happy-otter": one, "happy-otter-2": two, "sad": three, "happy-otter-": two}
    for name, expected in meant.items():
        assert [run.id for run in await world.queue.runs(name=name)] == [expected], name
    assert await world.queue.runs(name="otter") == []


# pause, resume


async def test_a_paused_run_hands_out_nothing_and_a_resumed_one_does(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_run(run, "pause")
    assert not (await world.claim()).tasks
    assert (await world.stats(run)).ready == 1
    await world.queue.set_run(run, "resume")
    assert urls(await world.claim()) == ["a"]


async def test_pausing_one_run_does_not_stop_another_in_the_same_lane(world: World) -> None:
    one, other = await world.run("one"), await world.run("other")
    await world.add(one, pages(50, "one"))
    await world.add(other, pages(3, "other"))
    await world.queue.set_run(one, "pause")
    assert len((await world.claim(10)).tasks) == 3


async def test_a_paused_run_settles_what_it_has_handed_out(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.queue.set_run(run, "pause")
    assert await world.settle(leased, records=(b"{}",), found=(page("b"),)) == "ok"
    stats = await world.stats(run)
    assert (stats.done, stats.ready, stats.records) == (1, 1, 1)


async def test_a_pause_lives_over_a_restart(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.queue.set_run(run, "pause")
    await world.reopen()
    assert not (await world.claim()).tasks


# cancel


async def test_cancel_moves_open_tasks_at_once(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    await world.add(run, "later", delay=60.0)
    claim = await world.claim(2)
    await world.settle(claim.tasks[0])
    cancelled = await world.queue.set_run(run, "cancel")
    assert cancelled.state == "cancelled"
    stats = await world.stats(run)
    assert (stats.done, stats.cancelled, stats.ready, stats.delayed, stats.leased) == (1, 5, 0, 0, 0)


async def test_a_cancelled_run_is_never_handed_out_again(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(5))
    await world.add(run, "later", delay=10.0)
    await world.claim(2, lease=5.0)
    await world.queue.set_run(run, "cancel")
    for _ in range(3):
        assert not (await world.claim()).tasks
        await world.advance(20)
        await world.queue.reap()
    assert (await world.stats(run)).cancelled == 6


async def test_tasks_of_a_cancelled_run_are_shown_as_cancelled(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.add(run, "c", delay=60.0)
    await world.one()
    await world.queue.set_run(run, "cancel")
    for shown in ("ready", "delayed", "leased"):
        assert await world.queue.look(run, state=shown) == []
    assert [await world.state_of(run, url) for url in "abc"] == ["cancelled"] * 3
    await world.queue.reap()
    assert [await world.state_of(run, url) for url in "abc"] == ["cancelled"] * 3


async def test_cancel_gives_places_in_flight_back(world: World) -> None:
    drop, keep = await world.run("drop"), await world.run("keep")
    await world.add(drop, "a", pace=Pace(0.0, 1))
    await world.one()
    await world.add(keep, "b", pace=Pace(0.0, 1))
    assert not (await world.claim()).tasks
    await world.queue.set_run(drop, "cancel")
    assert (await world.lane()).in_flight == 0
    assert urls(await world.claim()) == ["b"]


async def test_a_late_settle_of_a_cancelled_task_keeps_records_and_drops_links(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    leased = await world.one()
    await world.queue.set_run(run, "cancel")
    assert await world.settle(leased, records=(b'{"n":1}',), found=(page("c"),)) == "ok"
    stats = await world.stats(run)
    assert (stats.done, stats.cancelled, stats.records, stats.seen, stats.open) == (1, 1, 1, 2, 0)
    assert await world.settle(leased, records=(b'{"n":1}',)) == "already"
    assert (await world.stats(run)).records == 1


@pytest.mark.parametrize("result", ["retry", "released", "dead", "cancelled", "part"])
async def test_a_late_settle_never_brings_a_cancelled_task_back(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a b")
    leased = await world.one()
    await world.queue.set_run(run, "cancel")
    await world.settle(leased, result, cause="x", found=(page("c"),))
    stats = await world.stats(run)
    assert (stats.open, stats.cancelled, stats.dead, stats.seen) == (0, 2, 0, 2)
    assert not (await world.claim()).tasks


@pytest.mark.parametrize("result", ["retry", "released", "dead", "cancelled"])
async def test_a_late_settle_that_is_repeated_is_already(world: World, result: str) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.queue.set_run(run, "cancel")
    assert await world.settle(leased, result, cause="x") == "ok"
    assert await world.settle(leased, result, cause="x") == "already"
    assert (await world.stats(run)).stale == 0


async def test_a_late_settle_leaves_places_in_flight_right(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    held = await world.claim(2)
    await world.queue.set_run(run, "cancel")
    await world.settle(held.tasks[0])
    await world.advance(60)
    await world.queue.reap()
    assert (await world.lane()).in_flight == 0


async def test_two_answers_of_a_cancelled_task_keep_one_set_of_records(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    old = await world.one("slow", lease=5.0)
    await world.advance(6)
    await world.queue.reap()
    new = await world.one("quick")
    await world.queue.set_run(run, "cancel")
    assert await world.settle(old, records=(b"{}",)) == "stale"
    assert await world.settle(new, records=(b"{}",)) == "ok"
    assert (await world.stats(run)).records == 1


# finish


async def test_a_run_finishes_only_when_nothing_is_open(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    with pytest.raises(Usage):
        await world.queue.set_run(run, "finish")
    claim = await world.claim()
    with pytest.raises(Usage):
        await world.queue.set_run(run, "finish")
    await world.settle(claim.tasks[0])
    await world.settle(claim.tasks[1], "dead", cause="x")
    finished = await world.queue.set_run(run, "finish")
    assert (finished.state, finished.finished_at) == ("finished", await world.queue.now())


async def test_a_found_task_keeps_its_run_open(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), found=(page("b"),))
    with pytest.raises(Usage):
        await world.queue.set_run(run, "finish")


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("finish", "pause"),
        ("finish", "resume"),
        ("finish", "cancel"),
        ("cancel", "pause"),
        ("cancel", "resume"),
    ],
)
async def test_an_action_that_does_not_fit_is_refused(world: World, first: str, then: str) -> None:
    run = await world.run()
    await world.queue.set_run(run, first)
    before = await state(world, run)
    with pytest.raises(Usage, match=r"\w+"):
        await world.queue.set_run(run, then)
    assert await state(world, run) == before


@pytest.mark.parametrize("action", ["pause", "cancel", "finish"])
async def test_repeating_an_action_is_harmless(world: World, action: str) -> None:
    run = await world.run()
    once = await world.queue.set_run(run, action)
    assert await world.queue.set_run(run, action) == once


async def test_resuming_a_running_run_is_harmless(world: World) -> None:
    run = await world.run()
    assert (await world.queue.set_run(run, "resume")).state == "running"


async def test_an_unknown_run_is_refused(world: World) -> None:
    with pytest.raises(Usage):
        await world.queue.set_run(4711, "pause")


# revive


async def test_revived_dead_letters_are_ready_with_fresh_attempts(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    for leased in (await world.claim()).tasks:
        await world.settle(leased, "dead", cause="http.500")
    assert await world.queue.revive(run) == 2
    stats = await world.stats(run)
    assert (stats.dead, stats.ready, stats.seen) == (0, 2, 2)
    claim = await world.claim()
    assert [(task.attempts, task.lost) for task in claim.tasks] == [(0, 0), (0, 0)]
    assert not any(task.failures for task in claim.tasks)


async def test_no_more_than_the_limit_are_revived_the_oldest_first_and_in_the_end_all(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(7))
    for leased in (await world.claim(7)).tasks:
        await world.settle(leased, "dead", cause="http.500")
    ids = [view.id for view in await world.queue.look(run, state="dead")]
    for expected in (3, 3, 1, 0):
        assert await world.queue.revive(run, Where(cause="http.*"), limit=3) == expected
        ids = ids[expected:]
        assert [view.id for view in await world.queue.look(run, state="dead")] == ids
    stats = await world.stats(run)
    assert (stats.dead, stats.ready) == (0, 7)
    assert stats == await world.queue.recount(run)


async def test_reviving_a_finished_run_sets_it_running(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await world.settle(await world.one(), "dead", cause="x")
    await world.queue.set_run(run, "finish")
    assert await world.queue.revive(run) == 1
    assert await state(world, run) == "running"
    await world.settle(await world.one())
    assert (await world.queue.set_run(run, "finish")).state == "finished"


async def test_reviving_nothing_leaves_a_finished_run_finished(world: World) -> None:
    run = await world.run()
    await world.queue.set_run(run, "finish")
    assert await world.queue.revive(run) == 0
    assert await state(world, run) == "finished"


async def test_revived_tasks_keep_the_pace_their_run_asked_for(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3), pace=Pace(0.5, 2))
    for _ in range(3):
        await world.settle(await world.one(), "dead", cause="x")
        await world.advance(1)
    await world.queue.set_run(run, "finish")
    await world.queue.revive(run)
    lane = await world.lane()
    assert (lane.spacing, lane.max_in_flight) == (0.5, 2)
    assert len((await world.claim()).tasks) <= 2


async def test_a_worker_that_comes_back_for_a_revived_task_is_stale_or_known(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.settle(leased, "dead", cause="x")
    await world.queue.revive(run)
    assert await world.settle(leased, records=(b"{}",)) in ("already", "stale")
    stats = await world.stats(run)
    assert (stats.ready, stats.records) == (1, 0)


async def test_a_revived_worker_lost_task_gets_all_its_chances_again(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    for number in range(3):
        await world.lose(f"w{number}", [(await world.one(f"w{number}")).id])
    assert await world.queue.revive(run) == 1
    await world.lose("w9", [(await world.one("w9")).id])
    assert (await world.stats(run)).ready == 1


# once


@pytest.mark.parametrize("end", ["finish", "cancel", "pause"])
async def test_a_run_to_be_started_once_never_starts_again(world: World, end: str) -> None:
    first = await world.run("schedule/books/5", once=True)
    await world.queue.set_run(first, end)
    assert await world.run("schedule/books/5", once=True) == first
    (known,) = await world.queue.runs(key="schedule/books/5")
    assert known.state != "running", "it is returned as it is"


async def test_who_does_not_say_once_starts_an_ended_run_anew(world: World) -> None:
    first = await world.run("k", once=True)
    await world.queue.set_run(first, "finish")
    second = await world.run("k")
    assert second != first
    await world.queue.set_run(second, "finish")
    assert await world.run("k", once=True) == second, "of several the newest is returned"


async def test_of_many_that_start_a_run_once_all_get_the_same(world: World) -> None:
    handles = [world.queue, await world.open(), await world.open()]
    new = [NewRun(scraper="books", key="k", name=f"n{n}", once=True) for n in range(6)]
    started = await asyncio.gather(*(handles[n % 3].start_run(it) for n, it in enumerate(new)))
    assert len({run.id for run in started}) == 1
    assert len(await world.queue.runs()) == 1


async def test_an_open_run_is_returned_before_an_ended_one(world: World) -> None:
    first = await world.run("k")
    await world.queue.set_run(first, "finish")
    second = await world.run("k")
    assert await world.run("k", once=True) == second


# purge


async def test_an_ended_run_is_purged_whole(world: World) -> None:
    gone, kept = await world.run("gone"), await world.run("kept")
    for run in (gone, kept):
        await world.add(run, "a")
    for leased in (await world.claim()).tasks:
        await world.settle(leased, records=(b"{}",))
    await world.queue.set_run(gone, "finish")
    assert await world.queue.purge(run=gone) == 1
    assert [run.id for run in await world.queue.runs()] == [kept]
    assert await world.queue.purge(older_than=0.0) == 0
    assert len(await world.queue.records(kept)) == 1


async def test_a_running_run_is_never_purged(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    with suppress(Usage):
        assert await world.queue.purge(run=run) == 0
    await world.advance(1000)
    assert await world.queue.purge(older_than=1.0) == 0
    assert urls(await world.claim()) == ["a"]


async def test_only_runs_that_ended_long_ago_are_purged(world: World) -> None:
    old, fresh = await world.run("old"), await world.run("fresh")
    await world.queue.set_run(old, "finish")
    await world.advance(100)
    await world.queue.set_run(fresh, "cancel")
    assert await world.queue.purge(older_than=50.0) == 1
    assert [run.id for run in await world.queue.runs()] == [fresh]


async def test_the_number_of_a_purged_run_is_not_used_again(world: World) -> None:
    first = await world.run("k")
    await world.queue.set_run(first, "finish")
    await world.queue.purge(run=first)
    assert await world.run("k") > first


async def test_a_late_answer_for_a_purged_run_is_stale(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    leased = await world.one()
    await world.queue.set_run(run, "cancel")
    await world.queue.purge(run=run)
    assert await world.settle(leased, records=(b"{}",)) == "stale"
