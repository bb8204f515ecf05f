"""Reap on PostgreSQL waits for locks: what comes in meanwhile counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import asyncpg
from fake_clock import FakeClock
from servers import postgres
from wait import until

from conformance.harness import pages
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import digest
from shoal.queue.postgres import PostgresQueue, server_url

WAITS_FOR_US = (
    "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND pg_backend_pid() = ANY (pg_blocking_pids(pid))"
)


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

            async def reap_waits() -> bool:
                return await db.fetchval(WAITS_FOR_US) is not None

            await until(reap_waits)
            clock.step(-2)  # when the heartbeat was sent, which took longer on its way
            assert not (await queue.extend("w", {claim.lease: []}, lease=10.0)).lost
        assert (await reaping).returned == 0
        assert (await queue.stats(run)).leased == 2
    finally:
        await db.close()
        await queue.close()
