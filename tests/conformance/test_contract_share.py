"""Sharing: workers get what they serve, runs get what they weigh, and no more than they asked for."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.world import World, outcome, page, pages, urls


async def test_never_more_than_max_pages_are_handed_out(world: World) -> None:
    run = await world.run(max_pages=3)
    await world.add(run, pages(10))
    claim = await world.claim(10)
    assert len(claim.tasks) == 3
    assert not (await world.claim()).tasks
    await world.settle(claim.tasks[0], "retry")
    assert len((await world.claim(10)).tasks) == 1, "a returned page may be handed out again"


async def test_when_max_pages_are_done_the_rest_is_cancelled(world: World) -> None:
    run = await world.run(max_pages=2)
    await world.add(run, pages(5))
    claim = await world.claim(10)
    await world.queue.settle([outcome(leased, found=(page("new"),)) for leased in claim.tasks])
    stats = await world.stats(run)
    assert (stats.done, stats.open, stats.cancelled) == (2, 0, 4)
    assert not (await world.claim()).tasks


async def test_a_lost_page_does_not_count_against_max_pages(world: World) -> None:
    run = await world.run(max_pages=1)
    await world.add(run, "a b")
    await world.one("dead")
    await world.lose("dead")
    assert len((await world.claim()).tasks) == 1


@pytest.mark.parametrize("serves", [["books"], ["run-a"], ["other", "books"], None])
async def test_a_worker_gets_what_it_serves(world: World, serves: list[str] | None) -> None:
    run = await world.run(scraper="books", name="run-a")
    await world.add(run, "a")
    assert urls(await world.claim(serves=serves)) == ["a"]


@pytest.mark.parametrize("serves", [["films"], ["run"], []])
async def test_a_worker_gets_nothing_it_does_not_serve(world: World, serves: list[str]) -> None:
    run = await world.run(scraper="books", name="run-a")
    await world.add(run, "a")
    assert not (await world.claim(serves=serves)).tasks


async def test_an_unserved_run_does_not_hide_a_served_one_in_the_same_lane(world: World) -> None:
    books, films = await world.run("b", scraper="books"), await world.run("f", scraper="films")
    await world.add(films, pages(100, "film"))
    await world.add(books, "book")
    assert urls(await world.claim(serves=["books"])) == ["book"]


async def shares(world: World, weights: list[int], picks: int, limit: int) -> Counter[int]:
    """How many tasks each of several runs gets from one lane."""
    runs = [await world.run(f"k{number}", weight=weight) for number, weight in enumerate(weights)]
    for run in runs:
        await world.add(run, pages(picks))
    got: Counter[int] = Counter()
    while got.total() < picks:
        claim = await world.claim(min(limit, picks - got.total()))
        assert claim.tasks
        got.update(runs.index(task.run) for task in claim.tasks)
        await world.settle_all(claim)
    return got


@pytest.mark.parametrize("limit", [1, 7, 20])
async def test_equal_runs_get_equal_shares_of_a_lane(world: World, limit: int) -> None:
    got = await shares(world, [1, 1], 60, limit)
    assert abs(got[0] - got[1]) <= 6, got


@pytest.mark.parametrize("limit", [1, 20])
async def test_runs_share_a_lane_by_weight(world: World, limit: int) -> None:
    got = await shares(world, [3, 1], 80, limit)
    assert 54 <= got[0] <= 66, got


async def test_runs_with_lanes_of_their_own_share_a_worker_by_weight(world: World) -> None:
    heavy, light = await world.run("heavy", weight=3), await world.run("light", weight=1)
    await world.add(heavy, pages(100, lane="heavy.test"))
    await world.add(light, pages(100, lane="light.test"))
    got: Counter[int] = Counter()
    for _ in range(80):
        leased = await world.one()
        got[leased.run] += 1
        await world.settle(leased)
    assert 54 <= got[heavy] <= 66, got


async def test_a_run_that_comes_late_does_not_shut_out_the_first(world: World) -> None:
    first = await world.run("first")
    await world.add(first, pages(200))
    for _ in range(10):
        await world.settle_all(await world.claim(10))
    late = await world.run("late")
    await world.add(late, pages(200))
    got: Counter[int] = Counter()
    for _ in range(20):
        leased = await world.one()
        got[leased.run] += 1
        await world.settle(leased)
    assert got[first] >= 5, got
    assert got[late] >= 5, got
