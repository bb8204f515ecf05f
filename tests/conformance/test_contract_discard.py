"""Retention of dead letters: they are removed after a time of their own, and the account goes on telling of them."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.harness import LANE, QueueHarness, failed, page, pages, urls
from shoal.core.dead_retention import MIN_DEAD_RETENTION
from shoal.core.stats import Stats
from shoal.core.task import DISCARDED, digest
from shoal.queue.base import TaskFilter

DAY = 86_400.0


async def failed_run(harness: QueueHarness, count: int = 2, retention: float = DAY, **more: Any) -> int:
    """A run with so many dead letters of now."""
    run = await harness.run(dead_retention=retention, **more)
    await harness.add(run, pages(count))
    await harness.settle_all(await harness.claim(count), "dead", **failed("http.500"), evidence={"status": 500})
    return run


async def test_a_dead_letter_is_removed_when_its_retention_is_over(harness: QueueHarness) -> None:
    run = await failed_run(harness)
    await harness.advance(DAY / 2)
    await harness.add(run, "late")
    await harness.settle(await harness.one(), "dead", **failed("http.404"))
    await harness.advance(DAY / 2 - 1)
    await harness.queue.reap()
    assert ((await harness.stats(run)).dead, (await harness.stats(run)).discarded) == (3, 0)
    await harness.advance(1)
    await harness.queue.reap()
    stats = await harness.stats(run)
    assert (stats.seen, stats.dead, stats.discarded, stats.failed) == (3, 1, 2, 3)
    assert [view.url for view in await harness.queue.list_tasks(run)] == ["late"]
    assert [group.cause for group in await harness.queue.dead_groups(run)] == ["http.404"]
    assert await harness.queue.recount(run) == await harness.queue.stats(run)
    assert await harness.queue.orphans(run) == []


async def test_without_a_retention_dead_letters_stay(harness: QueueHarness) -> None:
    run = await failed_run(harness, retention=0.0)
    await harness.advance(400 * DAY)
    await harness.queue.reap()
    assert ((await harness.stats(run)).dead, (await harness.stats(run)).discarded) == (2, 0)


async def test_a_run_says_how_long_its_dead_letters_are_kept_and_that_is_a_minute_at_least(
    harness: QueueHarness,
) -> None:
    run = await failed_run(harness, 1, retention=5.0)
    assert [it.dead_retention for it in await harness.queue.runs()] == [MIN_DEAD_RETENTION]
    await harness.advance(MIN_DEAD_RETENTION - 1)
    await harness.queue.reap()
    assert (await harness.stats(run)).dead == 1


async def test_what_was_removed_stays_known(harness: QueueHarness) -> None:
    run = await failed_run(harness)
    await harness.advance(DAY)
    await harness.queue.reap()
    assert await harness.add(run, "p0 p1 p2") == ["known", "known", "added"]
    view = await harness.queue.find(run, digest("p0"))
    assert view is not None
    assert (view.state, view.cause, view.url, view.evidence) == ("dead", DISCARDED, "", None)
    assert await harness.queue.list_tasks(run, where=TaskFilter(ids=(view.id,))) == []


async def test_revive_and_drop_bring_back_nothing_that_was_removed(harness: QueueHarness) -> None:
    run = await failed_run(harness)
    await harness.advance(DAY)
    await harness.queue.reap()
    assert await harness.queue.revive(run) == 0
    assert await harness.queue.drop(run, state="dead") == 0
    assert (await harness.stats(run)).discarded == 2
    assert urls(await harness.claim()) == []


async def test_a_revived_letter_that_dies_again_is_kept_for_its_time_from_then_on(harness: QueueHarness) -> None:
    run = await failed_run(harness, 1)
    await harness.advance(DAY - 1)
    assert await harness.queue.revive(run) == 1
    await harness.settle(await harness.one(), "dead", **failed("http.500"))
    await harness.advance(DAY - 1)
    await harness.queue.reap()
    assert (await harness.stats(run)).dead == 1
    await harness.advance(1)
    await harness.queue.reap()
    assert (await harness.stats(run)).discarded == 1


@pytest.mark.parametrize("action", ["finish", "cancel"])
async def test_dead_letters_of_an_ended_run_go_too(harness: QueueHarness, action: Any) -> None:
    run = await failed_run(harness)
    await harness.queue.set_run(run, action)
    await harness.advance(DAY)
    await harness.queue.reap()
    stats = await harness.stats(run)
    assert (stats.dead, stats.discarded) == (0, 2)
    assert await harness.queue.recount(run) == stats
    assert await harness.queue.purge(run=run) == 1
    assert await harness.queue.stats_of([run]) == [Stats()]


async def test_a_cancel_is_undone_without_what_was_removed_meanwhile(harness: QueueHarness) -> None:
    run = await failed_run(harness, retention=600.0)
    await harness.add(run, "waiting")
    await harness.queue.set_run(run, "cancel")
    await harness.advance(600)
    await harness.queue.reap()
    await harness.queue.set_run(run, "undo")
    stats = await harness.stats(run)
    assert (stats.ready, stats.dead, stats.discarded, stats.cancelled) == (1, 0, 2, 0)
    assert urls(await harness.claim()) == ["waiting"]


async def test_what_was_removed_counts_towards_max_pages(harness: QueueHarness) -> None:
    run = await failed_run(harness, retention=600.0, max_pages=3)
    await harness.add(run, "a b")
    await harness.advance(600)
    await harness.queue.reap()
    assert (await harness.stats(run)).claimable == 1
    assert urls(await harness.claim()) == ["a"]
    assert (await harness.queue.push(run, [page("c")], "w2")).answers == ("added",)


async def test_a_page_limit_is_reached_with_what_was_removed(harness: QueueHarness) -> None:
    run = await failed_run(harness, 2, retention=600.0, max_pages=3)
    await harness.add(run, "a b")
    await harness.advance(600)
    await harness.queue.reap()
    await harness.settle(await harness.one())
    await harness.queue.reap()
    [about] = await harness.queue.runs()
    assert about.state == "finished"
    stats = await harness.stats(run)
    assert (stats.done, stats.discarded, stats.cancelled) == (1, 2, 1)


async def test_a_late_answer_to_what_was_removed_keeps_nothing(harness: QueueHarness) -> None:
    run = await harness.run(dead_retention=60.0)
    await harness.add(run, "a")
    task = await harness.one()
    await harness.settle(task, "dead", **failed("http.500"))
    await harness.advance(60)
    await harness.queue.reap()
    assert await harness.settle(task, records=(b"{}",)) in ("already", "stale")
    assert (await harness.stats(run)).records == 0


async def test_a_run_is_moved_with_what_was_removed(harness: QueueHarness) -> None:
    run = await failed_run(harness, 3)
    await harness.advance(DAY)
    await harness.queue.reap()
    await harness.add(run, "open")
    await harness.queue.set_run(run, "pause")
    exported = await harness.queue.export_run(run)
    assert sorted(it.state for it in exported) == ["discarded", "discarded", "discarded", "ready"]
    other = await harness.run("elsewhere")
    await harness.queue.set_run(other, "pause")
    for _ in range(2):  # repeating it is harmless
        await harness.queue.import_run(other, exported, counts=await harness.queue.stats(run))
    stats = await harness.stats(other)
    assert (stats.seen, stats.ready, stats.dead, stats.discarded, stats.cancelled) == (4, 1, 0, 3, 0)
    assert await harness.queue.recount(other) == stats
    assert await harness.queue.orphans(other) == []
    assert await harness.add(other, [page("p1"), page("open")]) == ["known", "known"]


async def test_many_go_in_steps(harness: QueueHarness) -> None:
    run = await failed_run(harness, 1_000)
    await harness.add(run, pages(300, "q"))
    await harness.settle_all(await harness.claim(1_000), "dead", **failed("http.500"))
    await harness.advance(DAY)
    for _ in range(2):
        await harness.queue.reap()
    assert (await harness.stats(run)).discarded == 1_300
    assert (await harness.lane(LANE)).in_flight == 0
