"""Named seen-sets: what one run has had, no other run of the same set takes again."""

from __future__ import annotations

import asyncio

import pytest

from conformance.harness import QueueHarness, outcome, page, pages
from shoal.core.task import SEEN, digest
from shoal.queue.base import SeenSet

HOUR = 3600.0


async def start(harness: QueueHarness, name: str, **more: object) -> int:
    return await harness.run(name, name=name, **{"seen_set": "prices", **more})


async def only_set(harness: QueueHarness) -> SeenSet:
    (found,) = await harness.queue.seen_sets()
    return found


async def test_what_another_run_has_had_is_seen(harness: QueueHarness) -> None:
    one, other = await start(harness, "one"), await start(harness, "other")
    assert await harness.add(one, "a b") == ["added", "added"]
    assert await harness.add(other, "b c a c") == ["seen", "added", "seen", "known"]
    stats = await harness.stats(other)
    assert (stats.seen, stats.ready, stats.skipped) == (1, 1, {})
    assert sorted(task.url for task in (await harness.claim()).tasks) == ["a", "b", "c"]


async def test_a_run_knows_its_own_tasks_however_often_they_are_added(harness: QueueHarness) -> None:
    run = await start(harness, "one")
    assert await harness.add(run, "a b a") == ["added", "added", "known"]
    assert await harness.add(run, "a b") == ["known", "known"]
    await harness.reopen()
    assert await harness.add(run, "a b c") == ["known", "known", "added"]


async def test_runs_without_a_set_and_other_sets_are_apart(harness: QueueHarness) -> None:
    one, other = await start(harness, "one"), await start(harness, "other", seen_set="news")
    free = await start(harness, "free", seen_set="")
    for run in (one, other, free):
        assert await harness.add(run, "a") == ["added"]
    assert [(it.name, it.entries) for it in await harness.queue.seen_sets()] == [("news", 1), ("prices", 1)]


async def test_a_run_says_which_set_it_has(harness: QueueHarness) -> None:
    run = await harness.run("one", name="one", seen_set="prices", seen_for=86_400.0)
    (found,) = [it for it in await harness.queue.runs() if it.id == run]
    assert (found.seen_set, found.seen_for) == ("prices", 86_400.0)


async def test_found_links_that_are_seen_are_skipped_and_counted(harness: QueueHarness) -> None:
    one, other = await start(harness, "one"), await start(harness, "other")
    await harness.add(one, "a b")
    await harness.settle_all(await harness.claim())
    await harness.add(other, "start")
    found = (page("a"), page("new"), page("b"), page("new"), page("start"))
    await harness.queue.settle([outcome(await harness.one(), found=found)])
    stats = await harness.stats(other)
    assert (stats.seen, stats.ready, stats.skipped) == (2, 1, {SEEN: 2})
    assert await harness.add(one, "new start") == ["seen", "seen"]


async def test_parts_that_were_seen_are_skipped_too(harness: QueueHarness) -> None:
    one, other = await start(harness, "one"), await start(harness, "other")
    await harness.add(one, "a")
    await harness.settle(await harness.one())
    await harness.add(other, "start")
    leased = await harness.one()
    await harness.queue.settle([outcome(leased, "part", found=(page("a"), page("b")))])
    stats = await harness.stats(other)
    assert (stats.seen, stats.skipped) == (2, {SEEN: 1})
    assert await harness.add(one, "b") == ["seen"]


async def test_what_is_to_be_revisited_is_added_and_joins(harness: QueueHarness) -> None:
    one, other = await start(harness, "one"), await start(harness, "other")
    again = [page("start", revisit=True), page("more", revisit=True)]
    assert await harness.add(one, again[:1]) == ["added"]
    assert await harness.add(other, again) == ["added", "added"]
    assert await harness.add(other, again) == ["known", "known"]
    assert await harness.add(one, "start more") == ["known", "seen"]
    assert (await only_set(harness)).entries == 2


@pytest.mark.parametrize("result", ["done", "dead", "cancelled"])
async def test_a_task_stays_in_the_set_whatever_became_of_it(harness: QueueHarness, result: str) -> None:
    one = await start(harness, "one")
    await harness.add(one, "a")
    await harness.settle(await harness.one(), result, cause="" if result == "done" else "x")
    await harness.queue.set_run(one, "finish")
    assert await harness.add(await start(harness, "other"), "a") == ["seen"]


async def test_a_set_outlives_its_runs(harness: QueueHarness) -> None:
    one = await start(harness, "one")
    await harness.add(one, "a b")
    await harness.queue.set_run(one, "cancel")
    await harness.queue.purge(run=one)
    assert await harness.add(await start(harness, "other"), "a b c") == ["seen", "seen", "added"]
    assert (await only_set(harness)).entries == 3


async def test_dead_letters_are_revived_within_their_run(harness: QueueHarness) -> None:
    one = await start(harness, "one")
    await harness.add(one, "a")
    await harness.settle(await harness.one(), "dead", cause="x")
    assert await harness.queue.revive(one) == 1
    assert (await harness.one()).url == "a"


async def test_a_set_remembers_for_its_time_to_the_hour(harness: QueueHarness) -> None:
    one = await start(harness, "one", seen_for=10 * HOUR)
    await harness.add(one, "a")
    other = await start(harness, "other")
    await harness.advance(10 * HOUR - 1)
    assert await harness.add(other, "a") == ["seen"]
    await harness.advance(HOUR + 2)
    assert await harness.add(other, "a") == ["added"]
    assert await harness.add(await start(harness, "third"), "a") == ["seen"]
    assert (await only_set(harness)).entries == 1


async def test_what_is_no_longer_remembered_is_removed(harness: QueueHarness) -> None:
    one = await start(harness, "one", seen_for=2 * HOUR)
    await harness.add(one, pages(60))
    await harness.advance(2 * HOUR)
    await harness.add(one, "late")
    await harness.advance(1.5 * HOUR)
    await harness.queue.reap()
    await harness.queue.reap()
    assert (await only_set(harness)).entries == 1
    other = await start(harness, "other")
    assert await harness.add(other, "late") == ["seen"]
    assert set(await harness.add(other, pages(60))) == {"added"}
    await harness.advance(4 * HOUR)  # a second pass begins where the first began
    await harness.queue.reap()
    await harness.queue.reap()
    assert (await only_set(harness)).entries == 0


async def test_without_a_time_a_set_remembers_for_ever(harness: QueueHarness) -> None:
    await harness.add(await start(harness, "one"), "a")
    await harness.advance(1000 * 24 * HOUR)
    await harness.queue.reap()
    assert await harness.add(await start(harness, "other"), "a") == ["seen"]


async def test_the_newest_run_that_names_a_time_sets_it(harness: QueueHarness) -> None:
    await start(harness, "one", seen_for=10 * HOUR)
    await start(harness, "two")
    assert (await only_set(harness)).seen_for == 10 * HOUR
    await start(harness, "three", seen_for=20 * HOUR)
    assert (await only_set(harness)).seen_for == 20 * HOUR
    await start(harness, "one", seen_for=99 * HOUR)  # it goes on, and was decided before
    assert (await only_set(harness)).seen_for == 20 * HOUR


async def test_a_listed_set_says_how_many_and_since_when(harness: QueueHarness) -> None:
    run, began = await start(harness, "one"), harness.clock()
    assert (await only_set(harness)).entries == 0
    await harness.advance(5)
    await harness.add(run, pages(50))
    found = await only_set(harness)
    assert (found.name, found.entries, found.seen_for) == ("prices", 50, 0.0)
    assert (found.created_at, found.changed_at) == (began, harness.clock())


async def test_a_task_can_be_forgotten(harness: QueueHarness) -> None:
    one, other = await start(harness, "one"), await start(harness, "other")
    await harness.add(one, "a b")
    assert await harness.queue.forget_seen("prices", [digest("a"), digest("never")]) == 1
    assert await harness.queue.forget_seen("no such set", [digest("a")]) == 0
    assert await harness.add(other, "a b") == ["added", "seen"]
    assert await harness.add(one, "a") == ["known"]
    assert (await only_set(harness)).entries == 2


async def test_a_cleared_set_is_empty_and_gone(harness: QueueHarness) -> None:
    one = await start(harness, "one", seen_for=10 * HOUR)
    await harness.add(one, pages(100))
    assert await harness.queue.clear_seen("prices") == 100
    assert await harness.queue.seen_sets() == []
    assert await harness.queue.clear_seen("prices") == 0
    assert await harness.add(one, "p1") == ["known"]
    assert await harness.queue.seen_sets() == []
    assert await harness.add(one, "p1 more") == ["known", "added"]
    assert await harness.add(await start(harness, "other"), "p1 more") == ["added", "seen"]
    assert ((await only_set(harness)).entries, (await only_set(harness)).seen_for) == (2, 10 * HOUR)


async def test_of_many_that_add_the_same_at_once_one_does(harness: QueueHarness) -> None:
    runs = [await start(harness, f"r{n}") for n in range(4)]
    others = [await harness.open() for _ in runs]
    tasks = pages(40)
    answers = await asyncio.gather(
        *(queue.add(run, tasks[n:] + tasks[:n]) for n, (run, queue) in enumerate(zip(runs, others, strict=True)))
    )
    assert sorted(answer for several in answers for answer in several) == ["added"] * 40 + ["seen"] * 120
    assert sum([(await harness.stats(run)).seen for run in runs]) == 40


async def test_of_many_that_add_the_same_to_one_run_at_once_none_is_seen(harness: QueueHarness) -> None:
    run = await start(harness, "one")
    others = [await harness.open() for _ in range(4)]
    tasks = pages(40)
    answers = await asyncio.gather(*(queue.add(run, tasks[n:] + tasks[:n]) for n, queue in enumerate(others)))
    assert sorted(answer for several in answers for answer in several) == ["added"] * 40 + ["known"] * 120


async def test_a_moved_run_brings_its_tasks_into_the_set(harness: QueueHarness) -> None:
    one = await start(harness, "one", seen_set="here")
    await harness.add(one, "a b")
    await harness.settle(await harness.one())
    await harness.queue.set_run(one, "pause")
    exported = await harness.queue.export_run(one)
    moved = await start(harness, "moved", seen_set="there")
    await harness.queue.set_run(moved, "pause")
    for _ in range(2):
        await harness.queue.import_run(moved, exported)
    assert [(it.name, it.entries) for it in await harness.queue.seen_sets()] == [("here", 2), ("there", 2)]
    assert await harness.add(moved, "a b") == ["known", "known"]
    assert await harness.add(await start(harness, "other", seen_set="there"), "a b c") == ["seen", "seen", "added"]


async def test_a_large_set_grows_and_is_swept(harness: QueueHarness) -> None:
    one = await start(harness, "one", seen_for=HOUR)
    for n in range(5):
        await harness.add(one, pages(1000, f"x{n}-"))
    other = await start(harness, "other")
    assert set(await harness.add(other, pages(1000, "x3-"))) == {"seen"}
    await harness.advance(3 * HOUR)
    for _ in range(10):
        await harness.queue.reap()
    assert (await only_set(harness)).entries == 0
    assert set(await harness.add(other, pages(1000, "x3-"))) == {"added"}
