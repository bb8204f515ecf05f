"""Sharing: workers get what they serve, runs get what they weigh, and no more than they asked for."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.harness import QueueHarness, outcome, page, pages, urls
from conformance.model import ModelQueue
from shoal.core.lane import Pace


async def test_never_more_than_max_pages_are_handed_out(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=3)
    await harness.add(run, pages(10))
    claim = await harness.claim(10)
    assert len(claim.tasks) == 3
    assert not (await harness.claim()).tasks
    await harness.settle(claim.tasks[0], "retry")
    assert len((await harness.claim(10)).tasks) == 1, "a returned page may be handed out again"


async def test_when_max_pages_are_done_the_rest_is_cancelled(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=2)
    await harness.add(run, pages(5))
    claim = await harness.claim(10)
    await harness.queue.settle([outcome(leased, found=(page("new"),)) for leased in claim.tasks])
    stats = await harness.stats(run)
    assert (stats.done, stats.open, stats.cancelled) == (2, 0, 4)
    assert not (await harness.claim()).tasks


async def test_a_lost_page_does_not_count_against_max_pages(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=1)
    await harness.add(run, "a b")
    await harness.one("dead")
    await harness.lose("dead")
    assert len((await harness.claim()).tasks) == 1


@pytest.mark.parametrize("serves", [["books"], ["run-a"], ["other", "books"], None])
async def test_a_worker_gets_what_it_serves(harness: QueueHarness, serves: list[str] | None) -> None:
    run = await harness.run(scraper="books", name="run-a")
    await harness.add(run, "a")
    assert urls(await harness.claim(serves=serves)) == ["a"]


@pytest.mark.parametrize("serves", [["films"], ["run"], []])
async def test_a_worker_gets_nothing_it_does_not_serve(harness: QueueHarness, serves: list[str]) -> None:
    run = await harness.run(scraper="books", name="run-a")
    await harness.add(run, "a")
    assert not (await harness.claim(serves=serves)).tasks


async def test_an_unserved_run_does_not_hide_a_served_one_in_the_same_lane(harness: QueueHarness) -> None:
    books, films = await harness.run("b", scraper="books"), await harness.run("f", scraper="films")
    await harness.add(films, pages(100, "film"))
    await harness.add(books, "book")
    assert urls(await harness.claim(serves=["books"])) == ["book"]


async def shares(harness: QueueHarness, weights: list[int], picks: int, limit: int) -> Counter[int]:
    """How many tasks each of several runs gets from one lane."""
    runs = [await harness.run(f"k{number}", weight=weight) for number, weight in enumerate(weights)]
    for run in runs:
        await harness.add(run, pages(picks))
    got: Counter[int] = Counter()
    while got.total() < picks:
        claim = await harness.claim(min(limit, picks - got.total()))
        assert claim.tasks
        got.update(runs.index(task.run) for task in claim.tasks)
        await harness.settle_all(claim)
    return got


@pytest.mark.parametrize("limit", [1, 7, 20])
async def test_equal_runs_get_equal_shares_of_a_lane(harness: QueueHarness, limit: int) -> None:
    got = await shares(harness, [1, 1], 60, limit)
    assert abs(got[0] - got[1]) <= 6, got


@pytest.mark.parametrize("limit", [1, 20])
async def test_runs_share_a_lane_by_weight(harness: QueueHarness, limit: int) -> None:
    got = await shares(harness, [3, 1], 80, limit)
    assert 54 <= got[0] <= 66, got


async def test_runs_with_lanes_of_their_own_share_a_worker_by_weight(harness: QueueHarness) -> None:
    harness.need_one_order()
    heavy, light = await harness.run("heavy", weight=3), await harness.run("light", weight=1)
    await harness.add(heavy, pages(100, lane="heavy.test"))
    await harness.add(light, pages(100, lane="light.test"))
    got: Counter[int] = Counter()
    for _ in range(80):
        leased = await harness.one()
        got[leased.run] += 1
        await harness.settle(leased)
    assert 54 <= got[heavy] <= 66, got


async def test_a_run_that_comes_late_does_not_shut_out_the_first(harness: QueueHarness) -> None:
    first = await harness.run("first")
    await harness.add(first, pages(200))
    for _ in range(10):
        await harness.settle_all(await harness.claim(10))
    late = await harness.run("late")
    await harness.add(late, pages(200))
    got: Counter[int] = Counter()
    for _ in range(20):
        leased = await harness.one()
        got[leased.run] += 1
        await harness.settle(leased)
    assert got[first] >= 5, got
    assert got[late] >= 5, got


async def test_dead_pages_count_against_max_pages(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=2)
    await harness.add(run, pages(9))
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, "dead", cause="http.404")
    stats = await harness.stats(run)
    assert (stats.dead, stats.open, stats.cancelled) == (2, 0, 7)


async def test_revived_pages_of_a_run_that_reached_max_pages_are_handed_out(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=2)
    await harness.add(run, pages(3000))
    first, second = (await harness.claim()).tasks
    await harness.settle(first, "dead", cause="http.500")
    await harness.settle(second)
    assert await harness.queue.revive(run) == 1
    for _ in range(3):
        await harness.queue.reap()
    again = await harness.one()
    assert again.id == first.id
    assert await harness.settle(again) == "ok"
    stats = await harness.stats(run)
    assert (stats.done, stats.dead, stats.open) == (2, 0, 0)
    assert stats == await harness.queue.recount(run)


async def test_lost_tasks_that_cannot_go_out_do_not_hide_others(harness: QueueHarness) -> None:
    stuck, run = await harness.run("stuck"), await harness.run("free")
    await harness.add(stuck, pages(60, "s"))
    await harness.add(run, pages(3, "f"))
    held = (await harness.claim(worker="dead")).tasks
    await harness.lose("dead", [leased.id for leased in held])
    await harness.queue.set_run(stuck, "pause")
    for _ in range(3):
        assert (await harness.one()).run == run


async def test_purging_a_run_leaves_leases_of_others_alone(harness: QueueHarness) -> None:
    gone, kept = await harness.run("gone"), await harness.run("kept")
    await harness.add(gone, [page("g", "g.test")])
    await harness.add(kept, [page("k", "k.test")])
    claim = await harness.claim()
    assert {leased.run for leased in claim.tasks} == {gone, kept}
    await harness.queue.set_run(gone, "cancel")
    await harness.queue.purge(run=gone)
    await harness.lose("w1")
    assert (await harness.one("w2")).run == kept


@pytest.mark.parametrize("in_flight", [0, 2])
async def test_runs_of_different_workers_share_the_slots_of_a_host(harness: QueueHarness, in_flight: int) -> None:
    if isinstance(harness.queue, ModelQueue):
        pytest.skip("the model gives a slot to whoever asks first, which is allowed but not fair")
    first, second = await harness.run("one", name="one"), await harness.run("two", name="two")
    pace = Pace(0.5, in_flight)
    await harness.add(first, pages(200, "a"), pace)
    await harness.add(second, pages(200, "b"), pace)
    got: Counter[int] = Counter()
    for _ in range(400):
        for name in ("one", "two"):  # one of them always asks first
            claim = await harness.claim(50, name, serves=[name])
            got.update(leased.run for leased in claim.tasks)
            await harness.settle_all(claim)
        await harness.advance(0.05)
    assert min(got[first], got[second]) > 0.4 * sum(got.values()), got
    assert sum(got.values()) >= 30, "the host stood idle"


async def test_a_rival_that_nobody_works_for_costs_nothing_but_a_moment(harness: QueueHarness) -> None:
    first, second = await harness.run("one", name="one"), await harness.run("two", name="two")
    pace = Pace(0.5, 2)
    await harness.add(first, pages(200, "a"), pace)
    await harness.add(second, pages(200, "b"), pace)
    await harness.claim(1, "two", serves=["two"])
    await harness.lose("two")
    await harness.advance(60)
    done = 0
    for _ in range(200):
        claim = await harness.claim(50, "one", serves=["one"])
        done += len(claim.tasks)
        await harness.settle_all(claim)
        await harness.advance(0.05)
    assert done >= 19  # ten seconds at two a second
