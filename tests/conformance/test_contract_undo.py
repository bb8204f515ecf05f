"""Undo: a run that was cancelled comes back as it was, within an hour."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.harness import QueueHarness, page, pages, urls
from shoal.core.lane import Pace
from shoal.core.stats import Stats
from shoal.core.task import digest
from shoal.errors import UsageError
from shoal.queue.base import UNDO_SECONDS

NARROW = Pace(0.0, 1)


async def account(harness: QueueHarness, run: int) -> Stats:
    stats = await harness.stats(run)
    recount = await harness.queue.recount(run)
    assert stats == recount
    assert not await harness.queue.orphans(run)
    return stats


async def is_refused(harness: QueueHarness, run: int) -> bool:
    try:
        await harness.queue.set_run(run, "undo")
    except UsageError:
        return True
    return False


async def cancel_and_undo(harness: QueueHarness, run: int) -> None:
    await harness.queue.set_run(run, "cancel")
    await account(harness, run)
    await harness.queue.set_run(run, "undo")


async def test_a_run_comes_back_as_it_was(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(6))
    await harness.add(run, "later", delay=60.0)
    held = await harness.claim(3)
    await harness.settle(held.tasks[0])
    await harness.settle(held.tasks[1], "dead", cause="x")
    before = await account(harness, run)
    await cancel_and_undo(harness, run)
    assert await account(harness, run) == before
    assert (before.ready, before.delayed, before.leased, before.done, before.dead) == (4, 1, 1, 1, 1)
    (about,) = await harness.queue.runs(key="crawl")
    assert (about.state, about.finished_at) == ("running", 0)
    assert urls(await harness.claim()) == ["p3", "p4", "p5"]


@pytest.mark.parametrize("state", ["running", "paused"])
async def test_undo_brings_back_the_state_that_the_run_was_in(harness: QueueHarness, state: str) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    if state == "paused":
        await harness.queue.set_run(run, "pause")
    await harness.queue.set_run(run, "cancel")
    assert (await harness.queue.set_run(run, "undo")).state == state


async def test_tasks_are_shown_as_before_the_cancel(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.add(run, "c", delay=60.0)
    await harness.one()
    before = await harness.queue.list_tasks(run)
    await harness.queue.set_run(run, "cancel")
    assert {view.state for view in await harness.queue.list_tasks(run)} == {"cancelled"}
    await harness.queue.set_run(run, "undo")
    assert await harness.queue.list_tasks(run) == before
    assert [view.state for view in before] == ["leased", "ready", "delayed"]


async def test_what_tasks_need_is_kept(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", needs=("browser",)), page("b", needs=("browser",)), page("c")])
    await harness.add(run, [page("d", needs=("browser",), delay=60.0)])
    held = await harness.claim(1, capabilities=["browser"])
    before = await account(harness, run)
    await harness.queue.set_run(run, "cancel")
    assert (await account(harness, run)).needs == {}
    await harness.settle(held.tasks[0], "released")
    await harness.queue.set_run(run, "undo")
    after = await account(harness, run)
    assert (after.ready, after.leased, sum(after.needs.values())) == (before.ready + 1, 0, 2)
    assert urls(await harness.claim()) == ["c"]
    assert sorted(urls(await harness.claim(capabilities=["browser"]))) == ["a", "b"]


async def test_attempts_and_places_in_line_are_kept(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b c")
    await harness.settle(await harness.one(), "retry", cause="http.500")
    await harness.add(run, "urgent", priority=100)
    await cancel_and_undo(harness, run)
    claim = await harness.claim()
    assert sorted(urls(claim)[1:]) == ["a", "b", "c"] and urls(claim)[0] == "urgent"
    assert {task.url: task.attempts for task in claim.tasks} == {"urgent": 0, "a": 1, "b": 0, "c": 0}


async def test_a_leased_task_is_still_its_workers(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b", pace=NARROW)
    leased = await harness.one()
    await cancel_and_undo(harness, run)
    assert (await harness.lane()).in_flight == 1
    assert not (await harness.claim(worker="w2")).tasks
    assert await harness.settle(leased, records=(b"{}",), found=(page("c"),)) == "ok"
    stats = await account(harness, run)
    assert (stats.done, stats.records, stats.seen, stats.leased) == (1, 1, 3, 0)
    assert (await harness.lane()).in_flight == 0


async def test_what_came_late_stays_done(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b c")
    held = await harness.claim(2)
    await harness.queue.set_run(run, "cancel")
    await harness.settle(held.tasks[0], records=(b'{"n":1}',))
    await harness.queue.set_run(run, "undo")
    stats = await account(harness, run)
    assert (stats.done, stats.leased, stats.ready, stats.cancelled, stats.records) == (1, 1, 1, 0, 1)
    assert await harness.settle(held.tasks[0], records=(b'{"n":1}',)) == "already"
    assert await harness.settle(held.tasks[1], records=(b'{"n":2}',)) == "ok"


@pytest.mark.parametrize(("result", "after", "state"), [
    ("retry", 0.0, "ready"), ("retry", 30.0, "delayed"), ("released", 0.0, "ready"), ("released", 30.0, "delayed"),
    ("dead", 0.0, "cancelled"), ("cancelled", 0.0, "cancelled"),
])  # fmt: skip
async def test_what_came_back_late_waits_again(harness: QueueHarness, result: Any, after: float, state: str) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    leased = await harness.one()
    await harness.queue.set_run(run, "cancel")
    assert await harness.settle(leased, result, cause="http.500", after=after) == "ok"
    assert (await account(harness, run)).cancelled == 2
    await harness.queue.set_run(run, "undo")
    await account(harness, run)
    view = await harness.queue.find(run, digest("a"))
    assert view is not None and view.state == state
    if state != "cancelled":
        assert view.attempts == (result == "retry")
    assert await harness.settle(leased, result, cause="http.500") == "already"


async def test_a_task_whose_lease_ended_meanwhile_waits_and_is_charged_to_nobody(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    leased = await harness.one(lease=5.0)
    await harness.queue.set_run(run, "cancel")
    await harness.advance(6)
    await harness.queue.reap()
    await account(harness, run)
    await harness.queue.set_run(run, "undo")
    stats = await account(harness, run)
    assert (stats.ready, stats.leased, stats.lost, stats.cancelled) == (2, 0, 0, 0)
    assert await harness.settle(leased) == "stale"
    again = await harness.claim()
    assert sorted(urls(again)) == ["a", "b"] and {task.lost for task in again.tasks} == {0}


async def test_who_was_told_of_the_cancel_is_not_charged_for_it(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one(lease=5.0)
    await harness.queue.set_run(run, "cancel")
    told = await harness.queue.extend("w1", {leased.lease: [leased.id]}, lease=5.0)
    assert told.cancelled == {leased.id}
    await harness.queue.set_run(run, "undo")
    await harness.advance(6)
    await harness.queue.reap()
    assert (await account(harness, run)).lost == 0
    assert (await harness.one()).lost == 0


async def test_a_task_that_comes_once_at_most_does_not_come_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("a", ack="auto"), page("b")])
    await harness.claim(1, lease=5.0)
    await harness.queue.set_run(run, "cancel")
    await harness.advance(6)
    await harness.queue.reap()
    await harness.queue.set_run(run, "undo")
    stats = await account(harness, run)
    assert (stats.ready, stats.cancelled) == (1, 1)
    assert urls(await harness.claim()) == ["b"]


async def test_what_a_run_asks_of_its_lanes_counts_again(harness: QueueHarness) -> None:
    run, other = await harness.run("slow"), await harness.run("quick")
    await harness.add(run, "a b", pace=Pace(7.0, 1))
    await harness.add(other, "c", pace=Pace(0.5, 4))
    await harness.queue.set_run(run, "cancel")
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight, lane.ready) == (0.5, 4, 1)
    await harness.queue.set_run(run, "undo")
    lane = await harness.lane()
    assert (lane.spacing, lane.max_in_flight, lane.ready) == (7.0, 1, 3)


async def test_work_is_added_to_a_run_that_came_back(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await cancel_and_undo(harness, run)
    assert await harness.add(run, "a c") == ["known", "added"]
    assert urls(await harness.claim()) == ["a", "b", "c"]
    assert (await account(harness, run)).seen == 3


async def test_a_task_that_waits_for_its_time_comes_then(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", delay=30.0)
    await harness.queue.set_run(run, "cancel")
    await harness.advance(20)
    assert (await harness.claim()).next_in is None
    await harness.queue.set_run(run, "undo")
    assert not (await harness.claim()).tasks
    await harness.advance(11)
    assert urls(await harness.claim()) == ["a"]
    assert (await account(harness, run)).delayed == 0


async def test_what_is_only_kept_keeps_nobody_waiting(harness: QueueHarness) -> None:
    """Neither its due times nor its lives are anybody's business."""
    gone, run = await harness.run("gone"), await harness.run("run")
    await harness.add(gone, "a", delay=5.0)
    await harness.add(gone, "b", ttl=5.0)
    await harness.queue.set_run(gone, "cancel")
    await harness.add(run, "c", delay=50.0)
    await harness.advance(10)
    assert await harness.queue.reap() == await harness.queue.reap()
    claim = await harness.claim()
    assert claim.next_in == pytest.approx(40.0)
    stats = await account(harness, gone)
    assert (stats.cancelled, stats.dead, stats.delayed) == (2, 0, 0)
    await harness.queue.set_run(gone, "undo")
    assert (await harness.queue.reap()).expired == 1


async def test_a_task_that_lost_a_worker_is_still_alone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.lose(executing=[(await harness.one()).id])
    await cancel_and_undo(harness, run)
    claim = await harness.claim()
    assert [(task.url, task.lost) for task in claim.tasks] == [("a", 1)]


async def test_undo_can_be_undone_and_the_cancel_again(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    await harness.one()
    before = await account(harness, run)
    for _ in range(3):
        await cancel_and_undo(harness, run)
        assert await account(harness, run) == before
        assert (await harness.queue.set_run(run, "undo")).state == "running"
    await harness.queue.set_run(run, "cancel")
    assert (await account(harness, run)).cancelled == 3
    assert not (await harness.claim()).tasks


async def test_after_an_hour_it_is_too_late(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.queue.set_run(run, "cancel")
    await harness.advance(UNDO_SECONDS - 1)
    await harness.queue.reap()
    assert (await harness.queue.set_run(run, "undo")).state == "running"
    await harness.queue.set_run(run, "cancel")
    await harness.advance(UNDO_SECONDS)
    for _ in range(3):
        assert await is_refused(harness, run)
        await harness.queue.reap()
    assert (await account(harness, run)).cancelled == 2
    assert await harness.state_of(run, "a") == "cancelled"


async def test_a_late_answer_counts_also_when_nothing_can_be_undone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b c")
    held = await harness.claim(2, lease=2 * UNDO_SECONDS)
    await harness.queue.set_run(run, "cancel")
    await harness.advance(UNDO_SECONDS + 1)
    await harness.queue.reap()
    assert await harness.settle(held.tasks[0], records=(b"{}",)) == "ok"
    assert await harness.settle(held.tasks[1], "retry", cause="x") == "ok"
    await harness.queue.reap()
    stats = await account(harness, run)
    assert (stats.done, stats.cancelled, stats.records, stats.open) == (1, 2, 1, 0)


async def test_while_another_run_goes_on_in_its_place_undo_is_refused(harness: QueueHarness) -> None:
    run = await harness.run("same")
    await harness.add(run, "a")
    await harness.queue.set_run(run, "cancel")
    other = await harness.run("same")
    assert await is_refused(harness, run)
    await harness.queue.set_run(other, "cancel")
    assert (await harness.queue.set_run(run, "undo")).state == "running"
    assert await harness.run("same") == run


async def test_a_run_that_ended_otherwise_cannot_be_undone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.queue.set_run(run, "finish")
    assert await is_refused(harness, run)
    assert await is_refused(harness, 4711)


async def test_a_run_that_was_removed_cannot_be_undone(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    await harness.queue.set_run(run, "cancel")
    assert await harness.queue.purge(run=run) == 1
    assert await is_refused(harness, run)


async def test_a_run_of_many_lanes_comes_back_whole(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"p{n}", f"{n}.test") for n in range(1200)], pace=Pace(0.5, 1))
    await harness.queue.set_run(run, "cancel")
    assert {lane.spacing for lane in await harness.queue.lanes(limit=2000)} == {0.0}
    await harness.queue.set_run(run, "undo")
    lanes = await harness.queue.lanes(limit=2000)
    assert {(lane.spacing, lane.ready) for lane in lanes} == {(0.5, 1)} and len(lanes) == 1200
    assert (await account(harness, run)).ready == 1200
    assert len((await harness.claim(50)).tasks) == 50


async def test_dead_letters_of_a_run_that_came_back_can_be_revived(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    await harness.settle(await harness.one(), "dead", cause="x")
    await cancel_and_undo(harness, run)
    assert await harness.queue.revive(run) == 1
    assert sorted(urls(await harness.claim())) == ["a", "b"]
