"""Reap: leases extended and given back, and the registry of workers."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from shoal.core.lane import Mark
from shoal.queue.base import FIGURES_CAP, LOST_LIMIT, Extended, Reaped
from shoal.queue.postgres.columns import micros
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.words import given, kept

LEASES_PER_CALL = 200
EXPIRED_PER_CALL = 1000
SWEEP_SLICE = 2000

_REGISTER = """
INSERT INTO {s}.workers AS w (id, name, host, pid, version, started_at, seen_at, state, doing, serves, code, done, failed, memory, figures)
VALUES ($1, $2, $3, $4, $5, coalesce(nullif($6::bigint, 0), {s}.tick($7)), {s}.tick($7), $8, $9, $10, $11, $12, $13, $14, $15)
ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at, state = excluded.state, doing = excluded.doing, serves = excluded.serves,
  code = excluded.code, done = excluded.done, failed = excluded.failed, memory = excluded.memory, figures = excluded.figures
RETURNING asked"""
_WORKERS = """
SELECT w.id, w.name, w.host, w.pid, w.version, w.started_at, w.seen_at, w.state, w.doing,
       coalesce(h.held, 0),
       w.serves, w.code, w.done, w.failed, w.memory, w.asked, w.figures
FROM {s}.workers w
LEFT JOIN (SELECT x.worker, count(*) AS held FROM {s}.leases x JOIN {s}.leased t ON t.lease = x.number GROUP BY x.worker) h ON h.worker = w.id
ORDER BY w.started_at, w.id"""


async def reap(engine: Engine, dead_workers: Mapping[str, Collection[int]]) -> Reaped:
    executing = [(kept(worker), task) for worker, tasks in dead_workers.items() for task in tasks]
    (row,) = await engine.rows(
        "SELECT o_returned, o_dead FROM {s}.reap_leases($1, $2, $3, $4, $5, $6)",
        engine.now(), [kept(worker) for worker in dead_workers],
        [worker for worker, _ in executing], [task for _, task in executing], LOST_LIMIT, LEASES_PER_CALL,
    )  # fmt: skip
    expired = await engine.value("SELECT {s}.reap_expired($1, $2)", engine.now(), EXPIRED_PER_CALL)
    await engine.value("SELECT {s}.tidy($1, $2)", engine.now(), SWEEP_SLICE)
    return Reaped(row[0], row[1], expired)


async def extend(
    engine: Engine, worker: str, leases: Mapping[int, Collection[int]], lease: float
) -> Extended:
    if not leases:
        return Extended()
    started = [(number, task) for number, tasks in leases.items() for task in tasks]
    rows = await engine.rows(
        "SELECT o_number, o_cancelled FROM {s}.extend($1, $2, $3, $4, $5, $6)",
        engine.now(), kept(worker), micros(lease), list(leases),
        [number for number, _ in started], [task for _, task in started],
    )  # fmt: skip
    alive = {number for number, _ in rows}
    cancelled = frozenset(task for _, tasks in rows for task in tasks)
    return Extended(frozenset(leases.keys() - alive), cancelled)


async def register(engine: Engine, mark: Mark) -> str:
    words = [kept(word) for word in (mark.id, mark.name, mark.host)]
    asked: str = await engine.value(
        _REGISTER, *words, mark.pid, mark.version, mark.started_at, engine.now(), mark.state, kept(mark.doing),
        [kept(word) for word in mark.serves], mark.code, mark.done, mark.failed, mark.memory,
        mark.figures if len(mark.figures) <= FIGURES_CAP else b"",
    )  # fmt: skip
    return asked


async def ask(engine: Engine, worker: str, wanted: str) -> bool:
    sql = "UPDATE {s}.workers SET asked = $2 WHERE id = $1 RETURNING id"
    return await engine.value(sql, kept(worker), wanted) is not None


async def workers(engine: Engine) -> list[Mark]:
    rows = await engine.rows(_WORKERS)
    return [
        Mark(
            given(id),
            given(name),
            given(host),
            pid,
            version,
            started,
            seen,
            state,
            given(doing),
            leased,
            tuple(map(given, serves)),
            *rest,
        )
        for id, name, host, pid, version, started, seen, state, doing, leased, serves, *rest in rows
    ]


async def forget(engine: Engine, worker: str) -> None:
    await engine.rows("DELETE FROM {s}.workers WHERE id = $1", kept(worker))
