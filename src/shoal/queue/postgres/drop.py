"""Drop: what waits, or is dead, is given up; a slice at a time, so that nobody waits for it long."""

from __future__ import annotations

from typing import Any, Literal

from shoal.core.run import TASK_BITS
from shoal.queue.base import TaskFilter
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.inspect import condition
from shoal.queue.postgres.runs import get

SLICE = 1_000
_MESSAGE = "dropped by a person"
_TABLES = {"ready": ("ready", "delayed"), "dead": ("dead",)}
_VERBS = {"ready": "drop_waiting", "dead": "drop_dead"}


async def drop(
    engine: Engine,
    run: int,
    where: TaskFilter = TaskFilter(),
    *,
    state: Literal["ready", "dead"] = "ready",
    limit: int = 10_000,
) -> int:
    about = await get(engine, run)
    if state == "ready" and about.state not in ("running", "paused"):
        return 0
    gone, sql = 0, f"SELECT {{s}}.{_VERBS[state]}($1, $2, $3, $4)"
    while gone < limit and (ids := await _chosen(engine, run, where, state, min(SLICE, limit - gone))):
        # Some may have been claimed meanwhile: those are not there when it is asked again.
        gone += await engine.value(sql, engine.now(), run, ids, _MESSAGE)
    return gone


async def _chosen(engine: Engine, run: int, where: TaskFilter, state: str, limit: int) -> list[int]:
    parts: list[str] = []
    values: list[Any] = [run << TASK_BITS, (run + 1) << TASK_BITS, limit]
    for table in _TABLES[state]:
        term, more = condition(where, len(values) + 1, table, run)
        values += more
        parts.append(
            f"(SELECT t.id FROM {{s}}.{table} t WHERE t.id >= $1 AND t.id < $2 AND {term} ORDER BY t.id LIMIT $3)"
        )
    rows = await engine.rows(f"SELECT id FROM ({' UNION ALL '.join(parts)}) x LIMIT $3", *values)
    return [row[0] for row in rows]
