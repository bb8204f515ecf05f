"""A shard that hangs: its server has the connections, and answers nothing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest
from servers.redis import RedisServer, own_server
from wait import HANG

from conformance.harness import need, outcome, pages
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.queue.base import Queue
from shoal.queue.shards import ShardedQueue
from shoal.queue.shards import settle as settle_module
from shoal.queue.shards.shard import SHORT_TIMEOUT
from shoal.queue.shards.shard_map import shard_of

CLAIMS = 12


@pytest.fixture
def servers() -> Iterator[list[RedisServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(own_server()) for _ in range(2)]


@pytest.fixture
async def queue(servers: list[RedisServer]) -> AsyncIterator[ShardedQueue]:
    need("hiredis")
    from shoal.queue.redis import RedisQueue

    async def open_shard(url: str) -> Queue:
        return await RedisQueue.open(url)

    queue = await ShardedQueue.open([server.url("hung") for server in servers], open_shard)
    yield queue
    await queue.close()


async def test_a_hung_shard_is_waited_for_once_and_then_left_alone_until_it_answers(
    servers: list[RedisServer], queue: ShardedQueue
) -> None:
    here, there = (next(f"h{n}.test" for n in range(100) if shard_of(f"h{n}.test", 2) == index) for index in (0, 1))
    run = (await queue.start_run(NewRun(scraper="s", key="k"))).id
    tasks = [*pages(2 * CLAIMS, "here", here), *pages(2 * CLAIMS, "there", there)]
    await queue.add(run, tasks, {here: UNLIMITED_PACE, there: UNLIMITED_PACE})
    servers[1].hang()
    began = time.monotonic()
    for _ in range(CLAIMS):
        (leased,) = (await queue.claim("w", 1)).tasks
        assert leased.lane == here
        assert await queue.settle([outcome(leased)]) == ["ok"]
    # Every other claim asks the hung one first: who waited for it each time would need many times as long.
    assert time.monotonic() - began < CLAIMS / 4 * SHORT_TIMEOUT
    assert queue.shards.away == (servers[1].url("hung"),)
    servers[1].resume()
    async with asyncio.timeout(HANG):
        while queue.shards.away:
            await asyncio.sleep(0.02)
    assert {task.lane for task in (await queue.claim("w", 4 * CLAIMS)).tasks} == {here, there}


async def test_a_hung_shard_delays_the_settling_of_others_once(
    servers: list[RedisServer], queue: ShardedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settle_module, "SETTLE_TIMEOUT", 1.0)
    here, there = (next(f"h{n}.test" for n in range(100) if shard_of(f"h{n}.test", 2) == index) for index in (0, 1))
    run = (await queue.start_run(NewRun(scraper="s", key="k"))).id
    tasks = [*pages(CLAIMS, "here", here), *pages(CLAIMS, "there", there)]
    await queue.add(run, tasks, {here: UNLIMITED_PACE, there: UNLIMITED_PACE})
    mine = (await queue.claim("w", 2 * CLAIMS)).tasks
    servers[1].hang()
    began = time.monotonic()
    for one, other in zip(*([it for it in mine if it.lane == lane] for lane in (here, there)), strict=True):
        assert await queue.settle([outcome(one), outcome(other)]) == ["ok", "away"]
    assert time.monotonic() - began < CLAIMS / 4 * settle_module.SETTLE_TIMEOUT
    servers[1].resume()
