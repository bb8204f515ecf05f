"""Plans on PostgreSQL: what a verb costs must not grow with the backlog."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import asyncpg
import pytest
from servers import postgres

from conformance.harness import outcome, page, pages
from shoal.core.lane import UNLIMITED_PACE, Pace
from shoal.core.run import NewRun
from shoal.queue.base import TaskFilter
from shoal.queue.postgres import PostgresQueue, server_url

LANES = 40
FREE_LANES = {f"{n}.test": UNLIMITED_PACE for n in range(LANES)}
BACKLOG = 120_000
HISTORY = 50_000
HOT = "ready delayed leased leases seen seen_0 ended ended_0 batches batches_0 dead run_lanes lanes".split()  # noqa: SIM905

# The tasks of a long crawl, as adding them one call at a time would leave them.
_FILL = f"""
WITH new AS (
  SELECT n, (SELECT max(id)::bigint << 32 FROM {{s}}.runs) | nextval('{{s}}.task_numbers') AS id
  FROM generate_series(1, {BACKLOG + HISTORY}) n
), known AS (
  INSERT INTO {{s}}.seen SELECT id >> 32, substr(sha256(('b' || n)::bytea), 1, 10), id FROM new
), old AS (
  INSERT INTO {{s}}.ended
  SELECT id, 'done', 1, 0, 1 + n % {LANES}, 1, 1, 1, 0, 0, 0, NULL, '', 0, 'page', 'b' || n, '' FROM new
  WHERE n > {BACKLOG}
)
INSERT INTO {{s}}.ready
SELECT id, id >> 32, 1 + n % {LANES}, 5, 5, 1, 1, NULL, 0, 0, 0, 0, 0, NULL, '', 'page', 'b' || n FROM new
WHERE n <= {BACKLOG}"""
_COUNT = f"UPDATE {{s}}.counters SET seen = {BACKLOG + HISTORY}, ready = {BACKLOG}, done = {HISTORY}"


async def _explain(db: asyncpg.Connection) -> None:
    await db.execute(
        "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0;"
        "SET auto_explain.log_nested_statements = on; SET auto_explain.log_analyze = on"
    )


@dataclass
class Long:
    queue: PostgresQueue
    run: int
    server: postgres.Server

    async def plans(self, verbs: Callable[[], Awaitable[object]]) -> list[str]:
        """The plans of every statement inside the verbs, as the server's log has them."""
        before = len(self.server.log)
        await verbs()
        return self.server.log[before:].split("Query Text")[1:]


@pytest.fixture
async def long() -> AsyncIterator[Long]:
    """A queue with a long backlog and a long history, on one session that tells its plans."""
    server = postgres.shared()
    if not isinstance(server, postgres.Server):
        pytest.skip("the log of a server kept by somebody else cannot be read")
    namespace = "plans"
    admin = await asyncpg.connect(server_url.parse(server.url(namespace)).dsn)
    await admin.execute("DROP SCHEMA IF EXISTS plans CASCADE")
    queue = await PostgresQueue.open(server.url(namespace, connections=1))
    run = (await queue.start_run(NewRun(scraper="books", key="k", name="run"))).id
    await queue.add(run, [page(lane, lane) for lane in FREE_LANES], FREE_LANES)
    await queue._engine.rows(_FILL)
    await queue._engine.rows(f"UPDATE {{s}}.run_lanes SET ready = ready + {BACKLOG // LANES}")
    await queue._engine.rows(_COUNT)
    await admin.execute("ANALYZE")
    await queue._engine._retry(_explain)
    yield Long(queue, run, server)
    await queue.close()
    await admin.execute("DROP SCHEMA plans CASCADE")
    await admin.close()


async def test_no_verb_scans_a_table_and_a_claim_pops_by_its_index(long: Long) -> None:
    queue, run = long.queue, long.run

    async def verbs() -> None:
        await queue.add(run, [page(f"q{n}", f"{n % LANES}.test") for n in range(50)], FREE_LANES)
        claim = await queue.claim("w", 40)
        assert len(claim.tasks) == 40
        await queue.extend("w", {claim.lease: [claim.tasks[0].id]})
        results = ["done", "retry", "dead", "released"]
        await queue.settle([
            outcome(task, results[n % 4], cause="x", records=(b"{}",), found=tuple(pages(3, f"f{n}")))
            for n, task in enumerate(claim.tasks)
        ])  # fmt: skip
        plain = await queue.claim("w", 10)
        await queue.settle([outcome(task, records=(b"{}",)) for task in plain.tasks])
        await queue.settle([outcome(task, records=(b"{}",)) for task in plain.tasks])
        await queue.add(run, pages(4, "slow", "slow.test"), {"slow.test": Pace(0.1, 2)})
        await queue.claim("w", 60)
        await queue.reap({"w": []})
        await queue.claim("w", 10)
        await queue.reserve("1.test")
        await queue.records(run)
        await queue.ids(run, [task.digest for task in pages(3)])
        assert (await queue.stats(run)).open > BACKLOG

    said = await long.plans(verbs)
    assert len(said) > 60
    scanned = {table: part[:600] for part in said for table in re.findall(r"Seq Scan on (\w+)", part) if table in HOT}
    assert not scanned, f"these are read from end to end: {scanned}"
    # Whatever a plan says it would do: no step has met more rows than the verb had to do with.
    most = max(int(rows) for part in said for rows in re.findall(r"actual time=\S+ rows=(\d+)", part))
    assert most < 1_000
    for words in ("LIMIT u.count", "LIMIT p.count"):  # in one step, and as planned
        popping = next(part for part in said if words in part)
        assert "using ready_next" in popping
        assert "Sort" not in popping
    moves = [part for part in said if "DELETE FROM ready r USING" in part]
    assert len(moves) > 2
    assert all("Tid Scan" in part for part in moves)


async def test_what_people_look_at_costs_the_same_whatever_else_there_is(long: Long) -> None:
    queue, run = long.queue, long.run
    claim = await queue.claim("w", 40)
    results = ["dead", "cancelled", "retry", "done"]
    await queue.settle([outcome(t, results[n % 4], after=60.0, cause="x") for n, t in enumerate(claim.tasks)])
    await queue.claim("w", 20)

    async def looks() -> None:
        for _ in range(7):  # a plan for any values is made only after some for given ones
            for state in ("ready", "delayed", "leased", "done", "dead", "cancelled", None):
                assert await queue.list_tasks(run, state=state, limit=5)
                await queue.list_tasks(run, state=state, where=TaskFilter(lane="1.test"), limit=5)
            await queue.list_tasks(run, state="dead", where=TaskFilter(lane="1.test", cause="x"))
            assert await queue.dead_groups(run)
            await queue.stats_of([run, 4711])
            await queue.find(run, page("b1").digest)
        assert await queue.drop(run, limit=5) == 5
        assert await queue.drop(run, state="dead", limit=5) == 5

    said = await long.plans(looks)
    assert len(said) > 100
    big = ("ready", "seen_0", "ended_0")  # the others are small here
    scanned = {table: part[:600] for part in said for table in re.findall(r"Seq Scan on (\w+)", part) if table in big}
    assert not scanned, f"these are read from end to end: {scanned}"
    most = max(int(rows) for part in said for rows in re.findall(r"actual time=\S+ rows=(\d+)", part))
    assert most < 5_000
    passed_over = [int(rows) for part in said for rows in re.findall(r"Rows Removed by Filter: (\d+)", part)]
    assert max(passed_over, default=0) < 1_000


async def test_plans_made_while_there_were_no_lanes_will_do_when_there_are_many() -> None:
    """A crawl of many hosts begins within seconds: the server has not looked at its tables yet."""
    server = postgres.shared()
    if not isinstance(server, postgres.Server):
        pytest.skip("the log of a server kept by somebody else cannot be read")
    queue = await PostgresQueue.open(server.url("early_plans", connections=1))
    run = (await queue.start_run(NewRun(scraper="books", key="k", name="run"))).id
    batch, made = 500, 0

    async def add(count: int) -> None:
        nonlocal made
        hosts = [f"{n}.test" for n in range(made, made + count)]
        made += count
        await queue.add(run, [page(host, host) for host in hosts], dict.fromkeys(hosts, UNLIMITED_PACE))

    async def verbs() -> None:
        await add(batch)
        claim = await queue.claim("w", 40)
        await queue.settle([outcome(task, found=tuple(pages(3, f"{task.id}", task.lane))) for task in claim.tasks])
        await queue.set_run(run, "cancel")
        await queue.set_run(run, "undo")

    await verbs()
    await verbs()  # on the same session, whose plans are kept
    for _ in range(8):
        await add(batch)
    await queue._engine._retry(_explain)
    said = await Long(queue, run, server).plans(verbs)
    await queue.close()
    said = [
        part for part in said if "o_cursor" not in part and "h.lane > r.lane_cursor" not in part
    ]  # all of them, once
    walked = {
        int(rows): part[:400]
        for part in said
        for rows in re.findall(r"(?:Rows Removed by Filter: |actual time=\S+ rows=)(\d+)", part)
    }
    assert len(said) > 60
    assert max(walked) <= 2 * batch, f"many lanes are walked through: {walked[max(walked)]}"
