"""Drop: tasks that wait, or are dead, dropped by a person."""

from __future__ import annotations

import sqlite3
from collections import Counter
from typing import Literal

from shoal.core.run import TASK_BITS
from shoal.core.task import DROPPED, Attempt
from shoal.queue.base import TaskFilter
from shoal.queue.sqlite import dead_letter, lanes, needs, runs
from shoal.queue.sqlite.filter import condition, dead_letters

_WAITING = "tasks t WHERE +t.run = ? AND t.state IN (0, 2)"
_MOVE = """INSERT OR REPLACE INTO cancelled (id, state, lease, returned_lease, lane, ended_at, added_at, attempts, lost, priority, depth, parent, kind, url, cause, first_record, records, history)
           SELECT id, 'cancelled', lease, returned_lease, lane, ?, added_at, attempts, lost, priority, depth, parent, kind, url, ?, 0, 0, ? FROM {table} WHERE id = ?"""


def drop(
    db: sqlite3.Connection,
    now: int,
    run: int,
    where: TaskFilter = TaskFilter(),
    *,
    state: Literal["ready", "dead"] = "ready",
    limit: int = 10_000,
) -> int:
    about = runs.get(db, run)
    if state == "ready" and about.state not in ("running", "paused"):
        return 0  # what may still lie there was cancelled with its run
    table, source, was = ("dead", dead_letters(where), "1") if state == "dead" else ("tasks", _WAITING, "t.state")
    term, values = condition(where, "t", dead=state == "dead")
    rows = db.execute(
        f"SELECT t.id, t.history, t.lane, t.needs, {was} FROM {source} AND t.id >= ? AND t.id < ? AND {term} ORDER BY t.id LIMIT ?",
        (run, run << TASK_BITS, (run + 1) << TASK_BITS, *values, max(0, limit)),
    ).fetchall()
    if not rows:
        return 0
    mark = Attempt(now, "", DROPPED, "dropped by a person")
    db.executemany(
        _MOVE.format(table=table), [(now, DROPPED, dead_letter.history(row[1], mark), row[0]) for row in rows]
    )
    db.executemany(f"DELETE FROM {table} WHERE id = ?", [(row[0],) for row in rows])
    if state == "dead":
        db.execute("UPDATE runs SET dead = dead - ?1, cancelled = cancelled + ?1 WHERE id = ?2", (len(rows), run))
    else:
        _leave_lanes(db, run, rows)
    return len(rows)


def _leave_lanes(db: sqlite3.Connection, run: int, rows: list[tuple[int, str | None, int, int, int]]) -> None:
    ready = Counter((lane, needed) for _, _, lane, needed, state in rows if state == 0)
    delayed = len(rows) - sum(ready.values())
    db.execute(
        "UPDATE runs SET ready = ready - ?1, delayed = delayed - ?2, cancelled = cancelled + ?1 WHERE id = ?3",
        (len(rows), delayed, run),
    )
    needs.change_ready(db, run, {place: -count for place, count in ready.items()})
    lanes.wake(db, {lane for lane, _ in ready})
