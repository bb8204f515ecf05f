"""Hints on PostgreSQL: workers are told of new work, and people of what is wrong with their server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from servers import postgres
from wait import FOREVER, HANG, until

from conformance.harness import outcome, page, pages
from shoal.core.lane import UNLIMITED_PACE
from shoal.core.run import NewRun
from shoal.queue.postgres import PostgresQueue, diagnostics, server_url

NEW = NewRun(scraper="books", key="k", name="run")
numbers = iter(range(10_000))


@pytest.fixture
def url() -> str:
    return postgres.shared().url(f"hint{next(numbers)}")


@pytest.fixture
async def queue(url: str) -> AsyncIterator[PostgresQueue]:
    queue = await PostgresQueue.open(url)
    yield queue
    await queue.close()


@pytest.fixture
async def idle(url: str, queue: PostgresQueue) -> AsyncIterator[PostgresQueue]:
    """Another process, which listens."""
    other = await PostgresQueue.open(url, small=True)
    await other.wait(0.01)
    await until(lambda: other._listener._connection is not None)
    yield other
    await other.close()


async def woken(idle: PostgresQueue) -> None:
    async with asyncio.timeout(HANG):
        await idle.wait(FOREVER)


# new work


async def test_a_worker_that_waits_is_woken_by_new_work(queue: PostgresQueue, idle: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    waiting = asyncio.create_task(woken(idle))
    await asyncio.sleep(0.05)
    await queue.add(run, pages(3), {"a.test": UNLIMITED_PACE})
    await waiting


async def test_links_that_were_found_wake_a_worker(queue: PostgresQueue, idle: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(1), {"a.test": UNLIMITED_PACE})
    await woken(idle)
    (task,) = (await queue.claim("w", 1)).tasks
    waiting = asyncio.create_task(woken(idle))
    await asyncio.sleep(0.05)
    await queue.settle([outcome(task, found=(page("new"),))])
    await waiting


@pytest.mark.parametrize(
    ("replicas", "synchronous", "names", "several", "level"),
    [
        (0, 0, "", False, ""),
        (0, 0, "", True, "warning"),
        (1, 0, "", True, "note"),
        (1, 1, "*", True, "ok"),
        (0, 0, "*", False, "wrong"),
    ],
)
def test_what_a_fail_over_would_lose_is_said(
    replicas: int, synchronous: int, names: str, several: bool, level: str
) -> None:
    row = {"replicas": replicas, "synchronous": synchronous, "standby_names": names}
    assert [finding.level for finding in diagnostics._replicas(row, several)] == ([level] if level else [])


@pytest.mark.parametrize("verb", ["released", "reap", "resume", "revive"])
async def test_work_that_comes_back_wakes_a_worker(queue: PostgresQueue, idle: PostgresQueue, verb: str) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(1), {"a.test": UNLIMITED_PACE})
    await woken(idle)
    (task,) = (await queue.claim("w", 1)).tasks
    if verb == "revive":
        await queue.settle([outcome(task, "dead", cause="x")])
    if verb == "resume":
        await queue.set_run(run, "pause")
    waiting = asyncio.create_task(woken(idle))
    await asyncio.sleep(0.05)
    if verb == "released":
        await queue.settle([outcome(task, "released")])
    elif verb == "reap":
        await queue.reap({"w": []})
    elif verb == "resume":
        await queue.set_run(run, "resume")
    else:
        await queue.revive(run)
    await waiting


async def test_nobody_is_rung_up_while_there_is_work_anyway(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    heard: list[Any] = []
    listener = await queue._engine.connect()
    channel = await queue._engine.value("SELECT 'shoal_' || {s}.lock_namespace()")
    await listener.add_listener(channel, lambda *said: heard.append(said))
    for n in range(5):
        await queue.add(run, pages(4, f"{n}/"), {"a.test": UNLIMITED_PACE})
    claim = await queue.claim("w", 2)
    await queue.settle([outcome(task, found=tuple(pages(3, task.url))) for task in claim.tasks])
    await listener.fetch("SELECT 1")
    await listener.close()
    assert len(heard) == 1


async def test_who_was_cut_off_listens_again(queue: PostgresQueue, idle: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    assert idle._listener._connection is not None
    await queue._engine.rows("SELECT pg_terminate_backend($1)", idle._listener._connection.get_server_pid())
    await until(idle._listener._connection.is_closed)
    await idle.wait(0.01)
    await until(lambda: not idle._listener._connection.is_closed())
    waiting = asyncio.create_task(woken(idle))
    await asyncio.sleep(0.05)
    await queue.add(run, pages(3), {"a.test": UNLIMITED_PACE})
    await waiting


@pytest.mark.parametrize("word", ["listen=0", "statement_cache_size=0"])
async def test_where_listening_is_impossible_waiting_is_sleeping(url: str, word: str) -> None:
    queue = await PostgresQueue.open(f"{url}&{word}")
    began = time.monotonic()
    await queue.wait(0.05)
    assert time.monotonic() - began > 0.04
    assert queue._listener._connection is None and queue._listener._opening is None
    await queue.close()


async def test_a_worker_takes_few_sessions(url: str) -> None:
    assert (server_url.parse(url).connections, server_url.parse(url, small=True).connections) == (3, 2)
    assert server_url.parse(url + "&connections=7", small=True).connections == 7
    small = await PostgresQueue.open(url, small=True)
    await asyncio.gather(*(small.now() for _ in range(20)))
    db = await asyncpg.connect(server_url.parse(url).dsn)
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'shoal' AND query LIKE $1"
    assert await db.fetchval(mine, f"%{small._engine.schema}%") <= 2
    await db.close()
    await small.close()


# what is wrong with the server

GOOD: dict[str, Any] = {
    "version": 150_018, "version_name": "15.18", "fsync": "on", "synchronous_commit": "on",
    "full_page_writes": "on", "autovacuum": "on", "max_connections": 100, "connections": 7, "standby": False,
    "longest": 1.0, "dead": 10, "live": 100,
}  # fmt: skip


def found(**changes: Any) -> dict[str, str]:
    row = {**GOOD, **changes}
    parts = [
        diagnostics._version(row),
        diagnostics._durable(row),
        diagnostics._connections(row, 2),
        diagnostics._cleaning(row),
    ]
    return {finding.what: finding.level for part in parts for finding in part}


def test_a_good_server_has_nothing_wrong() -> None:
    assert set(found().values()) == {"ok"}


@pytest.mark.parametrize(
    ("changes", "what", "level"),
    [
        ({"version": 120_022, "version_name": "12.22"}, "version", "wrong"),
        ({"standby": True}, "standby", "wrong"),
        ({"fsync": "off"}, "fsync", "warning"),
        ({"full_page_writes": "off"}, "full_page_writes", "warning"),
        ({"synchronous_commit": "off"}, "synchronous_commit", "warning"),
        ({"synchronous_commit": "local"}, "durable", "ok"),
        ({"connections": 90}, "connections", "warning"),
        ({"autovacuum": "off"}, "autovacuum", "warning"),
        ({"longest": 1200.0}, "transactions", "warning"),
        ({"dead": 500_000, "live": 1_000}, "dead rows", "warning"),
        ({"dead": 500_000, "live": 900_000}, "cleaning", "ok"),
    ],
)
def test_what_is_wrong_is_found(changes: dict[str, Any], what: str, level: str) -> None:
    assert found(**changes)[what] == level


@pytest.mark.parametrize(("apart", "level"), [(0.1, "ok"), (5.0, "note"), (120.0, "warning")])
def test_clocks_that_are_apart_are_told(apart: float, level: str) -> None:
    assert [finding.level for finding in diagnostics._clock(apart, 0.001)] == [level]


def test_a_schema_of_another_version_is_told() -> None:
    assert [finding.level for part in ((3, 3), (3, 4)) for finding in diagnostics._schema(*part)] == ["ok", "wrong"]


async def test_a_checkup_of_a_real_server(queue: PostgresQueue) -> None:
    findings = {finding.what: finding for finding in await queue.diagnose()}
    assert findings["version"].level == findings["schema"].level == findings["clock"].level == "ok"
    if isinstance(postgres.shared(), postgres.Server):
        assert findings["fsync"].level == "warning" and "fsync" in findings["fsync"].fix
