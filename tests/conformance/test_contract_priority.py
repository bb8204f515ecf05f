"""Priority: higher is sooner, and nothing starves."""

from __future__ import annotations

import pytest

from conformance.world import World, page, pages, urls
from shoal.core.task import band
from shoal.queue.base import LOST_LIMIT

EVERY = 16


async def order(world: World, count: int, limit: int = 1) -> list[str]:
    """The order in which tasks are handed out."""
    got: list[str] = []
    while len(got) < count:
        claim = await world.claim(min(limit, count - len(got)))
        assert claim.tasks
        got += urls(claim)
    return got


async def test_equal_tasks_come_in_the_order_they_were_added(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(12))
    assert await order(world, 12) == [task.url for task in pages(12)]


async def test_higher_bands_come_first(world: World) -> None:
    run = await world.run()
    priorities = [-50, -3, 0, 1, 2, 5, 50, 500]
    assert [band(priority) for priority in priorities] == [7, 6, 5, 4, 3, 2, 1, 0]
    await world.add(run, [page(f"{priority}", priority=priority) for priority in priorities])
    assert await order(world, 8) == [f"{priority}" for priority in reversed(priorities)]


async def test_age_decides_within_a_band(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("older", priority=20), page("younger", priority=90)])
    assert band(20) == band(90)
    assert await order(world, 2) == ["older", "younger"]


@pytest.mark.parametrize("priority", [2**31, -(2**31), 10**9])
async def test_any_integer_is_a_priority(world: World, priority: int) -> None:
    run = await world.run()
    await world.add(run, [page("normal"), page("extreme", priority=priority)])
    first = (await order(world, 1))[0]
    assert first == ("extreme" if priority > 0 else "normal")


@pytest.mark.parametrize("limit", [1, 5, 16])
async def test_every_sixteenth_pick_takes_the_oldest(world: World, limit: int) -> None:
    run = await world.run()
    await world.add(run, pages(10, "old", priority=-50))
    await world.add(run, pages(100, "new", priority=50))
    got = await order(world, 5 * EVERY, limit)
    old = [url for url in got if url.startswith("old")]
    assert 4 <= len(old) <= 5, "one of sixteen, no more and no less"
    assert old == [f"old{number}" for number in range(len(old))]


async def test_the_oldest_is_taken_within_sixteen_picks(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("old", priority=-50)])
    await world.add(run, pages(40, "new", priority=50))
    got = await order(world, EVERY)
    assert got[0] != "old"
    assert "old" in got


async def test_nothing_starves_while_better_work_keeps_coming(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("patient", priority=-100)])
    for number in range(3 * EVERY):
        await world.add(run, pages(2, f"urgent{number}-", priority=100))
        leased = await world.one()
        if leased.url == "patient":
            return
        await world.settle(leased)
    pytest.fail("a low priority was never served")


async def test_a_found_task_is_placed_by_its_priority(world: World) -> None:
    run = await world.run()
    await world.add(run, pages(3))
    await world.settle(await world.one(), found=(page("urgent", priority=100), page("idle", priority=-100)))
    assert await order(world, 4) == ["urgent", "p1", "p2", "idle"]


async def test_a_released_task_keeps_its_band(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("urgent", priority=100)])
    leased = await world.one()
    await world.add(run, pages(2))
    await world.settle(leased, "released")
    assert (await world.one()).url == "urgent"


async def test_a_retried_task_keeps_its_band(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("urgent", priority=100)])
    await world.settle(await world.one(), "retry", after=5.0, cause="x")
    await world.add(run, pages(2))
    await world.advance(6)
    assert (await world.one()).url == "urgent"


async def test_a_task_that_lost_a_worker_comes_before_all_others(world: World) -> None:
    assert LOST_LIMIT > 1
    run = await world.run()
    await world.add(run, [page("unlucky", priority=-100)])
    await world.lose("w1", [(await world.one()).id])
    await world.add(run, pages(3, priority=100))
    assert urls(await world.claim()) == ["unlucky"]
