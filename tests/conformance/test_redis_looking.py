"""Looking and dropping on Redis: what its keys promise beyond the contract."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conformance.world import World, failed, open_redis, outcome, page, pages, urls
from shoal.core.run import TASK_BITS
from shoal.core.task import LaneChange
from shoal.queue.base import Where
from shoal.queue.redis import RedisQueue, server
from shoal.queue.redis.engine import Engine

_MASK = (1 << TASK_BITS) - 1


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(open_redis, tmp_path)
    world.queue = await world.open()
    yield world
    await world.close()


def engine(world: World) -> Engine:
    assert isinstance(world.queue, RedisQueue)
    return world.queue._engine


async def lists(world: World, run: int) -> list[int]:
    """How long the lists of what waits are."""
    pattern = f"{engine(world).prefix}ready:{run}:*"
    keys = await engine(world).plain("KEYS", pattern)
    return [await engine(world).plain("LLEN", key) for key in keys]


async def test_lanes_of_an_older_layout_are_found(world: World) -> None:
    run = await world.run()
    await world.add(run, [page(name, f"{name}.test") for name in "cab"])
    await world.queue.set_lane(LaneChange("a.test", park_for=60.0))
    await world.queue.set_lane(LaneChange("b.test", rule=1.0))
    for key in ("lanenames", "holds", "ruled"):
        await engine(world).read("DEL", key)
    assert [lane.name for lane in await world.queue.lanes(order="name")] == ["a.test", "b.test", "c.test"]
    assert [lane.name for lane in await world.queue.lanes(only="parked")] == ["a.test"]
    assert [lane.name for lane in await world.queue.lanes(only="ruled")] == ["b.test"]


async def test_dead_letters_of_an_older_layout_find_their_groups(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(250))
    await world.settle_all(await world.claim(250), "dead", **failed("http.500"))
    for key in await engine(world).plain("KEYS", f"{engine(world).prefix}group*"):
        await engine(world).plain("DEL", key)
    assert len(await world.queue.look(run, state="dead", where=Where(cause="http.*"), limit=500)) == 250
    assert [group.count for group in await world.queue.dead_groups(run)] == [250]
    assert await world.queue.drop(run, Where(cause="http.500"), state="dead") == 250
    assert await world.queue.dead_groups(run) == []


async def test_cancelled_tasks_of_an_older_layout_are_found(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b c")
    claim = await world.claim()
    for leased, result in zip(claim.tasks, ("done", "cancelled", "done"), strict=True):
        await world.settle(leased, result)
    await engine(world).read("HDEL", f"run:{run}", "tagged")
    number = claim.tasks[1].id & _MASK
    await engine(world).read("SETRANGE", f"place:{run}:0", number * 5, b"\x03")
    assert [view.url for view in await world.queue.look(run, state="cancelled")] == ["b"]
    assert [view.url for view in await world.queue.look(run, state="done")] == ["a", "c"]


async def test_a_store_of_an_older_layout_is_marked_as_of_this_one(world: World) -> None:
    await engine(world).read("HSET", "meta", "version", 1)
    await world.reopen()
    assert int(await engine(world).read("HGET", "meta", "version")) == server.LAYOUT


async def test_what_is_dropped_from_the_middle_of_a_list_leaves_it(world: World) -> None:
    run = await world.run()
    await world.add(run, [page(f"{'xy'[n % 3 == 0]}{n}") for n in range(900)])
    assert await world.queue.drop(run, Where(url="x*")) == 600
    assert await lists(world, run) == [300]
    assert urls(await world.claim(300)) == [f"y{n}" for n in range(0, 900, 3)]
    assert await world.stats(run) == await world.queue.recount(run)


async def test_what_came_back_and_is_dropped_holds_up_no_claim(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(1200, "back"))
    await world.settle_all(await world.claim(1200), "released")
    await world.add(run, "new")
    assert await world.queue.drop(run, Where(url="back*")) == 1200
    assert urls(await world.claim(1)) == ["new"]


async def test_a_list_of_which_all_was_dropped_is_gone(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(500))
    assert await world.queue.drop(run, limit=499) == 499
    assert await lists(world, run) == [1]
    assert await world.queue.drop(run) == 1
    assert await lists(world, run) == []


async def test_a_drop_that_was_cut_short_holds_up_one_claim_at_most(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(1200))
    numbers = [view.id & _MASK for view in await world.queue.look(run, limit=1100)]
    for at in range(0, 1100, 200):
        await engine(world).once("drop", run, "ready", *numbers[at : at + 200])
    assert await lists(world, run) == [1200]
    got = [task.url for _ in range(2) for task in (await world.claim(100)).tasks]
    assert got == [f"p{n}" for n in range(1100, 1200)]


async def test_a_task_that_moves_while_it_is_looked_for_is_still_listed(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(600))
    ids = [view.id for view in await world.queue.look(run, limit=600)]

    async def work() -> None:
        for _ in range(60):
            claim = await world.claim(10)
            await world.settle_all(claim, "released")

    async def watch() -> None:
        for _ in range(12):
            assert [view.id for view in await world.queue.look(run, limit=600)] == ids

    await asyncio.gather(work(), watch())


@pytest.mark.parametrize("lanes", [1, 3, 400])
async def test_a_filter_finds_what_waits_however_unevenly_it_lies(world: World, lanes: int) -> None:
    chance, run = random.Random(lanes), await world.run()
    tasks = [
        page(
            f"{'xyz'[n % 3]}{n}",
            f"{int(chance.random() ** 2 * lanes)}.test",
            priority=chance.choice([0, 0, 9]),
        )
        for n in range(1500)
    ]
    await world.add(run, tasks)
    claim = await world.claim(200)
    await world.queue.settle(
        [
            outcome(leased, chance.choice(["done", "released", "retry", "dead"]), cause="x")
            for leased in claim.tasks[:150]
        ]
    )
    await world.queue.drop(run, Where(url="z*7"))
    every = await world.queue.look(run, limit=2000)
    assert [view.url for view in every] == [task.url for task in tasks]
    for state in (None, "ready", "dead", "done", "cancelled", "leased"):
        expected = [view.id for view in every if state in (None, view.state) and view.url.startswith("y")]
        found = await world.queue.look(run, state=state, where=Where(url="y*"), limit=2000)
        assert [view.id for view in found] == expected
        middle = await world.queue.look(run, state=state, where=Where(url="y*"), after=every[700].id, limit=9)
        assert [view.id for view in middle] == [id for id in expected if id > every[700].id][:9]


async def test_a_purged_run_takes_its_groups_along(world: World) -> None:
    run = await world.run()
    await world.add(run, [page(f"u{n}", f"{n}.test") for n in range(30)])
    await world.settle_all(await world.claim(), "dead", **failed("http.500"))
    await world.queue.set_run(run, "cancel")
    await world.queue.purge(run=run)
    assert await engine(world).plain("KEYS", f"{engine(world).prefix}group*") == []
