"""What PostgreSQL adds: cut sessions, restarts, shared sessions, many at once, plans of queries."""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncpg
import pytest
from servers import postgres
from servers.ports import free_port
from wait import HANG

from conformance.harness import QueueHarness, open_postgres, outcome, page, pages
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.errors import QueueRefused, QueueUnavailable
from shoal.queue.postgres import PostgresQueue, migrate, server_url

NEW = NewRun(scraper="books", key="k", name="run")
numbers = iter(range(10_000))


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    return f"own{next(numbers)}_{abs(hash(request.node.name)) % 10**9}"


@pytest.fixture
async def queue(namespace: str) -> AsyncIterator[PostgresQueue]:
    queue = await PostgresQueue.open(postgres.shared().url(namespace))
    yield queue
    await queue.close()


@pytest.fixture
async def admin(namespace: str) -> AsyncIterator[asyncpg.Connection]:
    db = await asyncpg.connect(server_url.parse(postgres.shared().url(namespace)).dsn)
    yield db
    await db.close()


async def cut_sessions(admin: asyncpg.Connection) -> int:
    """End every session but our own, as an operator or a fail-over would; says how many."""
    return len(
        await admin.fetch(
            """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'shoal' AND pid <> pg_backend_pid()"""
        )
    )


async def work(
    queue: PostgresQueue, worker: str, run: int, limit: int = 7, *, on_settled: Callable[[], None] = lambda: None
) -> int:
    """Claim and settle until nothing is open; how many were settled by this worker."""
    done = 0
    while True:
        claim = await queue.claim(worker, limit)
        if claim.tasks:
            answers = await queue.settle([outcome(task, records=(b"{}",)) for task in claim.tasks])
            done += answers.count("ok")
            on_settled()
        elif not (await queue.stats(run)).open:
            return done
        else:
            await asyncio.sleep(0.005)


# sessions and servers come and go


async def test_a_cut_session_is_not_noticed(queue: PostgresQueue, admin: asyncpg.Connection) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(4), {"a.test": UNLIMITED_PACE})
    assert await cut_sessions(admin) >= 1
    claim = await queue.claim("w", 4)
    await cut_sessions(admin)
    assert await queue.settle([outcome(task) for task in claim.tasks]) == ["ok"] * 4
    await cut_sessions(admin)
    assert (await queue.stats(run)).done == 4


async def test_work_goes_on_while_sessions_are_cut_again_and_again(
    queue: PostgresQueue, admin: asyncpg.Connection, namespace: str
) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(
        run, [page(f"p{n}", f"{n % 5}.test") for n in range(600)], {f"{n}.test": UNLIMITED_PACE for n in range(5)}
    )
    other = await PostgresQueue.open(postgres.shared().url(namespace))

    settled = asyncio.Event()

    async def saboteur() -> None:
        """Cuts as soon as something was settled, however long that takes here."""
        while True:
            await settled.wait()
            settled.clear()
            await asyncio.sleep(0.05)
            await cut_sessions(admin)

    cutting = asyncio.create_task(saboteur())
    try:
        workers = [work(each, name, run, on_settled=settled.set) for each, name in ((queue, "w1"), (other, "w2"))]
        await asyncio.wait_for(asyncio.gather(*workers), 100)
    finally:
        cutting.cancel()
    stats = await queue.stats(run)
    assert (stats.done, stats.records, stats.leased, stats.stale) == (600, 600, 0, 0)
    assert stats == await queue.recount(run)
    await other.close()


@pytest.fixture
def own_server() -> Iterator[postgres.Server]:
    try:
        server = postgres.Server(durable=True)  # or a crash would undo what was acknowledged
    except postgres.ServerMissing as missing:
        pytest.skip(str(missing))
    yield server
    server.remove()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["stopped", "crashed"])
async def test_a_restarted_server_is_found_again(own_server: postgres.Server, how: signal.Signals) -> None:
    queue = await PostgresQueue.open(own_server.url())
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(3), {"a.test": UNLIMITED_PACE})
    own_server.stop(how)
    asking = asyncio.create_task(queue.claim("w", 3))
    await asyncio.sleep(0.2)
    assert not asking.done()
    await asyncio.to_thread(own_server.start)
    claim = await asyncio.wait_for(asking, HANG)
    assert len(claim.tasks) == 3
    assert await queue.settle([outcome(task) for task in claim.tasks]) == ["ok"] * 3
    await queue.close()


async def test_a_server_killed_amid_work_loses_and_duplicates_nothing(own_server: postgres.Server) -> None:
    queue, other = [await PostgresQueue.open(own_server.url()) for _ in range(2)]
    run = (await queue.start_run(NEW)).id
    lanes = [f"{n}.test" for n in range(5)]
    await queue.add(run, [page(f"p{n}", lanes[n % 5]) for n in range(1500)], dict.fromkeys(lanes, UNLIMITED_PACE))
    working = asyncio.gather(work(queue, "w1", run), work(other, "w2", run))
    for done in (200, 700):
        while (await queue.stats(run)).done < done:
            await asyncio.sleep(0.005)
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
    await asyncio.wait_for(working, 60)
    stats = await queue.stats(run)
    assert (stats.done, stats.records, stats.leased) == (1500, 1500, 0)
    assert stats == await queue.recount(run)
    assert len({record.task for record in await queue.records(run, limit=2000)}) == 1500
    assert [lane.in_flight for lane in await queue.lanes()] == [0] * 5
    for each in (queue, other):
        await each.close()


async def test_a_lease_of_five_minutes_is_kept_for_five_minutes(tmp_path: Path) -> None:
    harness = QueueHarness(open_postgres, tmp_path)
    harness.queue = await harness.open()
    run = await harness.run()
    await harness.add(run, "a")
    claim = await harness.claim(lease=300.0)
    await harness.advance(299)
    assert (await harness.queue.reap()).returned == 0
    await harness.queue.extend("w1", {claim.lease: []}, lease=300.0)
    await harness.advance(299)
    assert await harness.settle(claim.tasks[0], "retry", cause="x") == "ok"
    for attempt in (1, 2, 3):  # three retries, should the worker want them
        leased = await harness.one()
        assert leased.attempts == attempt
        assert await harness.settle(leased, "retry" if attempt < 3 else "dead", cause="x") == "ok"
    assert (await harness.stats(run)).dead == 1
    await harness.close()


async def test_a_server_that_is_not_there_is_said_to_be_unreachable() -> None:
    with pytest.raises(QueueUnavailable, match="cannot be reached") as caught:
        await PostgresQueue.open(f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    assert caught.value.hint


async def test_a_database_that_is_not_there_is_refused() -> None:
    url = postgres.shared().url("x").replace("/postgres?", "/no_such_database?")
    with pytest.raises(QueueRefused, match="does not exist"):
        await PostgresQueue.open(url)


async def test_a_closed_queue_says_so(queue: PostgresQueue) -> None:
    await queue.close()
    with pytest.raises(QueueUnavailable, match="closed"):
        await queue.now()


# behind a pooler that gives every transaction another session


async def test_nothing_is_left_behind_in_a_session(queue: PostgresQueue, admin: asyncpg.Connection) -> None:
    """As with PgBouncer's transaction pooling: whatever a call sets is gone when it ends."""
    run = (await queue.start_run(NEW)).id

    async def settings(db: asyncpg.Connection) -> list[object]:
        # The driver sets jit for itself, and back.
        rows = await db.fetch("SELECT name, setting FROM pg_settings WHERE source = 'session' AND name <> 'jit'")
        locks = await db.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()"
        )
        return [[tuple(row) for row in rows], locks]

    before = await queue._engine._retry(settings)
    await queue.add(run, pages(5), {"a.test": UNLIMITED_PACE})
    claim = await queue.claim("w", 5)
    await queue.extend("w", {claim.lease: []})
    await queue.settle([outcome(task) for task in claim.tasks])
    await queue.reserve("a.test")
    await queue.reap({"w": []})
    assert await queue._engine._retry(settings) == before


async def test_it_works_without_prepared_statements_on_shared_sessions(namespace: str) -> None:
    url = postgres.shared().url(namespace, statement_cache_size=0, connections=3)
    queue = await PostgresQueue.open(url)
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(60), {"a.test": UNLIMITED_PACE})
    done = await asyncio.gather(*(work(queue, f"w{n}", run) for n in range(3)))
    assert sum(done) == 60
    await queue.close()


# many at once


async def test_many_workers_at_once_lose_nothing_and_duplicate_nothing(queue: PostgresQueue, namespace: str) -> None:
    run = (await queue.start_run(NEW)).id
    lanes = [f"{n}.test" for n in range(6)]
    await queue.add(run, [page(f"p{n}", lanes[n % 6]) for n in range(900)], dict.fromkeys(lanes, UNLIMITED_PACE))
    others = [await PostgresQueue.open(postgres.shared().url(namespace)) for _ in range(4)]
    done = await asyncio.gather(*(work(each, f"w{n}", run, 11) for n, each in enumerate(others)))
    assert sum(done) == 900
    stats = await queue.stats(run)
    assert (stats.done, stats.records, stats.leased) == (900, 900, 0)
    assert stats == await queue.recount(run)
    assert [lane.in_flight for lane in await queue.lanes()] == [0] * 6
    for other in others:
        await other.close()


async def test_limits_in_flight_hold_with_many_claims_at_once(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(100), {"a.test": Pace(0.0, 3)})
    claims = await asyncio.gather(*(queue.claim(f"w{n}", 10) for n in range(8)))
    assert sum(len(claim.tasks) for claim in claims) == 3
    assert (await queue.lanes())[0].in_flight == 3


async def test_slots_stay_apart_with_many_claims_at_once(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(100), {"a.test": Pace(0.2, 0)})
    await asyncio.gather(*(queue.claim(f"w{n}", 2) for n in range(8)))
    slots = sorted(row[0] for row in await queue._engine.rows("SELECT slot FROM {s}.leased"))
    assert len(slots) >= 2
    assert min(later - earlier for earlier, later in itertools.pairwise(slots)) >= 200_000


async def test_a_page_limit_holds_with_many_claims_at_once(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NewRun(scraper="books", key="k", name="run", max_pages=5))).id
    await queue.add(run, pages(100), {"a.test": UNLIMITED_PACE})
    claims = await asyncio.gather(*(queue.claim(f"w{n}", 4) for n in range(6)))
    assert sum(len(claim.tasks) for claim in claims) == 5


@pytest.mark.parametrize(
    ("pace", "in_one_step"), [(UNLIMITED_PACE, True), (Pace(0.0001, 0), False), (Pace(0.0, 50), False)]
)
async def test_work_without_limits_is_claimed_in_one_step(queue: PostgresQueue, pace: Pace, in_one_step: bool) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(60), {"a.test": pace})
    claims = [await queue.claim("w", 4, request_id=f"r{n}") for n in range(8)]
    assert all(claim.tasks for claim in claims)
    assert (queue._engine.fast_path._misses == 0) == in_one_step
    again = await queue.claim("w", 4, request_id="r7")
    assert [task.id for task in again.tasks] == [task.id for task in claims[7].tasks]


async def test_lease_numbers_of_claims_at_once_are_all_different(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(
        run, [page(f"p{n}", f"{n % 20}.test") for n in range(200)], {f"{n}.test": UNLIMITED_PACE for n in range(20)}
    )
    claims = await asyncio.gather(*(queue.claim(f"w{n}", 5) for n in range(10)))
    leases = [claim.lease for claim in claims if claim.tasks]
    assert len(leases) >= 5
    assert len(set(leases)) == len(leases)


async def test_links_found_by_many_pages_at_once_are_added_once(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(40), {"a.test": UNLIMITED_PACE})
    tasks = (await queue.claim("w", 40)).tasks
    found = pages(50, "found") + [page(f"n{n}", f"new{n}.test") for n in range(10)]
    orders = [found, found[::-1]]
    await asyncio.gather(*(
        queue.settle([outcome(task, found=tuple(orders[n % 2]))]) for n, task in enumerate(tasks)
    ))  # fmt: skip
    stats = await queue.stats(run)
    assert (stats.done, stats.seen, stats.ready) == (40, 100, 60)
    assert stats == await queue.recount(run)


async def test_a_reader_of_records_misses_none_that_are_written_meanwhile(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(300), {"a.test": UNLIMITED_PACE})
    reading: list[int] = []

    async def read() -> None:
        after = 0
        while len(reading) < 300:
            some = await queue.records(run, after=after, limit=17)
            reading.extend(record.task for record in some)
            after = some[-1].seq if some else after
            await asyncio.sleep(0)

    await asyncio.wait_for(asyncio.gather(read(), *(work(queue, f"w{n}", run, 5) for n in range(3))), 60)
    assert len(set(reading)) == 300


async def test_a_run_cancelled_amid_work_is_closed_for_good(queue: PostgresQueue) -> None:
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(400), {"a.test": UNLIMITED_PACE})
    working = [asyncio.create_task(work(queue, f"w{n}", run, 5)) for n in range(3)]
    while not (await queue.stats(run)).done:
        await asyncio.sleep(0.002)
    await queue.set_run(run, "cancel")
    await asyncio.wait_for(asyncio.gather(*working), 30)
    stats = await queue.stats(run)
    assert stats.is_balanced
    assert (stats.open, stats.done + stats.cancelled) == (0, 400)
    assert stats == await queue.recount(run)
    assert [lane.in_flight for lane in await queue.lanes()] == [0]


# the schema


async def test_a_newer_schema_is_refused(queue: PostgresQueue, namespace: str) -> None:
    await queue._engine.rows("INSERT INTO {s}.shoal_migrations (version) VALUES (99)")
    with pytest.raises(QueueRefused, match="newer shoal"):
        await PostgresQueue.open(postgres.shared().url(namespace))


async def test_a_schema_of_another_program_is_not_written_to(admin: asyncpg.Connection, namespace: str) -> None:
    await admin.execute(f'CREATE SCHEMA "{namespace}"; CREATE TABLE "{namespace}".orders (id int)')
    with pytest.raises(QueueRefused, match="another program"):
        await PostgresQueue.open(postgres.shared().url(namespace))


async def test_processes_that_start_at_once_make_one_schema(namespace: str) -> None:
    url = postgres.shared().url(namespace)
    queues = await asyncio.gather(*(PostgresQueue.open(url) for _ in range(4)))
    versions = await queues[0]._engine.rows("SELECT version FROM {s}.shoal_migrations ORDER BY version")
    assert [row[0] for row in versions] == list(range(1, len(migrate.scripts()) + 1))
    for queue in queues:
        await queue.close()


@pytest.mark.parametrize("name", ["pg_mine", "", "a b", 'x"; DROP', "1a", "a" * 64])
def test_a_namespace_that_cannot_be_is_refused(name: str) -> None:
    with pytest.raises(QueueRefused):
        server_url.parse(f"postgresql://h/d?namespace={name}")


def test_a_password_is_not_shown() -> None:
    assert "secret" not in server_url.parse("postgresql://me:secret@db.example/d?namespace=n").display_url


async def test_records_leave_the_queue_only_when_they_are_on_the_disk(own_server: postgres.Server) -> None:
    queue = await PostgresQueue.open(own_server.url())
    admin = await asyncpg.connect(server_url.parse(own_server.url()).dsn)
    run = (await queue.start_run(NEW)).id
    await queue.add(run, pages(1), {"a.test": UNLIMITED_PACE})
    claim = await queue.claim("w1", 1)
    await queue.settle([outcome(claim.tasks[0], records=(b"{}",))])
    await admin.execute("SET synchronous_commit = off")
    for _ in range(20):  # the server writes by itself five times a second: once may have been in between
        await admin.execute("SELECT pg_logical_emit_message(true, 'noise', repeat('x', 1000))")
        before = await admin.fetchval("SELECT pg_current_wal_insert_lsn()")
        assert await queue.records(run)
        assert await admin.fetchval("SELECT pg_current_wal_flush_lsn() >= $1::pg_lsn", before)
    await admin.close()
    await queue.close()
