"""History on PostgreSQL: kept on shelves by the time of its runs, and dropped a shelf at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from conformance.world import World, open_postgres, outcome, pages
from shoal.core.task import digest
from shoal.queue.base import Queue, Where
from shoal.queue.postgres import PostgresQueue, runs

DAY = 86_400.0


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    world = World(open_postgres, tmp_path)
    world.queue = await world.open()
    yield world
    await world.close()


async def rows(world: World, sql: str) -> list[tuple[object, ...]]:
    assert isinstance(world.queue, PostgresQueue)
    return [tuple(row) for row in await world.queue._engine.rows(sql)]


async def shelves(world: World) -> list[int]:
    return [row[0] for row in await rows(world, "SELECT first FROM {s}.shelves ORDER BY first")]  # type: ignore[misc]


async def tables(world: World) -> set[str]:
    assert isinstance(world.queue, PostgresQueue)
    found = await world.queue._engine.rows(
        "SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = $1",
        world.queue._engine.address.namespace,
    )
    return {row[0] for row in found}


async def ended(world: World, key: str, count: int = 5) -> int:
    """A run that is done and finished."""
    run = await world.run(key)
    await world.add(run, pages(count))
    await world.settle_all(
        await world.claim(count, serves=[f"run-{world.runs_started}"]), records=(b'{"n":1}',)
    )
    await world.queue.set_run(run, "finish")
    return run


async def test_runs_of_one_day_share_a_shelf(world: World) -> None:
    await ended(world, "one")
    await world.advance(DAY / 2)
    await ended(world, "two")
    assert await shelves(world) == [0]


async def test_a_run_of_another_day_begins_a_shelf(world: World) -> None:
    first = await ended(world, "one")
    await world.advance(DAY + 1)
    second = await ended(world, "two")
    assert await shelves(world) == [0, 1024]
    assert (first < 1024, second) == (True, 1024)
    for run in (first, second):
        assert (await world.stats(run)).done == len(await world.queue.records(run)) == 5
        assert await world.state_of(run, "p0") == "done"


async def test_a_shelf_without_runs_goes_on_being_used(world: World) -> None:
    await world.queue.purge(run=await ended(world, "one"))
    await world.advance(30 * DAY)
    await ended(world, "two")
    assert await shelves(world) == [0]


async def test_more_runs_than_a_shelf_holds_begin_another(world: World) -> None:
    await rows(world, "SELECT setval('{s}.run_numbers', 1022)")
    numbers = [await ended(world, f"{n}", 1) for n in range(3)]
    assert (numbers, await shelves(world)) == ([1023, 1024, 1025], [0, 1024])


async def test_shelves_do_not_become_many(world: World) -> None:
    for n in range(120):
        await world.run(f"{n}")
        await world.advance(DAY + 1)
    assert len(await shelves(world)) < 60


async def test_retention_drops_a_shelf_when_all_its_runs_are_over(world: World) -> None:
    early = [await ended(world, "one"), await ended(world, "two")]
    await world.advance(2 * DAY)
    late = await ended(world, "three")
    assert {"ended_0", "seen_0", "batches_0", "ended_1024"} <= await tables(world)
    assert await world.queue.purge(older_than=DAY) == 2
    assert await shelves(world) == [1024]
    assert not {"ended_0", "seen_0", "batches_0"} & await tables(world)
    assert [run.id for run in await world.queue.runs()] == [late]
    assert len(await world.queue.records(late)) == 5
    assert not {await world.queue.find(run, digest("p0")) for run in early} - {None}


async def test_a_large_run_is_revived_and_removed_in_steps(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "REVIVED", 2)
    monkeypatch.setattr(runs, "PURGED", 2)
    run = await world.run("large")
    await world.add(run, pages(9))
    for _ in range(2):
        for leased in (await world.claim(9)).tasks:
            await world.settle(leased, "dead", cause="http.500")
        assert await world.queue.revive(run, limit=5) == 5
        assert await world.queue.revive(run) == 4
        assert await world.stats(run) == await world.queue.recount(run)
    for leased in (await world.claim(9)).tasks:
        await world.settle(leased, "dead", cause="http.500")
    await world.queue.set_run(run, "finish")
    assert await world.queue.purge(run=run) == 1
    for table in ("dead", "dead_groups", "ready", "heads", "counters", "seen", "runs"):
        assert await rows(world, f"SELECT 1 FROM {{s}}.{table}") == []


async def test_history_of_removed_runs_waits_unseen_for_the_others_of_its_shelf(world: World) -> None:
    over = await ended(world, "over")
    going_on = await world.run("going on")
    await world.add(going_on, pages(3))
    held = await world.claim(1)
    await world.advance(2 * DAY)
    later = await ended(world, "later", 1)
    assert await world.queue.purge(older_than=DAY) == 1
    assert await rows(world, f"SELECT count(*) FROM {{s}}.ended WHERE id >> 32 = {over}") == [(5,)]
    assert await world.queue.look(over) == []
    assert await world.queue.look(over, where=Where(url="p*")) == []
    assert await world.queue.find(over, digest("p0")) is None
    assert await world.queue.ids(over, [digest("p0")]) == [0]
    assert await world.queue.records(over) == []
    assert await world.queue.records(over, tasks=[over << 32 | 1]) == []
    assert held.tasks
    assert (await world.stats(later)).done == 1
    await world.queue.set_run(going_on, "cancel")
    await world.advance(2 * DAY)
    await world.queue.purge(older_than=DAY)
    assert "ended_0" not in await tables(world)


async def test_a_run_that_is_named_leaves_nothing_behind(world: World) -> None:
    named, other = await ended(world, "named"), await ended(world, "other")
    assert await world.queue.purge(run=named) == 1
    for table, run in (("ended", "id >> 32"), ("seen", "run"), ("batches", "run")):
        assert await rows(world, f"SELECT DISTINCT {run}::integer FROM {{s}}.{table}") == [(other,)]


async def test_the_newest_shelf_is_emptied_and_kept(world: World) -> None:
    await ended(world, "one")
    await world.advance(10 * DAY)
    assert await world.queue.purge(older_than=DAY) == 1
    assert await shelves(world) == [0]
    assert await rows(world, "SELECT count(*) FROM {s}.seen") == [(0,)]
    assert (await world.stats(await ended(world, "two"))).done == 5


async def test_a_shelf_that_somebody_reads_is_dropped_next_time(world: World) -> None:
    await ended(world, "one")
    await world.advance(2 * DAY)
    await ended(world, "two")
    other = await world.open()
    assert isinstance(other, PostgresQueue) and isinstance(world.queue, PostgresQueue)
    reader = await other._engine.connect()
    try:
        async with reader.transaction():
            await reader.fetch(f"SELECT * FROM {other._engine.schema}.ended LIMIT 1")
            assert await world.queue.purge(older_than=DAY) == 1
            assert await shelves(world) == [0, 1024]
    finally:
        await reader.close()
    assert await world.queue.purge(older_than=DAY) == 0
    assert await shelves(world) == [1024]


async def test_a_shelf_goes_amid_work(world: World) -> None:
    for n in range(3):
        await ended(world, f"old {n}")
    await world.advance(2 * DAY)
    run = await world.run("new")
    await world.add(run, pages(400))
    handles = [await world.open() for _ in range(3)]

    async def work(queue: Queue, worker: str) -> None:
        while (claim := await queue.claim(worker, 5)).tasks:
            found = tuple(pages(2, claim.tasks[0].url + "/")) if claim.tasks[0].url.count("/") < 2 else ()
            await queue.settle([outcome(it, records=(b"{}",), found=found) for it in claim.tasks])

    working = [asyncio.create_task(work(queue, f"w{n}")) for n, queue in enumerate(handles)]
    await asyncio.sleep(0.05)
    assert await world.queue.purge(older_than=DAY) == 3
    assert not all(task.done() for task in working)
    await asyncio.gather(*working)
    assert await shelves(world) == [1024]
    stats = await world.stats(run)
    assert stats.done == stats.seen == stats.records > 400
    assert await world.queue.recount(run) == stats


async def test_live_tables_are_empty_when_all_is_done(world: World) -> None:
    await ended(world, "one", 200)
    for table in ("ready", "delayed", "leased", "leases"):
        assert await rows(world, f"SELECT count(*) FROM {{s}}.{table}") == [(0,)]
