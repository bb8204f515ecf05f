"""History on PostgreSQL: kept on partitions by the time of its runs, and dropped a shelf at a time."""

from __future__ import annotations

import asyncio

import pytest

from conformance.harness import Opener, QueueHarness, open_postgres, outcome, pages
from shoal.core.task import digest
from shoal.queue.base import Queue, TaskFilter
from shoal.queue.postgres import PostgresQueue, runs

DAY = 86_400.0


@pytest.fixture
def queue_factory() -> Opener:
    return open_postgres


async def rows(harness: QueueHarness, sql: str) -> list[tuple[object, ...]]:
    assert isinstance(harness.queue, PostgresQueue)
    return [tuple(row) for row in await harness.queue._engine.rows(sql)]


async def partitions(harness: QueueHarness) -> list[int]:
    return [row[0] for row in await rows(harness, "SELECT first FROM {s}.partitions ORDER BY first")]  # type: ignore[misc]


async def tables(harness: QueueHarness) -> set[str]:
    assert isinstance(harness.queue, PostgresQueue)
    found = await harness.queue._engine.rows(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1",
        harness.queue._engine.server_url.namespace,
    )
    return {row[0] for row in found}


async def ended(harness: QueueHarness, key: str, count: int = 5) -> int:
    """A run that is done and finished."""
    run = await harness.run(key)
    await harness.add(run, pages(count))
    await harness.settle_all(await harness.claim(count, serves=[f"run-{harness.runs_started}"]), records=(b'{"n":1}',))
    await harness.queue.set_run(run, "finish")
    return run


async def test_runs_of_one_day_share_a_partition(harness: QueueHarness) -> None:
    await ended(harness, "one")
    await harness.advance(DAY / 2)
    await ended(harness, "two")
    assert await partitions(harness) == [0]


async def test_a_run_of_another_day_begins_a_partition(harness: QueueHarness) -> None:
    first = await ended(harness, "one")
    await harness.advance(DAY + 1)
    second = await ended(harness, "two")
    assert await partitions(harness) == [0, 1024]
    assert (first < 1024, second) == (True, 1024)
    for run in (first, second):
        assert (await harness.stats(run)).done == len(await harness.queue.records(run)) == 5
        assert await harness.state_of(run, "p0") == "done"


async def test_a_partition_without_runs_goes_on_being_used(harness: QueueHarness) -> None:
    await harness.queue.purge(run=await ended(harness, "one"))
    await harness.advance(30 * DAY)
    await ended(harness, "two")
    assert await partitions(harness) == [0]


async def test_more_runs_than_a_partition_holds_begin_another(harness: QueueHarness) -> None:
    await rows(harness, "SELECT setval('{s}.run_numbers', 1022)")
    numbers = [await ended(harness, f"{n}", 1) for n in range(3)]
    assert (numbers, await partitions(harness)) == ([1023, 1024, 1025], [0, 1024])


async def test_shelves_do_not_become_many(harness: QueueHarness) -> None:
    for n in range(120):
        await harness.run(f"{n}")
        await harness.advance(DAY + 1)
    assert len(await partitions(harness)) < 60


async def test_retention_drops_a_partition_when_all_its_runs_are_over(harness: QueueHarness) -> None:
    early = [await ended(harness, "one"), await ended(harness, "two")]
    await harness.advance(2 * DAY)
    late = await ended(harness, "three")
    assert {"ended_0", "seen_0", "batches_0", "ended_1024"} <= await tables(harness)
    assert await harness.queue.purge(older_than=DAY) == 2
    assert await partitions(harness) == [1024]
    assert not {"ended_0", "seen_0", "batches_0"} & await tables(harness)
    assert [run.id for run in await harness.queue.runs()] == [late]
    assert len(await harness.queue.records(late)) == 5
    assert not {await harness.queue.find(run, digest("p0")) for run in early} - {None}


async def test_a_large_run_is_revived_and_removed_in_steps(
    harness: QueueHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "REVIVED", 2)
    monkeypatch.setattr(runs, "PURGED", 2)
    run = await harness.run("large")
    await harness.add(run, pages(9))
    for _ in range(2):
        for leased in (await harness.claim(9)).tasks:
            await harness.settle(leased, "dead", cause="http.500")
        assert await harness.queue.revive(run, limit=5) == 5
        assert await harness.queue.revive(run) == 4
        assert await harness.stats(run) == await harness.queue.recount(run)
    for leased in (await harness.claim(9)).tasks:
        await harness.settle(leased, "dead", cause="http.500")
    await harness.queue.set_run(run, "finish")
    assert await harness.queue.purge(run=run) == 1
    for table in ("dead", "dead_groups", "ready", "run_lanes", "counters", "seen", "runs"):
        assert await rows(harness, f"SELECT 1 FROM {{s}}.{table}") == []


async def test_history_of_removed_runs_waits_unseen_for_the_others_of_its_partition(harness: QueueHarness) -> None:
    over = await ended(harness, "over")
    going_on = await harness.run("going on")
    await harness.add(going_on, pages(3))
    held = await harness.claim(1)
    await harness.advance(2 * DAY)
    later = await ended(harness, "later", 1)
    assert await harness.queue.purge(older_than=DAY) == 1
    assert await rows(harness, f"SELECT count(*) FROM {{s}}.ended WHERE id >> 32 = {over}") == [(5,)]
    assert await harness.queue.list_tasks(over) == []
    assert await harness.queue.list_tasks(over, where=TaskFilter(url="p*")) == []
    assert await harness.queue.find(over, digest("p0")) is None
    assert await harness.queue.ids(over, [digest("p0")]) == [0]
    assert await harness.queue.records(over) == []
    assert await harness.queue.records(over, tasks=[over << 32 | 1]) == []
    assert held.tasks
    assert (await harness.stats(later)).done == 1
    await harness.queue.set_run(going_on, "cancel")
    await harness.advance(2 * DAY)
    await harness.queue.purge(older_than=DAY)
    assert "ended_0" not in await tables(harness)


async def test_a_run_that_is_named_leaves_nothing_behind(harness: QueueHarness) -> None:
    named, other = await ended(harness, "named"), await ended(harness, "other")
    assert await harness.queue.purge(run=named) == 1
    for table, run in (("ended", "id >> 32"), ("seen", "run"), ("batches", "run")):
        assert await rows(harness, f"SELECT DISTINCT {run}::integer FROM {{s}}.{table}") == [(other,)]


async def test_the_newest_partition_is_emptied_and_kept(harness: QueueHarness) -> None:
    await ended(harness, "one")
    await harness.advance(10 * DAY)
    assert await harness.queue.purge(older_than=DAY) == 1
    assert await partitions(harness) == [0]
    assert await rows(harness, "SELECT count(*) FROM {s}.seen") == [(0,)]
    assert (await harness.stats(await ended(harness, "two"))).done == 5


async def test_a_partition_that_somebody_reads_is_dropped_next_time(harness: QueueHarness) -> None:
    await ended(harness, "one")
    await harness.advance(2 * DAY)
    await ended(harness, "two")
    other = await harness.open()
    assert isinstance(other, PostgresQueue) and isinstance(harness.queue, PostgresQueue)
    reader = await other._engine.connect()
    try:
        async with reader.transaction():
            await reader.fetch(f"SELECT * FROM {other._engine.schema}.ended LIMIT 1")
            assert await harness.queue.purge(older_than=DAY) == 1
            assert await partitions(harness) == [0, 1024]
    finally:
        await reader.close()
    assert await harness.queue.purge(older_than=DAY) == 0
    assert await partitions(harness) == [1024]


async def test_a_partition_goes_amid_work(harness: QueueHarness) -> None:
    for n in range(3):
        await ended(harness, f"old {n}")
    await harness.advance(2 * DAY)
    run = await harness.run("new")
    await harness.add(run, pages(400))
    handles = [await harness.open() for _ in range(3)]

    async def work(queue: Queue, worker: str) -> None:
        while (claim := await queue.claim(worker, 5)).tasks:
            found = tuple(pages(2, claim.tasks[0].url + "/")) if claim.tasks[0].url.count("/") < 2 else ()
            await queue.settle([outcome(it, records=(b"{}",), found=found) for it in claim.tasks])

    working = [asyncio.create_task(work(queue, f"w{n}")) for n, queue in enumerate(handles)]
    await asyncio.sleep(0.05)
    assert await harness.queue.purge(older_than=DAY) == 3
    assert not all(task.done() for task in working)
    await asyncio.gather(*working)
    assert await partitions(harness) == [1024]
    stats = await harness.stats(run)
    assert stats.done == stats.seen == stats.records > 400
    assert await harness.queue.recount(run) == stats


async def test_live_tables_are_empty_when_all_is_done(harness: QueueHarness) -> None:
    await ended(harness, "one", 200)
    for table in ("ready", "delayed", "leased", "leases"):
        assert await rows(harness, f"SELECT count(*) FROM {{s}}.{table}") == [(0,)]
