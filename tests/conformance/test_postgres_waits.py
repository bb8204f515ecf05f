"""What PostgreSQL waits for: what comes in meanwhile counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
from fake_clock import FakeClock
from servers import postgres
from wait import HANG, until

from conformance.harness import pages
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import SHORT_DIGEST, LeasedTask, Outcome, digest
from shoal.queue.postgres import PostgresQueue, server_url

WAITS_FOR_US = (
    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
)


def done(leased: LeasedTask) -> Outcome:
    return Outcome(task=leased.id, lease=leased.lease, result="done", records=(b"{}",))


def waits_for(db: asyncpg.Connection) -> Callable[[], Awaitable[bool]]:
    async def waits() -> bool:
        return await db.fetchval(WAITS_FOR_US) is not None

    return waits


async def test_a_task_that_somebody_else_adds_meanwhile_is_known_and_the_others_are_added(tmp_path: Path) -> None:
    namespace = "m" + digest(str(tmp_path)).hex()
    url = postgres.shared().url(namespace, connections=2)
    queue = await PostgresQueue.open(url)
    db = await asyncpg.connect(server_url.parse(url).dsn)
    try:
        run = (await queue.start_run(NewRun(scraper="books", key="k", name="run"))).id
        tasks = pages(5)
        async with db.transaction():
            await db.execute(f'INSERT INTO "{namespace}".seen VALUES ($1, $2, -1)', run, tasks[2].digest[:SHORT_DIGEST])
            adding = asyncio.create_task(queue.add(run, tasks, {"a.test": UNLIMITED_PACE}))
            await until(waits_for(db))
        assert await adding == ["added", "added", "known", "added", "added"]
        stats = await queue.stats(run)
        assert (stats.seen, stats.ready) == (4, 4)
        assert [task.url for task in (await queue.claim("w", 9)).tasks] == [tasks[n].url for n in (0, 1, 3, 4)]
    finally:
        await db.close()
        await queue.close()


async def test_a_heartbeat_that_comes_in_while_reap_waits_is_heeded(tmp_path: Path) -> None:
    namespace, clock = "r" + digest(str(tmp_path)).hex(), FakeClock()
    url = postgres.shared().url(namespace, connections=2)
    queue = await PostgresQueue.open(url, clock=clock)
    db = await asyncpg.connect(server_url.parse(url).dsn)
    try:
        run = (await queue.start_run(NewRun(scraper="books", key="k", name="run"))).id
        await queue.add(run, pages(2), {"a.test": UNLIMITED_PACE})
        claim = await queue.claim("w", 2, lease=10.0)
        async with db.transaction():
            await db.execute(f'SELECT 1 FROM "{namespace}".lanes FOR NO KEY UPDATE')
            clock.step(11)
            reaping = asyncio.create_task(queue.reap())
            await until(waits_for(db))
            clock.step(-2)  # when the heartbeat was sent, which took longer on its way
            assert not (await queue.extend("w", {claim.lease: []}, lease=10.0)).lost
        assert (await reaping).returned == 0
        assert (await queue.stats(run)).leased == 2
    finally:
        await db.close()
        await queue.close()


async def test_what_is_being_settled_when_its_lease_has_expired_is_not_waited_for(tmp_path: Path) -> None:
    namespace, clock = "s" + digest(str(tmp_path)).hex(), FakeClock()
    url = postgres.shared().url(namespace, connections=3)
    queue = await PostgresQueue.open(url, clock=clock)
    db = await asyncpg.connect(server_url.parse(url).dsn)
    try:
        run = (await queue.start_run(NewRun(scraper="books", key="k", name="run"))).id
        await queue.add(run, pages(3), {"a.test": UNLIMITED_PACE})
        claim = await queue.claim("w", 3, lease=10.0)
        first, second, _ = claim.tasks
        clock.step(11)
        async with db.transaction():
            await db.execute(f'SELECT 1 FROM "{namespace}".leased WHERE id = $1 FOR UPDATE', second.id)
            settling = asyncio.create_task(queue.settle([done(first), done(second)]))
            await until(waits_for(db))  # it has the first, and will want the lane
            async with asyncio.timeout(HANG):
                assert (await queue.reap()).returned == 1
        assert await settling == ["ok", "ok"]
        stats = await queue.stats(run)
        assert (stats.done, stats.ready, stats.leased) == (2, 1, 0)
        assert stats == await queue.recount(run)
    finally:
        await db.close()
        await queue.close()
