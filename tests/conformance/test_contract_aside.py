"""Built-in kinds, such as sitemaps, are no pages: a page limit does not count them once they have ended."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, failed, page, pages
from shoal.queue.base import LOST_LIMIT, TaskFilter

SITEMAP = "page:sitemap"


async def with_sitemap(harness: QueueHarness, limit: int = 1, **more: object) -> int:
    run = await harness.run(max_pages=limit, **more)  # type: ignore[arg-type]
    await harness.add(run, [page("sitemap", kind=SITEMAP)])
    return run


async def counted(harness: QueueHarness, run: int) -> tuple[int, int, int]:
    stats = await harness.stats(run)
    assert await harness.queue.recount(run) == stats
    assert stats.is_balanced
    return stats.done, stats.dead, stats.aside


async def test_a_run_of_one_page_that_begins_with_a_sitemap_fetches_one_page(harness: QueueHarness) -> None:
    run = await with_sitemap(harness)
    [sitemap] = (await harness.claim()).tasks
    assert not (await harness.claim()).tasks
    await harness.settle(sitemap, found=tuple(pages(3)))
    assert await counted(harness, run) == (1, 0, 1)
    assert (await harness.stats(run)).claimable == 1
    [first] = (await harness.claim()).tasks
    assert first.url == "p0" and not (await harness.claim()).tasks
    await harness.settle(first)
    [about] = await harness.queue.runs()
    stats = await harness.stats(run)
    assert (about.state, stats.done, stats.cancelled, stats.ended_pages) == ("finished", 2, 2, 1)


async def test_while_it_is_leased_it_holds_the_place_of_a_page(harness: QueueHarness) -> None:
    run = await with_sitemap(harness)
    await harness.add(run, pages(2))
    assert len((await harness.claim()).tasks) == 1


async def test_a_failed_one_takes_up_no_page_either(harness: QueueHarness) -> None:
    run = await with_sitemap(harness)
    [sitemap] = (await harness.claim()).tasks
    await harness.settle(sitemap, "dead", **failed("http.404"))
    await harness.add(run, pages(2))
    assert await counted(harness, run) == (0, 1, 1)
    assert len((await harness.claim()).tasks) == 1


async def test_one_whose_workers_died_takes_up_no_page_either(harness: QueueHarness) -> None:
    run = await with_sitemap(harness)
    for number in range(LOST_LIMIT):
        [sitemap] = (await harness.claim(worker=f"w{number}")).tasks
        await harness.queue.reap({f"w{number}": [sitemap.id]})
    await harness.add(run, pages(2))
    assert await counted(harness, run) == (0, 1, 1)
    assert len((await harness.claim()).tasks) == 1


@pytest.mark.parametrize("act", ["revive", "drop"])
async def test_what_is_revived_or_dropped_is_set_aside_no_more(harness: QueueHarness, act: str) -> None:
    run = await with_sitemap(harness)
    [sitemap] = (await harness.claim()).tasks
    await harness.settle(sitemap, "dead", **failed("http.404"))
    if act == "drop":
        assert await harness.queue.drop(run, TaskFilter(), state="dead") == 1
        assert await counted(harness, run) == (0, 0, 0)
        return
    assert await harness.queue.revive(run) == 1
    assert await counted(harness, run) == (0, 0, 0)
    await harness.settle_all(await harness.claim(), found=tuple(pages(3)))
    assert await counted(harness, run) == (1, 0, 1)
    assert len((await harness.claim()).tasks) == 1


async def test_one_that_was_discarded_counts_like_a_page(harness: QueueHarness) -> None:
    run = await with_sitemap(harness, 2, dead_retention=60.0)
    [sitemap] = (await harness.claim()).tasks
    await harness.settle(sitemap, "dead", **failed("http.404"))
    await harness.advance(61.0)
    await harness.queue.reap()
    stats = await harness.stats(run)
    assert (stats.discarded, stats.aside, stats.ended_pages) == (1, 0, 1)
    assert await harness.queue.recount(run) == stats


async def test_a_late_answer_of_a_cancelled_run_is_set_aside(harness: QueueHarness) -> None:
    run = await with_sitemap(harness)
    [sitemap] = (await harness.claim()).tasks
    await harness.queue.set_run(run, "cancel")
    await harness.settle(sitemap)
    assert await counted(harness, run) == (1, 0, 1)
