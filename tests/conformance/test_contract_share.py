"""Sharing: workers get what they serve, runs get what they weigh, and no more than they asked for."""

from __future__ import annotations

from collections import Counter

import pytest

from conformance.model import ModelQueue
from conformance.world import World, outcome, page, pages, urls
from shoal.core.lane import Pace


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


async def test_dead_pages_count_against_max_pages(world: World) -> None:
    run = await world.run(max_pages=2)
    await world.add(run, pages(9))
    for leased in (await world.claim()).tasks:
        await world.settle(leased, "dead", cause="http.404")
    stats = await world.stats(run)
    assert (stats.dead, stats.open, stats.cancelled) == (2, 0, 7)


async def test_revived_pages_of_a_run_that_reached_max_pages_are_handed_out(world: World) -> None:
    run = await world.run(max_pages=2)
    await world.add(run, pages(3000))
    first, second = (await world.claim()).tasks
    await world.settle(first, "dead", cause="http.500")
    await world.settle(second)
    assert await world.queue.revive(run) == 1
    for _ in range(3):
        await world.queue.reap()
    again = await world.one()
    assert again.id == first.id
    assert await world.settle(again) == "ok"
    stats = await world.stats(run)
    assert (stats.done, stats.dead, stats.open) == (2, 0, 0)
    assert stats == await world.queue.recount(run)


async def test_lost_tasks_that_cannot_go_out_do_not_hide_others(world: World) -> None:
    stuck, run = await world.run("stuck"), await world.run("free")
    await world.add(stuck, pages(60, "s"))
    await world.add(run, pages(3, "f"))
    held = (await world.claim(worker="dead")).tasks
    await world.lose("dead", [leased.id for leased in held])
    await world.queue.set_run(stuck, "pause")
    for _ in range(3):
        assert (await world.one()).run == run


async def test_purging_a_run_leaves_leases_of_others_alone(world: World) -> None:
    gone, kept = await world.run("gone"), await world.run("kept")
    await world.add(gone, [page("g", "g.test")])
    await world.add(kept, [page("k", "k.test")])
    claim = await world.claim()
    assert {leased.run for leased in claim.tasks} == {gone, kept}
    await world.queue.set_run(gone, "cancel")
    await world.queue.purge(run=gone)
    await world.lose("w1")
    assert (await world.one("w2")).run == kept


@pytest.mark.parametrize("in_flight", [0, 2])
async def test_runs_of_different_workers_share_the_slots_of_a_host(world: World, in_flight: int) -> None:
    if isinstance(world.queue, ModelQueue):
        pytest.skip("the model gives a slot to whoever asks first, which is allowed but not fair")
    first, second = await world.run("one", name="one"), await world.run("two", name="two")
    pace = Pace(0.5, in_flight)
    await world.add(first, pages(200, "a"), pace)
    await world.add(second, pages(200, "b"), pace)
    got: Counter[int] = Counter()
    for _ in range(400):
        for name in ("one", "two"):  # one of them always asks first
            claim = await world.claim(50, name, serves=[name])
            got.update(leased.run for leased in claim.tasks)
            await world.settle_all(claim)
        await world.advance(0.05)
    assert min(got[first], got[second]) > 0.4 * sum(got.values()), got
    assert sum(got.values()) >= 30, "the host stood idle"


async def test_a_rival_that_nobody_works_for_costs_nothing_but_a_moment(world: World) -> None:
    first, second = await world.run("one", name="one"), await world.run("two", name="two")
    pace = Pace(0.5, 2)
    await world.add(first, pages(200, "a"), pace)
    await world.add(second, pages(200, "b"), pace)
    await world.claim(1, "two", serves=["two"])
    await world.lose("two")
    await world.advance(60)
    done = 0
    for _ in range(200):
        claim = await world.claim(50, "one", serves=["one"])
        done += len(claim.tasks)
        await world.settle_all(claim)
        await world.advance(0.05)
    assert done >= 19  # ten seconds at two a second
