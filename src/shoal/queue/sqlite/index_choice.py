"""Index choice: which index finds the tasks of a filter, where a scan by id would pass over many others."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from shoal.core.task import State
from shoal.queue.base import TaskFilter

_LANE = "(SELECT id FROM lanes WHERE name = ?)"
_READY = """SELECT t.id FROM run_lanes h CROSS JOIN tasks t INDEXED BY tasks_ready
            ON t.lane = h.lane AND t.run = h.run AND t.needs = h.needs AND t.state = 0 WHERE h.run = ? AND h.ready > 0"""
_DELAYED = "SELECT t.id FROM tasks t INDEXED BY tasks_delayed WHERE t.state = 2 AND t.run = ?"
_LEASED = "SELECT t.id FROM tasks t INDEXED BY tasks_leased WHERE t.state IN (1, 3)"
_DEAD = "SELECT t.id FROM dead t INDEXED BY dead_by_group WHERE t.run = ?"


class IndexScan(NamedTuple):
    sql: str
    values: tuple[object, ...] = ()

    def ids(self, db: sqlite3.Connection, first: int, last: int, limit: int) -> list[int]:
        rows = db.execute(
            f"{self.sql} AND t.id >= ? AND t.id < ? ORDER BY t.id LIMIT ?", (*self.values, first, last, limit)
        )
        return [row[0] for row in rows.fetchall()]


class LiveCounts(NamedTuple):
    """How many live tasks a run has, by what they wait for."""

    ready: int
    delayed: int
    leased: int


def choose_index(
    run: int, table: str, state: State | None, where: TaskFilter, live_counts: LiveCounts
) -> IndexScan | None:
    """The index that passes over the fewest rows; None is a scan by id."""
    if table == "dead" and where.lane:
        exact = where.cause if "*" not in where.cause else ""
        term = f"{_DEAD} AND t.lane = {_LANE}"
        return (
            IndexScan(f"{term} AND t.cause = ?", (run, where.lane, exact))
            if exact
            else IndexScan(term, (run, where.lane))
        )
    if table != "tasks":
        return None
    if state in ("leased", "cancelled"):
        return IndexScan(_LEASED)
    if state == "ready" and where.lane:
        return IndexScan(f"{_READY} AND h.lane = {_LANE}", (run, where.lane))
    if state == "ready" and live_counts.ready < live_counts.delayed + live_counts.leased:
        return IndexScan(_READY, (run,))
    if state == "delayed" and live_counts.delayed < live_counts.ready + live_counts.leased:
        return IndexScan(_DELAYED, (run,))
    return None
