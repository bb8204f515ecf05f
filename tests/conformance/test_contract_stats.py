"""stats: exact at every moment, and the same as counting."""

from __future__ import annotations

import random

import pytest

from conformance.harness import LANE, QueueHarness, outcome, page, pages
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.stats import Stats
from shoal.core.task import LaneChange, LeasedTask
from shoal.errors import UsageError

COUNTED = ("seen", "ready", "delayed", "leased", "done", "dead", "cancelled", "records")


def counted(stats: Stats) -> dict[str, int]:
    return {name: getattr(stats, name) for name in COUNTED}


async def live(harness: QueueHarness, run: int, chance: random.Random, held: list[LeasedTask]) -> None:
    """One random moment in the life of a run."""
    what = chance.randrange(9)
    if what == 0:
        lane, delay = f"{chance.randrange(3)}.test", chance.choice([0, 0, 5])
        await harness.add(run, [page(f"{chance.randrange(60)}", lane, delay=delay)])
    elif what <= 3:
        held += (await harness.claim(chance.randint(1, 4), f"w{chance.randrange(2)}", lease=20.0)).tasks
    elif what <= 6 and held:
        chance.shuffle(held)
        leased = held.pop()
        result = chance.choice(["done", "done", "retry", "dead", "released", "cancelled", "part"])
        words = {"records": (b"{}",), "found": tuple(pages(2, f"{leased.id}/"))} if result == "done" else {}
        await harness.settle(leased, result, cause="x", after=chance.choice([0.0, 3.0]), **words)
    elif what == 7:
        await harness.advance(chance.choice([1, 8]))
    else:
        await harness.queue.reap({"w1": [leased.id for leased in held[:1]]} if chance.random() < 0.3 else None)
        if chance.random() < 0.2:
            await harness.queue.revive(run)


@pytest.mark.parametrize("seed", range(4))
async def test_counters_equal_a_recount_after_any_history(harness: QueueHarness, seed: int) -> None:
    chance, held = random.Random(seed), list[LeasedTask]()
    run, other = await harness.run("one"), await harness.run("other")
    await harness.add(run, [page(f"{number}", f"{number % 3}.test") for number in range(10)])
    await harness.add(other, pages(10, "other"))
    for _ in range(120):
        await live(harness, run, chance, held)
    for each in (run, other):
        assert counted(await harness.stats(each)) == counted(await harness.queue.recount(each))
    await harness.queue.set_run(run, "cancel")
    assert counted(await harness.stats(run)) == counted(await harness.queue.recount(run))
    in_flight = sum(lane.in_flight for lane in await harness.queue.lanes())
    assert in_flight == (await harness.stats(run)).leased + (await harness.stats(other)).leased


async def test_the_account_balances_in_every_state(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(6))
    await harness.add(run, "later", delay=60.0)
    tasks = (await harness.claim(5)).tasks
    results = ["done", "dead", "cancelled", "retry"]
    await harness.queue.settle(
        [outcome(task, result, cause="x", after=9.0) for task, result in zip(tasks, results, strict=False)]
    )
    stats = await harness.stats(run)
    assert stats == Stats(seen=7, ready=3, delayed=2, leased=1, done=1, dead=1, cancelled=1, retries=1, claimable=1)
    assert stats.is_balanced


async def test_an_empty_run_has_an_empty_account(harness: QueueHarness) -> None:
    assert await harness.stats(await harness.run()) == Stats()


async def test_stats_of_a_run_that_never_was_are_refused(harness: QueueHarness) -> None:
    with pytest.raises(UsageError):
        await harness.queue.stats(4711)


async def test_the_accounts_of_many_runs_come_in_the_order_asked_for(harness: QueueHarness) -> None:
    first, paused, limited, ended, empty = [await harness.run(f"k{n}", max_pages=2 * (n == 2)) for n in range(5)]
    for run in (first, paused, limited, ended):
        await harness.add(run, [*pages(4, lane="free.test"), *pages(2, "late", delay=5.0)])
    for leased in (await harness.claim(6)).tasks:
        await harness.settle(leased, records=(b"{}",), skipped=(("scope", "x"),))
    await harness.add(first, [*pages(3, "slow", "slow.test")], Pace(1.0, 2))
    await harness.queue.set_run(paused, "pause")
    await harness.queue.set_run(ended, "cancel")
    await harness.advance(6)  # what was late is ready now, though nobody has claimed it
    asked = [ended, limited, 12345, first, empty, paused, first]
    stats = [Stats() if run == 12345 else await harness.stats(run) for run in asked]
    assert await harness.queue.stats_of(asked) == stats
    assert len({repr(one) for one in stats}) >= 5
    assert await harness.queue.stats_of([]) == []


async def test_stats_of_an_ended_run_stay(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), records=(b"{}",), skipped=(("scope", "x"),))
    before = await harness.stats(run)
    await harness.queue.set_run(run, "finish")
    assert await harness.stats(run) == before


async def test_delayed_is_a_part_of_ready_until_its_time_comes(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", delay=10.0)
    await harness.add(run, "b")
    stats = await harness.stats(run)
    assert (stats.ready, stats.delayed, stats.claimable) == (2, 1, 1)
    await harness.advance(11)
    stats = await harness.stats(run)
    assert (stats.ready, stats.delayed) == (2, 0)


async def test_a_delayed_task_whose_time_has_come_is_claimable(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a", delay=10.0)
    await harness.advance(11)
    assert (await harness.stats(run)).claimable == 1


# claimable: what a further worker could have this second


async def claimable(harness: QueueHarness, run: int) -> int:
    return (await harness.stats(run)).claimable


async def test_all_ready_work_of_a_free_lane_is_claimable(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(7))
    assert await claimable(harness, run) == 7


@pytest.mark.parametrize("places", [1, 3])
async def test_claimable_is_bounded_by_the_places_in_flight(harness: QueueHarness, places: int) -> None:
    run = await harness.run()
    await harness.add(run, pages(7), pace=Pace(0.0, places))
    assert await claimable(harness, run) == places
    await harness.one()
    assert await claimable(harness, run) == places - 1


async def test_claimable_is_bounded_by_the_slots_of_a_lane(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(50), pace=Pace(10.0, 0))
    assert await claimable(harness, run) == 1
    await harness.one()
    assert await claimable(harness, run) == 0
    await harness.advance(10)
    assert await claimable(harness, run) == 1


async def test_nothing_of_a_held_or_parked_lane_is_claimable(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    await harness.queue.set_lane(LaneChange(LANE, park_for=60.0, reason="x"))
    assert await claimable(harness, run) == 0
    await harness.advance(61)
    assert await claimable(harness, run) == 1  # a probe
    await harness.queue.set_lane(LaneChange(LANE, park_for=0.0))
    assert await claimable(harness, run) == 5


@pytest.mark.parametrize("action", ["pause", "cancel"])
async def test_nothing_of_a_stopped_run_is_claimable(harness: QueueHarness, action: str) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    await harness.queue.set_run(run, action)
    assert await claimable(harness, run) == 0


async def test_nothing_beyond_max_pages_is_claimable(harness: QueueHarness) -> None:
    run = await harness.run(max_pages=2)
    await harness.add(run, pages(5))
    assert await claimable(harness, run) == 2
    await harness.one()
    assert await claimable(harness, run) == 1
    await harness.one()
    assert await claimable(harness, run) == 0


async def test_what_is_claimable_can_be_claimed(harness: QueueHarness) -> None:
    run = await harness.run()
    for lane, pace in {"free.test": UNLIMITED_PACE, "narrow.test": Pace(0.0, 2), "slow.test": Pace(5.0, 0)}.items():
        await harness.add(run, pages(4, lane, lane), pace=pace)
    expected = await claimable(harness, run)
    assert expected == 4 + 2 + 1
    assert len((await harness.claim(100)).tasks) == expected
    assert await claimable(harness, run) == 0


async def test_what_is_claimable_in_very_many_lanes_is_told_from_a_part_of_them(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, [page(f"{n}/{k}", f"{n}.test") for n in range(300) for k in range(2)])
    assert await claimable(harness, run) == 600
    assert {stats.claimable for stats in await harness.queue.stats_of([run] * 100)} == {600}


# what else is counted


async def test_late_answers_are_counted(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.lose("w1")
    for expected in (1, 2):
        await harness.settle(leased)
        assert (await harness.stats(run)).stale == expected


async def test_skips_add_up_over_pages(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(3))
    for leased in (await harness.claim()).tasks:
        await harness.settle(leased, skipped=(("robots", f"{leased.url}/x"), ("scope", f"{leased.url}/y")))
    assert (await harness.stats(run)).skipped == {"robots": 3, "scope": 3}


async def test_skip_samples_are_bounded_though_the_count_is_exact(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    links = tuple(("trap", f"http://a.test/{number}") for number in range(3000))
    await harness.settle(await harness.one(), skipped=links)
    assert (await harness.stats(run)).skipped == {"trap": 3000}
    samples = await harness.queue.skipped(run, limit=10)
    assert len(samples) == 10
    assert set(samples) <= set(links)
