"""Another server takes over in the middle of the work: Sentinel, Redis Cluster, PostgreSQL; nodes are really killed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Protocol

import pytest
from servers.postgres_pair import postgres_pair
from servers.redis_nodes import cluster, sentinel_group
from wait import until

from conformance.harness import outcome, pages
from shoal.config.load import load
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import Claim, Task
from shoal.queue.base import Queue
from shoal.queue.document_kinds import FAILOVER
from shoal.queue.failover import LOG, FailoverNote, read_notes
from shoal.queue.reconnect import reconnecting
from shoal.queue.redis.cluster import slot_of
from shoal.queue.registry import OpenOptions, open_queue
from shoal.view.doctor import run_checks

TASKS, LANES, WORKERS = 1_000, 10, 4
SLOT = slot_of("shoal")


class Servers(Protocol):
    def url(self, namespace: str, **words: object) -> str: ...
    def detach(self) -> None: ...
    def fail_over(self) -> None: ...


@contextmanager
def servers_of(kind: str) -> Iterator[Servers]:
    makers: dict[str, Callable[[], Any]] = {
        "sentinel": sentinel_group,
        "sentinel, two replicas": lambda: sentinel_group(replicas=2),
        "cluster, two replicas": lambda: cluster(SLOT, replicas=2),
        "postgres": postgres_pair,
        "synchronous postgres": lambda: postgres_pair(synchronous=True),
    }
    with makers[kind]() as servers:
        yield servers


def work(count: int, prefix: str = "p") -> list[Task]:
    return [task for lane in range(LANES) for task in pages(count // LANES, f"{prefix}{lane}-", f"lane{lane}")]


async def opened(servers: Servers, **words: object) -> Queue:
    return await open_queue(servers.url("shoal", **words), OpenOptions())


async def filled(queue: Queue, count: int) -> int:
    run = (await queue.start_run(NewRun(scraper="s", key="k", name="r"))).id
    await queue.add(run, work(count), {f"lane{lane}": UNLIMITED_PACE for lane in range(LANES)})
    return run


async def settled(queue: Queue, claim: Claim) -> AsyncIterator[str]:
    for verdict in await queue.settle([outcome(task, records=(b"{}",)) for task in claim.tasks]):
        yield verdict


async def last_note(queue: Queue) -> FailoverNote | None:
    notes = read_notes(await queue.document(FAILOVER, LOG))
    return notes[-1] if notes else None


class Crawl:
    """Several workers, each with connections of its own; what was acknowledged is written down."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.executed: Counter[int] = Counter()
        self.acknowledged: set[int] = set()

    async def work(self, queue: Queue, name: str) -> None:
        while (await reconnecting(partial(queue.stats, self.run))).open:
            claim = await reconnecting(partial(queue.claim, name, 10))
            self.executed.update(task.id for task in claim.tasks)
            outcomes = [outcome(task, records=(b'{"n": %d}' % task.id,)) for task in claim.tasks]
            verdicts = await reconnecting(partial(queue.settle, outcomes))
            pairs = zip(claim.tasks, verdicts, strict=True)
            self.acknowledged |= {task.id for task, verdict in pairs if verdict != "stale"}
            await asyncio.sleep(0)

    async def check(self, queue: Queue) -> None:
        """Nothing lost, nothing recorded twice, and all counters add up."""
        stats = await queue.stats(self.run)
        assert (stats.done, stats.open, stats.records) == (TASKS, 0, TASKS)
        assert await queue.recount(self.run) == stats
        records = await queue.records(self.run, limit=2 * TASKS)
        assert len({record.task for record in records}) == len(records) == TASKS
        assert self.acknowledged <= {record.task for record in records}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("sentinel, two replicas", {"replicas": 1}),
        ("cluster, two replicas", {"replicas": 1}),
        ("synchronous postgres", {}),
    ],
)
async def test_a_crawl_goes_on_when_the_primary_is_killed_and_a_confirmed_change_is_never_missing(
    kind: str, words: dict[str, object]
) -> None:
    with servers_of(kind) as servers:
        queues = [await opened(servers, **words) for _ in range(WORKERS)]
        crawl = Crawl(await filled(queues[0], TASKS))
        working = [asyncio.create_task(crawl.work(queue, f"w{n}")) for n, queue in enumerate(queues)]
        await until(lambda: len(crawl.acknowledged) > TASKS // 3, every=0.001)
        before = len(crawl.acknowledged)
        await asyncio.to_thread(servers.fail_over)
        await asyncio.gather(*working)
        await crawl.check(queues[0])
        assert before < TASKS
        await until(lambda: noted_by(queues[0], WORKERS))
        note = await last_note(queues[0])
        assert note is not None and note.repeated and (note.missing, note.again, note.failed) == (0, 0, 0)
        for queue in queues:
            await queue.close()


async def noted_by(queue: Queue, processes: int) -> bool:
    note = await last_note(queue)
    return note is not None and note.processes == processes


@pytest.mark.parametrize("kind", ["sentinel", "postgres"])
async def test_what_an_asynchronous_replica_lacks_is_repeated_counted_and_found_by_doctor(kind: str) -> None:
    with servers_of(kind) as servers:
        queue = await opened(servers)
        run = await filled(queue, 100)
        replicated = await queue.claim("w", 30)
        assert {verdict async for verdict in settled(queue, replicated)} == {"ok"}
        held = await queue.claim("w", 20)
        await asyncio.to_thread(servers.detach)
        assert {verdict async for verdict in settled(queue, held)} == {"ok"}
        lost_too = await queue.claim("w", 10)
        assert {verdict async for verdict in settled(queue, lost_too)} == {"ok"}
        assert await queue.add(run, pages(5, "late", "lane0")) == ["added"] * 5
        await asyncio.to_thread(servers.fail_over)
        assert (await queue.stats(run)).seen >= 100
        await until(lambda: noted_by(queue, 1))
        note = await last_note(queue)
        assert note is not None
        assert (note.missing, note.again, note.failed, note.records) == (25, 10, 0, 30)
        assert set(note.tasks) == {task.id for task in lost_too.tasks} and note.window_ms > 0
        stats = await queue.stats(run)
        assert (stats.seen, stats.done, stats.ready, stats.leased) == (105, 50, 55, 0)
        assert await queue.recount(run) == stats
        report = await run_checks(load({"queue": servers.url("shoal")}, env={}))
        (found,) = [finding for finding in report.findings if finding.what == "fail-over"]
        assert found.level == "warning" and "25 were missing" in found.words and "10" in found.words
        await queue.close()
