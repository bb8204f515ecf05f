"""Drop: what waits or is dead is given up, and the account stays right."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.harness import LANE, QueueHarness, failed, page, pages, urls
from shoal.core.lane import Pace
from shoal.core.task import digest
from shoal.errors import UsageError
from shoal.queue.base import TaskFilter, TaskView


async def shown(harness: QueueHarness, run: int, state: Any = "cancelled") -> list[str]:
    return [view.url for view in await harness.queue.list_tasks(run, state=state)]


async def task_history(harness: QueueHarness, run: int, url: str) -> TaskView:
    view = await harness.queue.find(run, digest(url))
    assert view is not None
    return view


async def kill(harness: QueueHarness, cause: str = "http.500") -> None:
    """All that can be claimed becomes dead letters."""
    await harness.settle_all(await harness.claim(), "dead", **failed(cause))


async def check(harness: QueueHarness, run: int) -> None:
    assert await harness.stats(run) == await harness.queue.recount(run)
    assert await harness.queue.orphans(run) == []


async def test_what_waits_is_given_up(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.add(run, "later", delay=60.0)
    assert await harness.queue.drop(run) == 3
    stats = await harness.stats(run)
    assert (stats.seen, stats.ready, stats.delayed, stats.cancelled, stats.claimable) == (3, 0, 0, 3, 0)
    assert (await harness.claim()).tasks == ()
    await harness.advance(61)
    assert (await harness.claim()).tasks == ()
    assert (await harness.lane()).ready == 0
    await check(harness, run)


async def test_a_dropped_task_tells_when_and_that_it_was_dropped(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", meta={"n": 1}, priority=4)])
    await harness.settle(await harness.one(), "retry", **failed("http.503"))
    await harness.advance(5)
    assert await harness.queue.drop(run) == 1
    (view,) = await harness.queue.list_tasks(run, state="cancelled")
    assert view == await task_history(harness, run, "a")
    assert (view.url, view.state, view.cause, view.lane) == ("a", "cancelled", "dropped", LANE)
    assert (view.finished_at, view.attempts, view.priority) == (await harness.queue.now(), 1, 4)
    assert [attempt.cause for attempt in view.history] == ["http.503", "dropped"]
    assert view.history[-1].at == await harness.queue.now()
    assert view.history[-1].message
    assert view.meta is None


async def test_a_dropped_task_is_known(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    held = await harness.one()
    await harness.queue.drop(run)
    assert await harness.add(run, "b c") == ["known", "added"]
    await harness.settle(held, found=(page("b"),))
    assert urls(await harness.claim()) == ["c"]
    assert await harness.state_of(run, "b") == "cancelled"
    await check(harness, run)


async def test_what_is_leased_is_left_alone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b c")
    held = await harness.one()
    assert await harness.queue.drop(run) == 2
    assert (await harness.stats(run)).leased == (await harness.lane()).in_flight == 1
    assert await harness.settle(held, records=(b"{}",)) == "ok"
    stats = await harness.stats(run)
    assert (stats.done, stats.cancelled, stats.records) == (1, 2, 1)
    await check(harness, run)


async def test_dead_letters_are_given_up_and_nothing_else(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await kill(harness)
    await harness.add(run, "c")
    assert await harness.queue.drop(run, state="dead") == 2
    stats = await harness.stats(run)
    assert (stats.dead, stats.ready, stats.cancelled) == (0, 1, 2)
    assert await shown(harness, run) == ["a", "b"]
    assert [attempt.cause for attempt in (await task_history(harness, run, "a")).history] == ["http.500", "dropped"]
    assert await harness.queue.dead_groups(run) == []
    assert await harness.queue.revive(run) == 0
    assert urls(await harness.claim()) == ["c"]
    await check(harness, run)


async def test_by_default_dead_letters_stay(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await kill(harness)
    assert await harness.queue.drop(run) == 0
    assert (await harness.stats(run)).dead == 1


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (TaskFilter(), ["a1", "a2", "b1", "b2"]),
        (TaskFilter(lane="b.test"), ["b1", "b2"]),
        (TaskFilter(lane="nowhere"), []),
        (TaskFilter(url="*1"), ["a1", "b1"]),
        (TaskFilter(url="a2", lane="a.test"), ["a2"]),
        (TaskFilter(url="a2", lane="b.test"), []),
        (TaskFilter(cause="http.*"), []),
    ],
)
async def test_a_filter_chooses_what_is_given_up(harness: QueueHarness, where: TaskFilter, expected: list[str]) -> None:
    run = await harness.run()
    await harness.add(run, [page(url, f"{url[0]}.test") for url in ("a1", "a2", "b1", "b2")])
    assert await harness.queue.drop(run, where) == len(expected)
    assert sorted(await shown(harness, run)) == expected
    assert (await harness.stats(run)).ready == 4 - len(expected)
    ready = {lane.name: lane.ready for lane in await harness.queue.lanes()}
    assert ready == {name: 2 - sum(url.startswith(name[0]) for url in expected) for name in ("a.test", "b.test")}
    await check(harness, run)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (TaskFilter(cause="http.5*"), ["a"]),
        (TaskFilter(cause="timeout.total"), ["b"]),
        (TaskFilter(lane=LANE), ["a", "b"]),
        (TaskFilter(lane=LANE, cause="http.404"), []),
        (TaskFilter(url="b"), ["b"]),
    ],
)
async def test_a_filter_chooses_among_dead_letters(
    harness: QueueHarness, where: TaskFilter, expected: list[str]
) -> None:
    run = await harness.run()
    for url, cause in (("a", "http.500"), ("b", "timeout.total")):
        await harness.add(run, url)
        await kill(harness, cause)
    assert await harness.queue.drop(run, where, state="dead") == len(expected)
    assert await shown(harness, run) == expected
    await check(harness, run)


async def test_chosen_tasks_are_given_up_and_no_others(harness: QueueHarness) -> None:
    run, other = await harness.run("one"), await harness.run("other")
    await harness.add(run, "a b c")
    await harness.add(other, "a b c")
    ids = [view.id for view in await harness.queue.list_tasks(run)]
    strange = (await harness.queue.list_tasks(other))[0].id
    assert await harness.queue.drop(run, TaskFilter(ids=(ids[1], strange, 12345))) == 1
    assert await shown(harness, run) == ["b"]
    assert (await harness.stats(other)).ready == 3
    assert await harness.queue.drop(run, TaskFilter(ids=(ids[1],))) == 0


@pytest.mark.parametrize("state", ["ready", "dead"])
async def test_no_more_than_the_limit_at_once_and_in_the_end_all(harness: QueueHarness, state: Any) -> None:
    run = await harness.run()
    await harness.add(run, pages(5, lane="x.test"))
    await harness.add(run, pages(2, "late", delay=60.0))
    if state == "dead":
        await harness.advance(61)
        await kill(harness)
    counts = [await harness.queue.drop(run, state=state, limit=3) for _ in range(4)]
    assert counts == [3, 3, 1, 0]
    stats = await harness.stats(run)
    assert (stats.cancelled, stats.open, stats.dead, stats.delayed) == (7, 0, 0, 0)
    await check(harness, run)


async def test_one_run_drops_nothing_of_another_in_the_same_lane(harness: QueueHarness) -> None:
    run, other = await harness.run("one"), await harness.run("other")
    for each in (run, other):
        await harness.add(each, "a b")
    assert await harness.queue.drop(run) == 2
    assert (await harness.lane()).ready == 2
    assert {task.run for task in (await harness.claim()).tasks} == {other}


async def test_a_run_of_which_all_was_dropped_can_finish(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    with pytest.raises(UsageError):
        await harness.queue.set_run(run, "finish")
    await harness.queue.drop(run)
    assert (await harness.queue.set_run(run, "finish")).state == "finished"
    await check(harness, run)


async def test_a_paused_run_drops_and_stays_paused(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.queue.set_run(run, "pause")
    assert await harness.queue.drop(run, TaskFilter(url="a")) == 1
    (about,) = await harness.queue.runs()
    assert about.state == "paused"
    assert (await harness.lane()).ready == 1


@pytest.mark.parametrize("action", ["cancel", "finish"])
async def test_of_an_ended_run_only_dead_letters_are_dropped(harness: QueueHarness, action: Any) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await kill(harness)
    if action == "cancel":
        await harness.add(run, "c d")
    await harness.queue.set_run(run, action)
    assert await harness.queue.drop(run) == 0
    before = (await harness.stats(run)).cancelled
    assert await harness.queue.drop(run, TaskFilter(url="a"), state="dead") == 1
    stats = await harness.stats(run)
    assert (stats.dead, stats.cancelled) == (1, before + 1)
    assert (await harness.queue.runs())[0].state == f"{action}ed".replace("celed", "celled")
    await check(harness, run)


async def test_a_run_that_never_was_drops_nothing(harness: QueueHarness) -> None:
    with pytest.raises(UsageError):
        await harness.queue.drop(12345)


async def test_a_dropped_dead_letter_makes_room_for_another_page(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=2)
    await harness.add(run, "a b c d")
    await harness.settle(await harness.one(), "dead", **failed("http.500"))
    assert await harness.queue.drop(run, state="dead") == 1
    assert (await harness.stats(run)).claimable == 2
    assert len((await harness.claim()).tasks) == 2
    assert (await harness.claim()).tasks == ()


async def test_a_task_that_lost_its_worker_can_be_dropped(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    held = await harness.one()
    await harness.lose(executing=[held.id])
    assert await harness.queue.drop(run, TaskFilter(ids=(held.id,))) == 1
    assert urls(await harness.claim()) == ["b"]
    assert await harness.settle(held, records=(b"{}",)) == "stale"
    assert await harness.queue.records(run) == []
    assert await harness.state_of(run, "a") == "cancelled"
    await check(harness, run)


async def test_a_dropped_task_does_not_expire(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", ttl=10.0)
    await harness.queue.drop(run)
    await harness.advance(11)
    assert (await harness.queue.reap()).expired == 0
    assert await harness.state_of(run, "a") == "cancelled"
    await check(harness, run)


async def test_a_dropped_task_frees_its_lane_for_others(harness: QueueHarness) -> None:
    run, other = await harness.run("one"), await harness.run("other")
    await harness.add(run, "a", Pace(0.0, 1))
    await harness.add(other, "b", Pace(0.0, 1))
    await harness.queue.drop(run)
    claim = await harness.claim()
    assert urls(claim) == ["b"]
    await harness.settle_all(claim)
    assert (await harness.claim()).next_in is None


async def test_what_was_dropped_outlives_a_restart_and_a_move(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await kill(harness)
    await harness.add(run, "c")
    await harness.queue.drop(run)
    await harness.queue.drop(run, TaskFilter(url="a"), state="dead")
    queue = await harness.reopen()
    assert await shown(harness, run) == ["a", "c"]
    await check(harness, run)
    await queue.set_run(run, "pause")
    carried = {it.task.url: (it.state, it.cause) for it in await queue.export_run(run)}
    assert carried == {"a": ("cancelled", "dropped"), "b": ("dead", "http.500"), "c": ("cancelled", "dropped")}


async def test_repeating_a_drop_is_harmless(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    assert [await harness.queue.drop(run, TaskFilter(url="a")) for _ in range(3)] == [1, 0, 0]
    assert len((await task_history(harness, run, "a")).history) == 1
