"""Drop: what waits or is dead is given up, and the account stays right."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.world import LANE, World, failed, page, pages, urls
from shoal.core.lane import Pace
from shoal.core.task import digest
from shoal.errors import Usage
from shoal.queue.base import TaskView, Where


async def shown(world: World, run: int, state: Any = "cancelled") -> list[str]:
    return [view.url for view in await world.queue.look(run, state=state)]


async def story(world: World, run: int, url: str) -> TaskView:
    view = await world.queue.find(run, digest(url))
    assert view is not None
    return view


async def kill(world: World, cause: str = "http.500") -> None:
    """All that can be claimed becomes dead letters."""
    await world.settle_all(await world.claim(), "dead", **failed(cause))


async def check(world: World, run: int) -> None:
    assert await world.stats(run) == await world.queue.recount(run)
    assert await world.queue.strays(run) == []


async def test_what_waits_is_given_up(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.add(run, "later", delay=60.0)
    assert await world.queue.drop(run) == 3
    stats = await world.stats(run)
    assert (stats.seen, stats.ready, stats.delayed, stats.cancelled, stats.claimable) == (3, 0, 0, 3, 0)
    assert (await world.claim()).tasks == ()
    await world.advance(61)
    assert (await world.claim()).tasks == ()
    assert (await world.lane()).ready == 0
    await check(world, run)


async def test_a_dropped_task_tells_when_and_that_it_was_dropped(world: World) -> None:
    run = await world.run()
    await world.add(run, [page("a", meta={"n": 1}, priority=4)])
    await world.settle(await world.one(), "retry", **failed("http.503"))
    await world.advance(5)
    assert await world.queue.drop(run) == 1
    (view,) = await world.queue.look(run, state="cancelled")
    assert view == await story(world, run, "a")
    assert (view.url, view.state, view.cause, view.lane) == ("a", "cancelled", "dropped", LANE)
    assert (view.finished_at, view.attempts, view.priority) == (await world.queue.now(), 1, 4)
    assert [attempt.cause for attempt in view.history] == ["http.503", "dropped"]
    assert view.history[-1].at == await world.queue.now()
    assert view.history[-1].message
    assert view.meta is None


async def test_a_dropped_task_is_known(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    held = await world.one()
    await world.queue.drop(run)
    assert await world.add(run, "b c") == ["known", "added"]
    await world.settle(held, found=(page("b"),))
    assert urls(await world.claim()) == ["c"]
    assert await world.state_of(run, "b") == "cancelled"
    await check(world, run)


async def test_what_is_leased_is_left_alone(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b c")
    held = await world.one()
    assert await world.queue.drop(run) == 2
    assert (await world.stats(run)).leased == (await world.lane()).in_flight == 1
    assert await world.settle(held, records=(b"{}",)) == "ok"
    stats = await world.stats(run)
    assert (stats.done, stats.cancelled, stats.records) == (1, 2, 1)
    await check(world, run)


async def test_dead_letters_are_given_up_and_nothing_else(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await kill(world)
    await world.add(run, "c")
    assert await world.queue.drop(run, state="dead") == 2
    stats = await world.stats(run)
    assert (stats.dead, stats.ready, stats.cancelled) == (0, 1, 2)
    assert await shown(world, run) == ["a", "b"]
    assert [attempt.cause for attempt in (await story(world, run, "a")).history] == ["http.500", "dropped"]
    assert await world.queue.dead_groups(run) == []
    assert await world.queue.revive(run) == 0
    assert urls(await world.claim()) == ["c"]
    await check(world, run)


async def test_by_default_dead_letters_stay(world: World) -> None:
    run = await world.run()
    await world.add(run, "a")
    await kill(world)
    assert await world.queue.drop(run) == 0
    assert (await world.stats(run)).dead == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Where(), ["a1", "a2", "b1", "b2"]),
        (Where(lane="b.test"), ["b1", "b2"]),
        (Where(lane="nowhere"), []),
        (Where(url="*1"), ["a1", "b1"]),
        (Where(url="a2", lane="a.test"), ["a2"]),
        (Where(url="a2", lane="b.test"), []),
        (Where(cause="http.*"), []),
    ],
)
async def test_a_filter_chooses_what_is_given_up(world: World, where: Where, expected: list[str]) -> None:
    run = await world.run()
    await world.add(run, [page(url, f"{url[0]}.test") for url in ("a1", "a2", "b1", "b2")])
    assert await world.queue.drop(run, where) == len(expected)
    assert await shown(world, run) == expected
    assert (await world.stats(run)).ready == 4 - len(expected)
    ready = {lane.name: lane.ready for lane in await world.queue.lanes()}
    assert ready == {
        name: 2 - sum(url.startswith(name[0]) for url in expected) for name in ("a.test", "b.test")
    }
    await check(world, run)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Where(cause="http.5*"), ["a"]),
        (Where(cause="timeout.total"), ["b"]),
        (Where(lane=LANE), ["a", "b"]),
        (Where(lane=LANE, cause="http.404"), []),
        (Where(url="b"), ["b"]),
    ],
)
async def test_a_filter_chooses_among_dead_letters(world: World, where: Where, expected: list[str]) -> None:
    run = await world.run()
    for url, cause in (("a", "http.500"), ("b", "timeout.total")):
        await world.add(run, url)
        await kill(world, cause)
    assert await world.queue.drop(run, where, state="dead") == len(expected)
    assert await shown(world, run) == expected
    await check(world, run)


async def test_chosen_tasks_are_given_up_and_no_others(world: World) -> None:
    run, other = await world.run("one"), await world.run("other")
    await world.add(run, "a b c")
    await world.add(other, "a b c")
    ids = [view.id for view in await world.queue.look(run)]
    strange = (await world.queue.look(other))[0].id
    assert await world.queue.drop(run, Where(ids=(ids[1], strange, 12345))) == 1
    assert await shown(world, run) == ["b"]
    assert (await world.stats(other)).ready == 3
    assert await world.queue.drop(run, Where(ids=(ids[1],))) == 0


@pytest.mark.parametrize("state", ["ready", "dead"])
async def test_no_more_than_the_limit_at_once_and_in_the_end_all(world: World, state: Any) -> None:
    run = await world.run()
    await world.add(run, pages(5, lane="x.test"))
    await world.add(run, pages(2, "late", delay=60.0))
    if state == "dead":
        await world.advance(61)
        await kill(world)
    counts = [await world.queue.drop(run, state=state, limit=3) for _ in range(4)]
    assert counts == [3, 3, 1, 0]
    stats = await world.stats(run)
    assert (stats.cancelled, stats.open, stats.dead, stats.delayed) == (7, 0, 0, 0)
    await check(world, run)


async def test_one_run_drops_nothing_of_another_in_the_same_lane(world: World) -> None:
    run, other = await world.run("one"), await world.run("other")
    for each in (run, other):
        await world.add(each, "a b")
    assert await world.queue.drop(run) == 2
    assert (await world.lane()).ready == 2
    assert {task.run for task in (await world.claim()).tasks} == {other}


async def test_a_run_of_which_all_was_dropped_can_finish(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    with pytest.raises(Usage):
        await world.queue.set_run(run, "finish")
    await world.queue.drop(run)
    assert (await world.queue.set_run(run, "finish")).state == "finished"
    await check(world, run)


async def test_a_paused_run_drops_and_stays_paused(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await world.queue.set_run(run, "pause")
    assert await world.queue.drop(run, Where(url="a")) == 1
    (about,) = await world.queue.runs()
    assert about.state == "paused"
    assert (await world.lane()).ready == 1


@pytest.mark.parametrize("action", ["cancel", "finish"])
async def test_of_an_ended_run_only_dead_letters_are_dropped(world: World, action: Any) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await kill(world)
    if action == "cancel":
        await world.add(run, "c d")
    await world.queue.set_run(run, action)
    assert await world.queue.drop(run) == 0
    before = (await world.stats(run)).cancelled
    assert await world.queue.drop(run, Where(url="a"), state="dead") == 1
    stats = await world.stats(run)
    assert (stats.dead, stats.cancelled) == (1, before + 1)
    assert (await world.queue.runs())[0].state == f"{action}ed".replace("celed", "celled")
    await check(world, run)


async def test_a_run_that_never_was_drops_nothing(world: World) -> None:
    with pytest.raises(Usage):
        await world.queue.drop(12345)


async def test_a_dropped_dead_letter_makes_room_for_another_page(world: World) -> None:
    run = await world.run(max_pages=2)
    await world.add(run, "a b c d")
    await world.settle(await world.one(), "dead", **failed("http.500"))
    assert await world.queue.drop(run, state="dead") == 1
    assert (await world.stats(run)).claimable == 2
    assert len((await world.claim()).tasks) == 2
    assert (await world.claim()).tasks == ()


async def test_a_task_that_lost_its_worker_can_be_dropped(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    held = await world.one()
    await world.lose(executing=[held.id])
    assert await world.queue.drop(run, Where(ids=(held.id,))) == 1
    assert urls(await world.claim()) == ["b"]
    assert await world.settle(held, records=(b"{}",)) == "stale"
    assert await world.queue.records(run) == []
    assert await world.state_of(run, "a") == "cancelled"
    await check(world, run)


async def test_a_dropped_task_does_not_expire(world: World) -> None:
    run = await world.run()
    await world.add(run, "a", ttl=10.0)
    await world.queue.drop(run)
    await world.advance(11)
    assert (await world.queue.reap()).expired == 0
    assert await world.state_of(run, "a") == "cancelled"
    await check(world, run)


async def test_a_dropped_task_frees_its_lane_for_others(world: World) -> None:
    run, other = await world.run("one"), await world.run("other")
    await world.add(run, "a", Pace(0.0, 1))
    await world.add(other, "b", Pace(0.0, 1))
    await world.queue.drop(run)
    claim = await world.claim()
    assert urls(claim) == ["b"]
    await world.settle_all(claim)
    assert (await world.claim()).next_in is None


async def test_what_was_dropped_outlives_a_restart_and_a_move(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    await kill(world)
    await world.add(run, "c")
    await world.queue.drop(run)
    await world.queue.drop(run, Where(url="a"), state="dead")
    queue = await world.reopen()
    assert await shown(world, run) == ["a", "c"]
    await check(world, run)
    await queue.set_run(run, "pause")
    carried = {it.task.url: (it.state, it.cause) for it in await queue.carry_out(run)}
    assert carried == {
        "a": ("cancelled", "dropped"),
        "b": ("dead", "http.500"),
        "c": ("cancelled", "dropped"),
    }


async def test_repeating_a_drop_is_harmless(world: World) -> None:
    run = await world.run()
    await world.add(run, "a b")
    assert [await world.queue.drop(run, Where(url="a")) for _ in range(3)] == [1, 0, 0]
    assert len((await story(world, run, "a")).history) == 1
