"""Priority: higher is sooner, and nothing starves."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, page, pages, urls
from conformance.model import ModelQueue
from shoal.core.lane import Pace
from shoal.core.task import band
from shoal.queue.base import LOST_LIMIT

EVERY = 16


async def order(harness: QueueHarness, count: int, limit: int = 1) -> list[str]:
    """The order in which tasks are handed out."""
    got: list[str] = []
    while len(got) < count:
        claim = await harness.claim(min(limit, count - len(got)))
        assert claim.tasks
        got += urls(claim)
    return got


async def test_equal_tasks_come_in_the_order_they_were_added(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(12))
    assert await order(harness, 12) == [task.url for task in pages(12)]


async def test_higher_bands_come_first(harness: QueueHarness) -> None:
    run = await harness.run()
    priorities = [-50, -3, 0, 1, 2, 5, 50, 500]
    assert [band(priority) for priority in priorities] == [7, 6, 5, 4, 3, 2, 1, 0]
    await harness.add(run, [page(f"{priority}", priority=priority) for priority in priorities])
    assert await order(harness, 8) == [f"{priority}" for priority in reversed(priorities)]


async def test_age_decides_within_a_band(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("older", priority=20), page("younger", priority=90)])
    assert band(20) == band(90)
    assert await order(harness, 2) == ["older", "younger"]


@pytest.mark.parametrize("priority", [2**31, -(2**31), 10**9])
async def test_any_integer_is_a_priority(harness: QueueHarness, priority: int) -> None:
    run = await harness.run()
    await harness.add(run, [page("normal"), page("extreme", priority=priority)])
    first = (await order(harness, 1))[0]
    assert first == ("extreme" if priority > 0 else "normal")


@pytest.mark.parametrize("limit", [1, 5, 16])
async def test_every_sixteenth_pick_takes_the_oldest(harness: QueueHarness, limit: int) -> None:
    run = await harness.run()
    await harness.add(run, pages(10, "old", priority=-50))
    await harness.add(run, pages(100, "new", priority=50))
    got = await order(harness, 5 * EVERY, limit)
    old = [url for url in got if url.startswith("old")]
    assert 4 <= len(old) <= 5, "one of sixteen, no more and no less"
    assert old == [f"old{number}" for number in range(len(old))]


async def test_the_oldest_is_taken_within_sixteen_picks(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("old", priority=-50)])
    await harness.add(run, pages(40, "new", priority=50))
    got = await order(harness, EVERY)
    assert got[0] != "old"
    assert "old" in got


async def test_nothing_starves_while_better_work_keeps_coming(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("patient", priority=-100)])
    for number in range(3 * EVERY):
        await harness.add(run, pages(2, f"urgent{number}-", priority=100))
        leased = await harness.one()
        if leased.url == "patient":
            return
        await harness.settle(leased)
    pytest.fail("a low priority was never served")


async def test_a_found_task_is_placed_by_its_priority(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    await harness.settle(await harness.one(), found=(page("urgent", priority=100), page("idle", priority=-100)))
    assert await order(harness, 4) == ["urgent", "p1", "p2", "idle"]


async def test_a_released_task_keeps_its_band(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("urgent", priority=100)])
    leased = await harness.one()
    await harness.add(run, pages(2))
    await harness.settle(leased, "released")
    assert (await harness.one()).url == "urgent"


async def test_a_retried_task_keeps_its_band(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page("urgent", priority=100)])
    await harness.settle(await harness.one(), "retry", after=5.0, cause="x")
    await harness.add(run, pages(2))
    await harness.advance(6)
    assert (await harness.one()).url == "urgent"


async def test_a_task_that_lost_a_worker_comes_before_all_others(harness: QueueHarness) -> None:
    assert LOST_LIMIT > 1
    run = await harness.run()
    await harness.add(run, [page("unlucky", priority=-100)])
    await harness.lose("w1", [(await harness.one()).id])
    await harness.add(run, pages(3, priority=100))
    assert urls(await harness.claim()) == ["unlucky"]


@pytest.mark.parametrize("limit", [1, 4, 50])
async def test_urgent_tasks_come_first_also_over_lanes(harness: QueueHarness, limit: int) -> None:
    harness.need_one_order()
    run = await harness.run()
    lanes = [f"{number}.test" for number in range(8)]
    await harness.add(run, [page(f"usual{n}", lanes[n % 8]) for n in range(40)])
    await harness.add(run, [page(f"urgent{n}", lanes[n % 3], priority=10) for n in range(10)])
    got = await order(harness, 50, limit)
    last = max(at for at, url in enumerate(got) if url.startswith("urgent"))
    assert last <= (12 if limit == 4 else 10), got  # one may be the oldest; a batch is spread over lanes


async def two_runs(harness: QueueHarness, *, lane: str = "a.test") -> tuple[int, int]:
    """A run with old tasks, and a more urgent one that came later."""
    usual, urgent = await harness.run("usual"), await harness.run("urgent", priority=10)
    await harness.add(usual, pages(100, "usual", lane))
    await harness.advance(1)
    await harness.add(urgent, pages(100, "urgent", lane))
    return usual, urgent


@pytest.mark.parametrize("limit", [1, 5, 16, 40])
async def test_a_more_urgent_run_gets_fifteen_of_sixteen_and_the_oldest_one(harness: QueueHarness, limit: int) -> None:
    await two_runs(harness)
    got = await order(harness, 4 * EVERY, limit)
    usual = [url for url in got if url.startswith("usual")]
    assert 3 <= len(usual) <= 4, got
    assert usual == [f"usual{number}" for number in range(len(usual))], "the oldest, in their order"


async def test_the_oldest_of_any_run_may_be_the_urgent_one_s_own(harness: QueueHarness) -> None:
    urgent, usual = await harness.run("urgent", priority=1), await harness.run("usual")
    await harness.add(urgent, pages(100, "urgent"))
    await harness.advance(1)
    await harness.add(usual, pages(100, "usual"))
    assert all(url.startswith("urgent") for url in await order(harness, 5 * EVERY))


async def test_the_oldest_of_a_less_urgent_run_comes_whatever_its_band(harness: QueueHarness) -> None:
    usual, urgent = await harness.run("usual"), await harness.run("urgent", priority=10)
    await harness.add(usual, [page("old", priority=-50)])
    await harness.advance(1)
    await harness.add(usual, pages(50, "usual", priority=50))
    await harness.add(urgent, pages(100, "urgent"))
    got = await order(harness, EVERY)
    assert [url for url in got if not url.startswith("urgent")] == ["old"]


async def test_of_three_priorities_the_highest_comes_first(harness: QueueHarness) -> None:
    for priority in (0, 9, -3):
        await harness.add(await harness.run(str(priority), priority=priority), pages(4, f"{priority}:"))
    got = await order(harness, 12)
    assert [url.split(":")[0] for url in got] == ["9"] * 4 + ["0"] * 4 + ["-3"] * 4


async def test_between_lanes_the_more_urgent_run_is_asked_first(harness: QueueHarness) -> None:
    harness.need_one_order()
    usual, urgent = await harness.run("usual"), await harness.run("urgent", priority=1)
    await harness.add(usual, pages(20, "usual", "a.test"))
    await harness.add(urgent, pages(6, "urgent", "b.test"))
    assert urls(await harness.claim(4)) == [f"urgent{number}" for number in range(4)]
    assert {task.run for task in (await harness.claim(4)).tasks} == {usual, urgent}, "a batch is filled up"


async def test_a_batch_comes_in_the_order_of_urgency(harness: QueueHarness) -> None:
    usual, urgent = await harness.run("usual"), await harness.run("urgent", priority=1)
    await harness.add(usual, pages(3, "usual", "a.test"))
    await harness.add(urgent, [*pages(3, "urgent", "a.test"), *pages(2, "first", "b.test", priority=100)])
    got = urls(await harness.claim(8))
    assert got[:2] == ["first0", "first1"], "in a run by band, also over lanes"
    assert [url.rstrip("0123456789") for url in got[2:]] == ["urgent"] * 3 + ["usual"] * 3


async def test_a_run_that_comes_later_is_before_what_was_not_claimed_yet(harness: QueueHarness) -> None:
    await harness.add(await harness.run("usual"), pages(20, "usual"))
    held = await harness.claim(5)
    await harness.add(await harness.run("urgent", priority=1), pages(3, "urgent"))
    assert urls(held) == [f"usual{number}" for number in range(5)]
    assert await order(harness, 4) == ["urgent0", "urgent1", "urgent2", "usual5"]


async def test_equals_share_by_weight_below_one_that_is_more_urgent(harness: QueueHarness) -> None:
    urgent = await harness.run("urgent", priority=1)
    heavy, light = await harness.run("heavy", weight=3), await harness.run("light")
    await harness.add(urgent, pages(3, "urgent"))
    for run in (heavy, light):
        await harness.add(run, pages(100, str(run)))
    assert [leased.run for leased in (await harness.claim(3)).tasks] == [urgent] * 3
    got = [(await harness.one()).run for _ in range(40)]
    assert 26 <= got.count(heavy) <= 34, got


async def test_a_slot_is_left_to_a_more_urgent_run_of_other_workers(harness: QueueHarness) -> None:
    if isinstance(harness.queue, ModelQueue):
        pytest.skip("the model gives a slot to whoever asks first")
    usual, urgent = await harness.run("usual", name="usual"), await harness.run("urgent", name="urgent", priority=1)
    pace = Pace(0.5, 0)
    await harness.add(usual, pages(200, "usual"), pace)
    await harness.add(urgent, pages(200, "urgent"), pace)
    got: list[int] = []
    for _ in range(640):
        for name in ("usual", "urgent"):  # the less urgent always asks first
            claim = await harness.claim(50, name, serves=[name])
            got += [leased.run for leased in claim.tasks]
            await harness.settle_all(claim)
        await harness.advance(0.05)
    got = got[4:]  # nobody knew of the other at first
    assert len(got) >= 40, "the host stood idle"
    assert got.count(urgent) >= 0.85 * len(got), got
    assert got.count(usual) >= 0.04 * len(got), got


async def test_of_very_many_runs_the_most_urgent_comes_first_and_all_are_served(harness: QueueHarness) -> None:
    harness.need_one_order()
    for number in range(40):
        run = await harness.run(f"r{number}", priority=9 if number == 39 else 0)
        await harness.add(run, [page(f"{number}a", "a.test"), page(f"{number}b", "b.test")], pace=Pace(0.0, 2))
    got: list[str] = []
    while len(got) < 80:
        claim = await harness.claim(3)
        assert claim.tasks, "lanes with room again are asked again"
        got += urls(claim)
        for task in claim.tasks:
            await harness.settle(task)
    assert set(got[:2]) == {"39a", "39b"}
    assert len(set(got)) == 80
