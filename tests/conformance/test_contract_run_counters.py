"""Counters of a run: what outcomes count by name, exactly where they count, and bounded."""

from __future__ import annotations

import pytest

from conformance.harness import QueueHarness, outcome, page, pages
from shoal.core.task import digest
from shoal.errors import UsageError
from shoal.queue.base import MAX_COUNTER_NAMES

FETCHED = {"fetch.http.direct.bytes": 100, "fetch.http.direct.us": 5}


async def test_what_outcomes_count_is_summed_by_name(harness: QueueHarness) -> None:
    run, other = await harness.run(), await harness.run("other")
    await harness.add(run, pages(3))
    await harness.add(other, [page("of the other")])
    assert await harness.queue.run_counters(run) == {}
    tasks = (await harness.claim()).tasks
    await harness.queue.settle([outcome(task, counters=FETCHED | {"field.price.number": 2}) for task in tasks])
    assert await harness.queue.run_counters(run) == {
        "fetch.http.direct.bytes": 300, "fetch.http.direct.us": 15, "field.price.number": 6,
    }  # fmt: skip
    assert (await harness.queue.run_counters(other))["fetch.http.direct.bytes"] == 100


async def test_every_attempt_that_is_taken_counts_and_records_count_with_what_is_done(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(5))
    results = ["done", "retry", "dead", "released", "cancelled"]
    for task, result in zip((await harness.claim()).tasks, results, strict=True):
        await harness.settle(task, result, after=60.0, cause="x", counters={"tries": 1, "field.a.string": 1})
    assert await harness.queue.run_counters(run) == {"tries": 5, "field.a.string": 1}


async def test_a_part_counts_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    assert await harness.settle(leased, "part", counters=FETCHED) == "ok"
    assert await harness.queue.run_counters(run) == {}


async def test_answers_that_do_not_count_count_nothing(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    one, two = (await harness.claim(lease=5.0)).tasks
    await harness.advance(6)
    await harness.queue.reap()
    again = await harness.one()
    good = outcome(again, counters=FETCHED)
    assert await harness.queue.settle([outcome(one, counters=FETCHED), good, outcome(two, counters=FETCHED)]) == [
        "stale", "ok", "stale",
    ]  # fmt: skip
    assert await harness.queue.settle([good]) == ["already"]
    assert await harness.queue.run_counters(run) == FETCHED


async def test_a_page_that_is_another_counts_without_its_records(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a b")
    one, two = (await harness.claim()).tasks
    both = FETCHED | {"field.a.string": 1}
    await harness.settle(one, counters=both)
    await harness.settle(two, counters=both, records=(b"{}",), redirect_digest=digest(one.url))
    assert await harness.queue.run_counters(run) == {name: 2 * n for name, n in FETCHED.items()} | {"field.a.string": 1}


async def test_a_late_answer_of_a_cancelled_run_counts_with_its_records(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    await harness.queue.set_run(run, "cancel")
    assert await harness.settle(leased, counters={"field.a.string": 1}, records=(b"{}",)) == "ok"
    assert await harness.queue.run_counters(run) == {"field.a.string": 1}


async def test_names_beyond_the_bound_are_summed_under_other(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, pages(4))
    tasks = (await harness.claim()).tasks
    for at, task in enumerate(tasks[:2]):
        await harness.settle(task, counters={f"n{at}.{n}": 1 for n in range(150)})
    found = await harness.queue.run_counters(run)
    assert len(found) == MAX_COUNTER_NAMES + 1
    assert found["other"] == 100 and sum(found.values()) == 300
    assert all(found[f"n0.{n}"] == 1 for n in range(150)), "the first stay"
    await harness.queue.settle([
        outcome(task, counters={"n0.7": 1, "new": 5, "other": 1}) for task in tasks[2:]
    ])  # fmt: skip
    found = await harness.queue.run_counters(run)
    assert (found["n0.7"], found["other"], len(found)) == (3, 112, MAX_COUNTER_NAMES + 1)


@pytest.mark.parametrize("counters", [{"n" * 101: 1}, {"n": -1}, {"n": 2**53 + 2}])
async def test_what_no_store_can_count_leaves_nothing_behind(harness: QueueHarness, counters: dict[str, int]) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    leased = await harness.one()
    with pytest.raises(ValueError, match="counters"):
        await harness.queue.settle([outcome(leased, counters=counters)])
    assert (await harness.stats(run)).leased == 1
    assert await harness.settle(leased, counters={"n": 2**53, "\u00e9 .\"'": 0}) == "ok"
    assert await harness.queue.run_counters(run) == {"n": 2**53, "\u00e9 .\"'": 0}


async def test_many_batches_are_counted_exactly(harness: QueueHarness) -> None:
    """More than a store puts together at once."""
    run = await harness.run()
    await harness.add(run, pages(150))
    for at, task in enumerate((await harness.claim(150)).tasks):
        await harness.settle(task, counters={"n": 1, f"of {at % 7}": 1})
    found = await harness.queue.run_counters(run)
    assert found == {"n": 150} | {f"of {n}": 22 if n < 3 else 21 for n in range(7)}


async def test_counters_go_with_their_run(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.settle(await harness.one(), counters=FETCHED)
    await harness.queue.set_run(run, "finish")
    assert await harness.queue.run_counters(run) == FETCHED
    await harness.queue.purge(run=run)
    with pytest.raises(UsageError):
        await harness.queue.run_counters(run)


async def test_counters_are_moved_and_go_on(harness: QueueHarness) -> None:
    run = await harness.run()
    await harness.add(run, "a")
    await harness.queue.set_run(run, "pause")
    for _ in range(2):
        await harness.queue.import_run(run, (), counters=FETCHED | {"field.a.string": 7})
    await harness.queue.set_run(run, "resume")
    await harness.settle(await harness.one(), counters=FETCHED)
    assert await harness.queue.run_counters(run) == {name: 2 * n for name, n in FETCHED.items()} | {"field.a.string": 7}
