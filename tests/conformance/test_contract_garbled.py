"""Whoever can write to the store may write anything: one such cell stops nobody but its own task or run."""

from __future__ import annotations

import pytest

from conformance.garbling import TASK_CELLS, SqliteVandal, Vandal, vandal_for
from conformance.harness import QueueHarness, failed, outcome, pages
from shoal.core.lane import WorkerStatus
from shoal.core.task import GARBLED

GARBAGE = ["{", "[1]", '{"a":' * 2000, "7", '"x"']


@pytest.fixture
def vandal(harness: QueueHarness) -> Vandal:
    return vandal_for(harness)


@pytest.mark.parametrize("cell", TASK_CELLS)
async def test_a_garbled_task_is_said_to_be_so_and_the_others_are_as_they_were(
    harness: QueueHarness, vandal: Vandal, cell: str
) -> None:
    for text in GARBAGE:
        run = await harness.run(text)
        await harness.add(run, pages(3, meta={"a": 1}))
        (target,) = await harness.queue.ids(run, [pages(2)[1].digest])
        await vandal.garble_task(target, cell, text)
        assert len(await harness.queue.list_tasks(run)) == 3
        claim = await harness.claim()
        assert [task.id for task in claim.tasks if task.garbled] == [target], text[:20]
        assert [task.meta for task in claim.tasks if not task.garbled] == [{"a": 1}, {"a": 1}]
        assert len(await harness.queue.list_tasks(run, state="leased")) == 3
        await harness.queue.settle(
            [outcome(it, "dead", **failed(GARBLED)) if it.garbled else outcome(it) for it in claim.tasks]
        )
        stats = await harness.stats(run)
        assert (stats.done, stats.dead, stats.open) == (2, 1, 0)
        (letter,) = await harness.queue.list_tasks(run, state="dead")
        assert (letter.cause, letter.history[-1].cause) == (GARBLED, GARBLED)
        assert [group.cause for group in await harness.queue.dead_groups(run)] == [GARBLED]


async def test_a_run_with_a_garbled_spec_is_listed_as_such_beside_the_others(
    harness: QueueHarness, vandal: Vandal
) -> None:
    bad, good = await harness.run("bad"), await harness.run("good")
    for text in (*GARBAGE, '{"settings": 3}', '{"began_at": "soon"}', '{"api": []}'):
        await vandal.garble_spec(bad, text)
        runs = {run.id: run for run in await harness.queue.runs()}
        assert runs[bad].garbled and runs[bad].spec == {}, text[:20]
        assert runs[bad].began_at == runs[bad].created_at
        assert not runs[good].garbled
    assert (await harness.queue.set_run(bad, "cancel")).state == "cancelled"


async def test_a_garbled_row_of_the_registry_hides_no_other_worker(harness: QueueHarness, vandal: Vandal) -> None:
    def status(name: str) -> WorkerStatus:
        return WorkerStatus(name, name, "host", 1, "1", 0, 0, serves=("s",))

    for name in ("bad", "good"):
        await harness.queue.register(status(name))
    await vandal.garble_worker("bad", "{")
    assert "good" in [it.id for it in await harness.queue.workers()]
    await harness.queue.register(status("bad"))
    assert {it.id: it.serves for it in await harness.queue.workers()} == {"bad": ("s",), "good": ("s",)}


async def test_tasks_of_a_garbled_lease_go_back(harness: QueueHarness, vandal: Vandal) -> None:
    run = await harness.run()
    await harness.add(run, pages(2))
    lost, kept = await harness.one("w"), await harness.one("v")
    await harness.queue.extend("w", {lost.lease: [lost.id]})
    await vandal.garble_lease(lost.lease, "{")
    await harness.queue.workers()
    await harness.advance(60)
    await harness.queue.reap()
    # One that lost its worker comes alone.
    again = [*(await harness.claim(worker="u")).tasks, *(await harness.claim(worker="u")).tasks]
    assert sorted(task.id for task in again) == sorted([lost.id, kept.id])


async def test_garbled_counters_of_a_run_are_counted_anew(harness: QueueHarness, vandal: Vandal) -> None:
    if not isinstance(vandal, SqliteVandal):
        pytest.skip("it keeps them as numbers")
    run = await harness.run()
    await harness.add(run, pages(2))
    first, second = (await harness.claim()).tasks
    await harness.settle(first, counters={"pages": 5})
    vandal.garble_counters(run, "{")
    assert await harness.queue.run_counters(run) == {}
    await harness.settle(second, counters={"pages": 1})
    assert await harness.queue.run_counters(run) == {"pages": 1}
