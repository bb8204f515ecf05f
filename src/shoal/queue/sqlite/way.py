"""Way: an index that leads to the tasks of one kind, where walking by number would pass over many others."""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from shoal.core.task import State
from shoal.queue.base import Where

_LANE = "(SELECT id FROM lanes WHERE name = ?)"
_READY = """SELECT t.id FROM heads h CROSS JOIN tasks t INDEXED BY tasks_ready
            ON t.lane = h.lane AND t.run = h.run AND t.state = 0 WHERE h.run = ? AND h.ready > 0"""
_DELAYED = "SELECT t.id FROM tasks t INDEXED BY tasks_delayed WHERE t.state = 2"
_LEASED = "SELECT t.id FROM tasks t INDEXED BY tasks_leased WHERE t.state IN (1, 3)"
_DEAD = "SELECT t.id FROM dead t INDEXED BY dead_by_group WHERE t.run = ?"


class Way(NamedTuple):
    sql: str
    values: tuple[object, ...] = ()

    def ids(self, db: sqlite3.Connection, first: int, last: int, limit: int) -> list[int]:
        rows = db.execute(
            f"{self.sql} AND t.id >= ? AND t.id < ? ORDER BY t.id LIMIT ?", (*self.values, first, last, limit)
        )
        return [row[0] for row in rows.fetchall()]


class Held(NamedTuple):
    """How many live tasks a run has, by what they wait for."""

    ready: int
    delayed: int
    leased: int


def choose(
    db: sqlite3.Connection, run: int, table: str, state: State | None, where: Where, held: Held
) -> Way | None:
    """The way that passes over the fewest rows; None is by number."""
    if table == "dead" and where.lane:
        exact = where.cause if "*" not in where.cause else ""
        term = f"{_DEAD} AND t.lane = {_LANE}"
        return (
            Way(f"{term} AND t.cause = ?", (run, where.lane, exact))
            if exact
            else Way(term, (run, where.lane))
        )
    if table != "tasks":
        return None
    if state in ("leased", "cancelled"):
        return Way(_LEASED)
    if state == "ready" and where.lane:
        return Way(f"{_READY} AND h.lane = {_LANE}", (run, where.lane))
    if state == "ready" and held.ready < held.delayed + held.leased:
        return Way(_READY, (run,))
    if state == "delayed" and _delayed(db) < held.ready + held.leased:
        return Way(_DELAYED)
    return None


def _delayed(db: sqlite3.Connection) -> int:
    """Delayed tasks of all runs: they lie in one index."""
    (count,) = db.execute(
        "SELECT ifnull(sum(delayed), 0) FROM runs WHERE state IN ('running', 'paused')"
    ).fetchone()
    return int(count)
