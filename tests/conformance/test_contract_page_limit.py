"""Another page limit: a run that its limit ended goes on with what was left."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, failed, page, pages, urls
from shoal.core.lane import UNLIMITED_PACE
from shoal.errors import UsageError
from shoal.queue.base import LIMIT_SECONDS


async def limited(harness: QueueHarness, limit: int = 2, found: int = 5) -> int:
    """A run that its limit has ended, with the rest of so many tasks left."""
    run = await harness.run(max_pages=limit)
    await harness.add(run, pages(found))
    await harness.settle_all(await harness.claim(limit))
    [about] = await harness.queue.runs()
    assert about.state == "finished"
    return run


async def test_a_run_that_its_limit_ended_goes_on_with_what_was_left(harness: QueueHarness) -> None:
    run = await limited(harness)
    changed = await harness.queue.set_max_pages(run, 4)
    assert (changed.state, changed.max_pages, changed.finished_at) == ("running", 4, 0)
    stats = await harness.stats(run)
    assert (stats.done, stats.ready, stats.cancelled) == (2, 3, 0)
    assert await harness.queue.recount(run) == stats
    claim = await harness.claim()
    assert urls(claim) == ["p2", "p3"], "no more than the new limit"
    await harness.settle_all(claim)
    stats = await harness.stats(run)
    assert (stats.done, stats.cancelled, stats.open) == (4, 1, 0)
    [about] = await harness.queue.runs()
    assert (about.state, about.max_pages) == ("finished", 4)


async def test_without_a_limit_it_goes_on_to_the_end_and_takes_new_tasks(harness: QueueHarness) -> None:
    run = await limited(harness)
    assert (await harness.queue.set_max_pages(run, 0)).max_pages == 0
    assert await harness.add(run, [page("p1"), page("new")]) == ["known", "added"]
    await harness.settle_all(await harness.claim())
    assert (await harness.queue.set_run(run, "finish")).state == "finished"
    assert (await harness.stats(run)).done == 6


async def test_reviving_keeps_what_a_page_limit_left(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=3)
    await harness.add(run, [*pages(3), *(page(f"q{n}", f"h{n}.test") for n in range(4))], UNLIMITED_PACE)
    first, *others = (await harness.claim(3)).tasks
    await harness.settle(first, "dead", **failed("http.500"))
    for leased in others:
        await harness.settle(leased)
    assert (await harness.queue.runs())[0].state == "finished"
    assert await harness.queue.revive(run) == 1
    stats = await harness.stats(run)
    assert (stats.ready, stats.dead, stats.cancelled) == (5, 0, 0)
    assert await harness.queue.recount(run) == stats
    again = await harness.claim()
    assert urls(again) == [first.url], "it gave one page back, and that is its own"
    await harness.settle_all(again)
    [about] = await harness.queue.runs()
    assert (about.state, about.max_pages) == ("finished", 3)
    await harness.queue.set_max_pages(run, 0)
    await harness.settle_all(await harness.claim())
    stats = await harness.stats(run)
    assert (stats.done, stats.open, stats.cancelled) == (7, 0, 0)


async def test_revived_pages_come_first_under_a_limit(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=1)
    await harness.add(run, [page("a")], UNLIMITED_PACE)
    leased = await harness.one()
    await harness.add(run, [page("urgent", priority=20), page("b")])
    await harness.settle(leased, "dead", **failed("http.500"))
    for _ in range(2):
        assert await harness.queue.revive(run) == 1
        for result in ("retry", "released", "dead"):
            leased = await harness.one()
            assert leased.url == "a"
            await harness.settle(leased, result, **failed("http.500") if result != "released" else {})
    await harness.queue.revive(run)
    await harness.claim(worker="w2")
    await harness.lose("w2")
    assert (await harness.one()).url == "a"


async def test_what_was_left_and_is_kept_no_longer_does_not_come_back_with_the_revived(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=1)
    await harness.add(run, pages(12))
    await harness.settle(await harness.one(), "dead", **failed("http.500"))
    await harness.advance(LIMIT_SECONDS)
    assert await harness.queue.revive(run) == 1
    stats = await harness.stats(run)
    assert (stats.ready, stats.cancelled, stats.dead) == (1, 11, 0)
    assert stats == await harness.queue.recount(run)


async def test_repeating_it_is_harmless(harness: QueueHarness) -> None:
    run = await limited(harness)
    for _ in range(2):
        assert (await harness.queue.set_max_pages(run, 4)).state == "running"
    assert (await harness.stats(run)).ready == 3


async def test_a_run_that_was_paused_is_paused_again(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=1)
    await harness.add(run, pages(3))
    task = await harness.one()
    await harness.queue.set_run(run, "pause")
    await harness.settle(task)
    assert (await harness.queue.set_max_pages(run, 2)).state == "paused"


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_limit_that_is_reached_already_is_refused(harness: QueueHarness, limit: int) -> None:
    run = await limited(harness)
    with pytest.raises(UsageError, match=r"2 pages of run .* have ended already"):
        await harness.queue.set_max_pages(run, limit)
    assert (await harness.stats(run)).cancelled == 3


async def test_dead_letters_that_were_removed_count_as_ended(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=2, dead_retention=60.0)
    await harness.add(run, pages(4))
    await harness.settle_all(await harness.claim(2), "dead", **failed("http.500"))
    await harness.advance(60)
    await harness.queue.reap()
    with pytest.raises(UsageError, match="have ended already"):
        await harness.queue.set_max_pages(run, 2)
    assert (await harness.queue.set_max_pages(run, 3)).state == "running"
    assert urls(await harness.claim()) == ["p2"]


async def test_what_was_left_is_kept_for_a_day(harness: QueueHarness) -> None:
    run = await limited(harness)
    await harness.advance(LIMIT_SECONDS - 1)
    await harness.queue.reap()
    try:
        assert (await harness.queue.set_max_pages(run, 3)).state == "running"
    except UsageError as refused:
        pytest.fail(f"it is gone too early: {refused}")
    await harness.settle(await harness.one())
    await harness.advance(LIMIT_SECONDS)
    await harness.queue.reap()
    with pytest.raises(UsageError, match="kept for a day"):
        await harness.queue.set_max_pages(run, 5)
    stats = await harness.stats(run)
    assert (stats.done, stats.cancelled) == (3, 2)


@pytest.mark.parametrize(("end", "limit"), [("finish", 5), ("finish", 1), ("cancel", 5)])
async def test_a_run_that_ended_otherwise_stays_as_it_is(harness: QueueHarness, end: str, limit: int) -> None:
    run = await harness.run(max_pages=limit)
    await harness.add(run, "a")
    if end == "finish":
        await harness.settle(await harness.one())
    await harness.queue.set_run(run, end)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="not because of its page limit"):
        await harness.queue.set_max_pages(run, 10)
    with pytest.raises(UsageError):
        await harness.queue.set_max_pages(999_999, 10)


async def test_while_another_run_goes_on_in_its_place_it_is_refused(harness: QueueHarness) -> None:
    run = await limited(harness)
    other = await harness.run()
    with pytest.raises(UsageError, match="goes on in its place"):
        await harness.queue.set_max_pages(run, 5)
    await harness.queue.set_run(other, "cancel")
    assert (await harness.queue.set_max_pages(run, 5)).state == "running"


async def test_an_open_run_may_get_a_limit_or_another(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(6))
    await harness.settle_all(await harness.claim(2))
    assert (await harness.queue.set_max_pages(run, 4)).state == "running"
    claim = await harness.claim()
    assert len(claim.tasks) == 2
    assert (await harness.queue.set_max_pages(run, 3)).max_pages == 3, "lower than what is out already"
    await harness.settle(claim.tasks[0])
    [about] = await harness.queue.runs()
    assert about.state == "finished"
    assert await harness.settle(claim.tasks[1], records=(b"{}",)) == "ok", "it was out, and may bring its records"
    assert (await harness.stats(run)).done == 4


async def test_a_task_that_was_leased_at_the_end_is_still_its_workers(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=2)
    await harness.add(run, pages(4), UNLIMITED_PACE)
    claim = await harness.claim(2)
    await harness.queue.set_max_pages(run, 1)
    await harness.settle(claim.tasks[0])
    await harness.queue.set_max_pages(run, 4)
    assert (await harness.stats(run)).leased == 1
    assert (await harness.lane()).in_flight == 1
    assert await harness.settle(claim.tasks[1]) == "ok"
    assert (await harness.stats(run)).done == 2
