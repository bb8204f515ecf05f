"""Listing and dropping on Redis: what its keys promise beyond the contract."""

from __future__ import annotations

import asyncio
import random

import pytest

from conformance.harness import Opener, QueueHarness, failed, open_redis, outcome, page, pages, urls
from shoal.core.run import TASK_BITS
from shoal.core.task import LaneChange
from shoal.queue.base import TaskFilter
from shoal.queue.redis import RedisQueue, server
from shoal.queue.redis.engine import Engine

_MASK = (1 << TASK_BITS) - 1


@pytest.fixture
def queue_factory() -> Opener:
    return open_redis


def engine(harness: QueueHarness) -> Engine:
    assert isinstance(harness.queue, RedisQueue)
    return harness.queue._engine


async def lists(harness: QueueHarness, run: int) -> list[int]:
    """How long the lists of what waits are."""
    pattern = f"{engine(harness).prefix}ready:{run}:*"
    keys = await engine(harness).plain("KEYS", pattern)
    return [await engine(harness).plain("LLEN", key) for key in keys]


async def test_lanes_of_an_older_layout_are_found(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(name, f"{name}.test") for name in "cab"])
    await harness.queue.set_lane(LaneChange("a.test", park_for=60.0))
    await harness.queue.set_lane(LaneChange("b.test", spacing_override=1.0))
    for key in ("lane_names", "holds", "overridden"):
        await engine(harness).read("DEL", key)
    assert [lane.name for lane in await harness.queue.lanes(order="name")] == ["a.test", "b.test", "c.test"]
    assert [lane.name for lane in await harness.queue.lanes(only="parked")] == ["a.test"]
    assert [lane.name for lane in await harness.queue.lanes(only="overridden")] == ["b.test"]


async def test_dead_letters_of_an_older_layout_find_their_groups(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(250))
    await harness.settle_all(await harness.claim(250), "dead", **failed("http.500"))
    for key in await engine(harness).plain("KEYS", f"{engine(harness).prefix}group*"):
        await engine(harness).plain("DEL", key)
    assert len(await harness.queue.list_tasks(run, state="dead", where=TaskFilter(cause="http.*"), limit=500)) == 250
    assert [group.count for group in await harness.queue.dead_groups(run)] == [250]
    assert await harness.queue.drop(run, TaskFilter(cause="http.500"), state="dead") == 250
    assert await harness.queue.dead_groups(run) == []


async def test_cancelled_tasks_of_an_older_layout_are_found(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b c")
    claim = await harness.claim()
    for leased, result in zip(claim.tasks, ("done", "cancelled", "done"), strict=True):
        await harness.settle(leased, result)
    await engine(harness).read("HDEL", f"run:{run}", "tagged")
    number = claim.tasks[1].id & _MASK
    await engine(harness).read("SETRANGE", f"location:{run}:0", number * 5, b"\x03")
    assert [view.url for view in await harness.queue.list_tasks(run, state="cancelled")] == ["b"]
    assert [view.url for view in await harness.queue.list_tasks(run, state="done")] == ["a", "c"]


async def test_a_store_of_an_older_layout_is_marked_as_of_this_one(harness: QueueHarness) -> None:
    await engine(harness).read("HSET", "meta", "version", 1)
    await harness.reopen()
    assert int(await engine(harness).read("HGET", "meta", "version")) == server.LAYOUT


async def test_what_is_dropped_from_the_middle_of_a_list_leaves_it(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"{'xy'[n % 3 == 0]}{n}") for n in range(900)])
    assert await harness.queue.drop(run, TaskFilter(url="x*")) == 600
    assert await lists(harness, run) == [300]
    assert urls(await harness.claim(300)) == [f"y{n}" for n in range(0, 900, 3)]
    assert await harness.stats(run) == await harness.queue.recount(run)


async def test_what_came_back_and_is_dropped_holds_up_no_claim(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(1200, "back"))
    await harness.settle_all(await harness.claim(1200), "released")
    await harness.add(run, "new")
    assert await harness.queue.drop(run, TaskFilter(url="back*")) == 1200
    assert urls(await harness.claim(1)) == ["new"]


async def test_a_list_of_which_all_was_dropped_is_gone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(500))
    assert await harness.queue.drop(run, limit=499) == 499
    assert await lists(harness, run) == [1]
    assert await harness.queue.drop(run) == 1
    assert await lists(harness, run) == []


async def test_a_drop_that_was_cut_short_holds_up_one_claim_at_most(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(1200))
    numbers = [view.id & _MASK for view in await harness.queue.list_tasks(run, limit=1100)]
    for at in range(0, 1100, 200):
        await engine(harness).run_cached("drop", run, "ready", *numbers[at : at + 200])
    assert await lists(harness, run) == [1200]
    got = [task.url for _ in range(2) for task in (await harness.claim(100)).tasks]
    assert got == [f"p{n}" for n in range(1100, 1200)]


async def test_a_task_that_moves_while_it_is_looked_for_is_still_listed(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(600))
    ids = [view.id for view in await harness.queue.list_tasks(run, limit=600)]

    async def work() -> None:
        for _ in range(60):
            claim = await harness.claim(10)
            await harness.settle_all(claim, "released")

    async def watch() -> None:
        for _ in range(12):
            assert [view.id for view in await harness.queue.list_tasks(run, limit=600)] == ids

    await asyncio.gather(work(), watch())


@pytest.mark.parametrize("lanes", [1, 3, 400])
async def test_a_filter_finds_what_waits_however_unevenly_it_lies(harness: QueueHarness, lanes: int) -> None:
    chance, run = random.Random(lanes), await harness.run()
    tasks = [
        page(f"{'xyz'[n % 3]}{n}", f"{int(chance.random() ** 2 * lanes)}.test", priority=chance.choice([0, 0, 9]))
        for n in range(1500)
    ]
    await harness.add(run, tasks)
    claim = await harness.claim(200)
    await harness.queue.settle(
        [
            outcome(leased, chance.choice(["done", "released", "retry", "dead"]), cause="x")
            for leased in claim.tasks[:150]
        ]
    )
    await harness.queue.drop(run, TaskFilter(url="z*7"))
    every = await harness.queue.list_tasks(run, limit=2000)
    assert [view.url for view in every] == [task.url for task in tasks]
    for state in (None, "ready", "dead", "done", "cancelled", "leased"):
        expected = [view.id for view in every if state in (None, view.state) and view.url.startswith("y")]
        found = await harness.queue.list_tasks(run, state=state, where=TaskFilter(url="y*"), limit=2000)
        assert [view.id for view in found] == expected
        middle = await harness.queue.list_tasks(
            run, state=state, where=TaskFilter(url="y*"), after=every[700].id, limit=9
        )
        assert [view.id for view in middle] == [id for id in expected if id > every[700].id][:9]


async def test_a_purged_run_takes_its_groups_along(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"u{n}", f"{n}.test") for n in range(30)])
    await harness.settle_all(await harness.claim(), "dead", **failed("http.500"))
    await harness.queue.set_run(run, "cancel")
    await harness.queue.purge(run=run)
    assert await engine(harness).plain("KEYS", f"{engine(harness).prefix}group*") == []
