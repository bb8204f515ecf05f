"""PostgreSQL behind a real PgBouncer that gives every transaction another session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_clock import FakeClock
from servers import postgres

from conformance.harness import outcome, page, pages
from conformance.state_machine import drive
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.core.task import digest
from shoal.queue.base import Queue
from shoal.queue.postgres import PostgresQueue

NEW = NewRun(scraper="books", key="k", name="run")


@pytest.fixture(scope="module")
def pooler() -> Iterator[postgres.Pooler]:
    server = postgres.shared()
    if not isinstance(server, postgres.Server):
        pytest.skip("a server kept by somebody else is not put behind PgBouncer")
    try:
        pooler = postgres.Pooler(server)
    except postgres.ServerMissing as missing:
        pytest.skip(str(missing))
    yield pooler
    pooler.remove()


async def work(queue: PostgresQueue, worker: str, run: int) -> int:
    done = 0
    while True:
        claim = await queue.claim(worker, 7)
        if claim.tasks:
            done += (await queue.settle([outcome(it, records=(b"{}",)) for it in claim.tasks])).count("ok")
        elif not (await queue.stats(run)).open:
            return done
        else:
            await asyncio.sleep(0.005)


async def test_many_workers_share_few_sessions(pooler: postgres.Pooler) -> None:
    queues = [await PostgresQueue.open(pooler.url("pooled"), small=True) for _ in range(8)]
    run = (await queues[0].start_run(NEW)).id
    lanes = [f"{n}.test" for n in range(6)]
    await queues[0].add(run, [page(f"p{n}", lanes[n % 6]) for n in range(600)], dict.fromkeys(lanes, UNLIMITED_PACE))
    done = await asyncio.gather(*(work(each, f"w{n}", run) for n, each in enumerate(queues)))
    stats = await queues[0].stats(run)
    assert (sum(done), stats.done, stats.records, stats.leased) == (600, 600, 600, 0)
    assert stats == await queues[0].recount(run)
    for queue in queues:
        await queue.close()


async def test_waiting_is_sleeping_and_a_checkup_says_so(pooler: postgres.Pooler) -> None:
    queue = await PostgresQueue.open(pooler.url("checked"))
    await queue.wait(0.01)
    findings = {finding.what: finding.level for finding in await queue.diagnose()}
    assert (findings["schema"], findings["wake-ups"]) == ("ok", "note")
    await queue.close()


async def test_every_verb_works_through_it(pooler: postgres.Pooler) -> None:
    queue = await PostgresQueue.open(pooler.url("verbs"))
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(4), {"a.test": UNLIMITED_PACE})
    claim = await queue.claim("w", 3, request_id="r")
    assert (await queue.claim("w", 3, request_id="r")).lease == claim.lease
    await queue.extend("w", {claim.lease: [claim.tasks[0].id]})
    await queue.settle([outcome(claim.tasks[0], records=(b"{}",), found=(page("new"),))])
    await queue.settle([outcome(claim.tasks[1], "dead", cause="x")])
    await queue.reap({"w": []})
    await queue.reserve("b.test")
    assert len(await queue.list_tasks(run)) == 5
    assert await queue.revive(run) == 1
    assert await queue.trim(run, (await queue.records(run))[-1].seq) == 1
    await queue.set_run(run, "pause")
    carried = await queue.export_run(run)
    there = (await queue.start_run(NewRun(scraper="books", key="there", name="there"))).id
    await queue.set_run(there, "pause")
    await queue.import_run(there, carried, paces={"a.test": UNLIMITED_PACE})
    assert (await queue.stats(there)).seen == 5
    assert await queue.compare_and_swap("lock", "books", "me", 0) is not None
    await queue.set_run(there, "cancel")
    assert await queue.purge(run=there) == 1
    await queue.close()


def test_the_state_machine_is_content_behind_a_pooler(pooler: postgres.Pooler) -> None:
    async def open_pooled(folder: Path, clock: FakeClock) -> Queue:
        return await PostgresQueue.open(pooler.url("t" + digest(str(folder)).hex()), clock=clock)

    drive(lambda: open_pooled, examples=4, steps=30)
