"""Drop: tasks that wait, or are dead, given up by a person."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Literal

from shoal.core.run import TASK_BITS
from shoal.core.task import DROPPED, Attempt
from shoal.queue.base import Where
from shoal.queue.sqlite import bury, lanes, runs
from shoal.queue.sqlite.filter import condition, dead_letters

_WAITING = "tasks t WHERE +t.run = ? AND t.state IN (0, 2)"
_MOVE = """INSERT OR REPLACE INTO cancelled (id, state, lease, gave_back, lane, ended_at, added_at, attempts, lost, priority, depth, parent, kind, url, cause, first_record, records, history)
           SELECT id, 'cancelled', lease, gave_back, lane, ?, added_at, attempts, lost, priority, depth, parent, kind, url, ?, 0, 0, ? FROM {table} WHERE id = ?"""


def drop(
    db: sqlite3.Connection, now: int, number: int, where: Where, state: Literal["ready", "dead"], limit: int
) -> int:
    run = runs.get(db, number)
    if state == "ready" and run.state not in ("running", "paused"):
        return 0  # what may still lie there was cancelled with its run
    table, source, was = (
        ("dead", dead_letters(where), "1") if state == "dead" else ("tasks", _WAITING, "t.state")
    )
    term, values = condition(where, "t", dead=state == "dead")
    rows = db.execute(
        f"SELECT t.id, t.history, t.lane, {was} FROM {source} AND t.id >= ? AND t.id < ? AND {term} ORDER BY t.id LIMIT ?",
        (number, number << TASK_BITS, (number + 1) << TASK_BITS, *values, max(0, limit)),
    ).fetchall()
    if not rows:
        return 0
    mark = Attempt(now, "", DROPPED, "given up by a person")
    db.executemany(
        _MOVE.format(table=table), [(now, DROPPED, bury.history(row[1], mark), row[0]) for row in rows]
    )
    db.executemany(f"DELETE FROM {table} WHERE id = ?", [(row[0],) for row in rows])
    if state == "dead":
        db.execute(
            "UPDATE runs SET dead = dead - ?1, cancelled = cancelled + ?1 WHERE id = ?2", (len(rows), number)
        )
    else:
        _leave_lanes(db, number, rows)
    return len(rows)


def _leave_lanes(db: sqlite3.Connection, run: int, rows: list[tuple[int, str | None, int, int]]) -> None:
    ready = Counter(lane for _, _, lane, state in rows if state == 0)
    delayed = len(rows) - sum(ready.values())
    db.execute(
        "UPDATE runs SET ready = ready - ?1, delayed = delayed - ?2, cancelled = cancelled + ?1 WHERE id = ?3",
        (len(rows), delayed, run),
    )
    db.executemany(
        "UPDATE heads SET ready = ready - ? WHERE run = ? AND lane = ?",
        [(count, run, lane) for lane, count in ready.items()],
    )
    lanes.wake(db, ready)
