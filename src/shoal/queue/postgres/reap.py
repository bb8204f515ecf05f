"""Reap: leases extended and given back, and the registry of workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from shoal.core.lane import WorkerStatus
from shoal.queue.base import LANE_KEPT_SECONDS, LEASE_SECONDS, LOST_LIMIT, MAX_COUNTERS_BYTES, ExtendResult, ReapResult
from shoal.queue.postgres import cache, failing, seen_sets
from shoal.queue.postgres.columns import micros
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.lanes import move_lanes
from shoal.queue.postgres.text import escape_nul, unescape_nul

LEASES_PER_CALL = 200
EXPIRED_PER_CALL = 1000
DISCARDED_PER_CALL = 1000
SWEEP_SLICE = 2000
MOVES_PER_CALL = 10
LANES_LOOKED_AT = 200  # for idle ones, and as many from the first on

_REGISTER = """
INSERT INTO {s}.workers AS w (id, name, host, pid, version, started_at, seen_at, state, activity, serves, code, done, failed, memory, counters, capabilities)
VALUES ($1, $2, $3, $4, $5, coalesce(nullif($6::bigint, 0), {s}.clock_micros($7)), {s}.clock_micros($7), $8, $9, $10, $11, $12, $13, $14, $15, $16)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state, activity = excluded.activity, serves = excluded.serves,
  code = excluded.code, done = excluded.done, failed = excluded.failed, memory = excluded.memory, counters = excluded.counters,
  capabilities = excluded.capabilities
RETURNING command"""
_WORKERS = """
SELECT w.id, w.name, w.host, w.pid, w.version, w.started_at, w.seen_at, w.state, w.activity,
       coalesce(h.held, 0),
       w.serves, w.code, w.done, w.failed, w.memory, w.command, w.capabilities, w.counters
FROM {s}.workers w
LEFT JOIN (SELECT x.worker, count(*) AS held FROM {s}.leases x JOIN {s}.leased t ON t.lease = x.number GROUP BY x.worker) h ON h.worker = w.id
ORDER BY w.started_at, w.id"""


async def reap(engine: Engine, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
    dead_workers = dead_workers or {}
    executing = [(escape_nul(worker), task) for worker, tasks in dead_workers.items() for task in tasks]
    (row,) = await engine.rows(
        "SELECT o_returned, o_dead FROM {s}.reap_leases($1, $2, $3, $4, $5, $6)",
        engine.now(), [escape_nul(worker) for worker in dead_workers],
        [worker for worker, _ in executing], [task for _, task in executing], LOST_LIMIT, LEASES_PER_CALL,
    )  # fmt: skip
    expired = await engine.value("SELECT {s}.reap_expired($1, $2)", engine.now(), EXPIRED_PER_CALL)
    await engine.value("SELECT {s}.discard_dead($1, $2)", engine.now(), DISCARDED_PER_CALL)
    for run in await engine.value("SELECT {s}.sweep_leftovers($1, $2)", engine.now(), SWEEP_SLICE):
        await move_lanes(engine, run, steps=MOVES_PER_CALL)
    await seen_sets.sweep(engine)
    await failing.forget_old(engine)
    await cache.sweep(engine)
    await engine.value(
        "SELECT {s}.remove_idle_lanes($1, $2, $3)", engine.now(), micros(LANE_KEPT_SECONDS), LANES_LOOKED_AT
    )
    return ReapResult(row[0], row[1], expired)


async def extend(
    engine: Engine, worker: str, leases: Mapping[int, Collection[int]], *, lease: float = LEASE_SECONDS
) -> ExtendResult:
    if not leases:
        return ExtendResult()
    started = [(number, task) for number, tasks in leases.items() for task in tasks]
    rows = await engine.rows(
        "SELECT o_number, o_cancelled FROM {s}.extend($1, $2, $3, $4, $5, $6)",
        engine.now(), escape_nul(worker), micros(lease), list(leases),
        [number for number, _ in started], [task for _, task in started],
    )  # fmt: skip
    alive = {number for number, _ in rows}
    cancelled = frozenset(task for _, tasks in rows for task in tasks)
    return ExtendResult(frozenset(leases.keys() - alive), cancelled)


async def register(engine: Engine, status: WorkerStatus) -> str:
    words = [escape_nul(word) for word in (status.id, status.name, status.host)]
    command: str = await engine.value(
        _REGISTER, *words, status.pid, status.version, status.started_at, engine.now(), status.state, escape_nul(status.activity),
        [escape_nul(word) for word in status.serves], status.code, status.done, status.failed, status.memory,
        status.counters if len(status.counters) <= MAX_COUNTERS_BYTES else b"",
        [escape_nul(word) for word in status.capabilities],
    )  # fmt: skip
    return command


async def set_command(engine: Engine, worker: str, command: str) -> bool:
    sql = "UPDATE {s}.workers SET command = $2 WHERE id = $1 RETURNING id"
    return await engine.value(sql, escape_nul(worker), command) is not None


async def workers(engine: Engine) -> list[WorkerStatus]:
    return [_status(row) for row in await engine.rows(_WORKERS)]


def _status(row: Any) -> WorkerStatus:
    (
        id, name, host, pid, version, started_at, seen_at, state, activity, leased, serves, code, done, failed, memory,
        command, capabilities, counters,
    ) = row  # fmt: skip
    return WorkerStatus(
        unescape_nul(id), unescape_nul(name), unescape_nul(host), pid, version, started_at, seen_at, state,
        unescape_nul(activity), leased, tuple(map(unescape_nul, serves)), code, done, failed, memory, command,
        tuple(map(unescape_nul, capabilities)), counters,
    )  # fmt: skip


async def forget(engine: Engine, worker: str) -> None:
    await engine.rows("DELETE FROM {s}.workers WHERE id = $1", escape_nul(worker))
