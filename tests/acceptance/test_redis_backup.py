"""A backup of Redis: one moment of a queue that is written to all the time, and a pause that ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from servers import redis
from wait import HANG

from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun, Run
from shoal.core.task import Outcome, Task, digest
from shoal.errors import RunBusy
from shoal.queue.redis import RedisQueue
from shoal.queue.redis import backup as redis_backup
from shoal.queue.redis.backup import RedisBackup
from shoal.runs.identity import checked_stats

LANES = 40
WRITERS = 3


async def keep_busy(queue: RedisQueue, run: Run, writer: int) -> None:
    """Every settle changes many keys: lanes, counters, records, the seen-set."""
    for number in range(1_000_000):
        claim = await queue.claim(f"w{writer}", 8)
        found = tuple(
            Task(
                f"http://h{n % LANES}.test/{writer}/{number}/{n}",
                f"h{n % LANES}.test",
                digest(f"{writer}/{number}/{n}"),
            )
            for n in range(8)
        )
        outcomes = [
            Outcome(task=task.id, lease=task.lease, result="done", records=(b"{}",) * 3, found=found if not at else ())
            for at, task in enumerate(claim.tasks)
        ]
        await queue.settle(outcomes, {task.lane: UNLIMITED_PACE for task in found})


async def test_a_backup_is_one_moment_of_a_queue_that_is_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_backup, "SCAN_COUNT", 5)  # so that there is much time between the first and the last key
    url = redis.url("busy")
    queue = await RedisQueue.open(url)
    run = await queue.start_run(NewRun("busy", "key", "busy"))
    starts = [Task(f"http://h{n}.test/", f"h{n}.test", digest(f"{n}")) for n in range(LANES)]
    await queue.add(run.id, starts, {task.lane: UNLIMITED_PACE for task in starts})
    writers = [asyncio.create_task(keep_busy(queue, run, number)) for number in range(WRITERS)]
    try:
        while (await queue.stats(run.id)).done < 100:
            await asyncio.sleep(0.01)
        for number in range(5):
            before = (await queue.stats(run.id)).done
            await RedisBackup(url).save(tmp_path / str(number))
            while (await queue.stats(run.id)).done <= before:  # the pause is over
                await asyncio.sleep(0.01)
    finally:
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)
        await queue.close()
    with redis.own_server() as other:
        target = other.url(url.rpartition("=")[2])
        for number in range(5):
            tool = RedisBackup(target)
            await tool.remove()
            await tool.load(tmp_path / str(number))
            restored = await RedisQueue.open(target)
            stats = await checked_stats(restored, run)
            assert stats.done >= 100 and stats.records == 3 * stats.done
            await restored.close()


async def test_a_backup_that_takes_too_long_lets_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_backup, "PAUSE", 600.0)
    with redis.own_server() as server:
        queue = await RedisQueue.open(server.url("long"))
        with pytest.raises(RunBusy, match="takes longer"):
            await RedisBackup(server.url("long")).save(tmp_path / "queue", max_pause=0.0)
        async with asyncio.timeout(HANG):
            await queue.save_document("kind", "name", "text")
        await queue.close()


async def test_namespaces_with_similar_names_are_left_alone(tmp_path: Path) -> None:
    one, other = redis.url("a?b"), redis.url("axb")
    for url in (one, other):
        queue = await RedisQueue.open(url)
        await queue.save_document("kind", "name", url)
        await queue.close()
    await RedisBackup(one).save(tmp_path / "queue")
    await RedisBackup(one).remove()
    assert await RedisBackup(one).is_empty() and not await RedisBackup(other).is_empty()
    await RedisBackup(one).load(tmp_path / "queue")
    queue = await RedisQueue.open(one)
    document = await queue.document("kind", "name")
    assert document is not None and document.text == one
    await queue.close()
