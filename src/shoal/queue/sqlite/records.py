"""Records: what pages gave, in the order of settling, until they are safe elsewhere."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

import msgspec

from shoal.core.run import TASK_BITS
from shoal.queue.base import StoredRecord
from shoal.queue.sqlite import runs

# The records of one task lie together, and the task knows where. The + keeps SQLite from going through
# all records of the run for every task instead.
_OF_TASKS = f"""SELECT r.id, r.task, r.data FROM json_each(?) j
  CROSS JOIN ended e ON e.id = j.value AND e.records > 0
  CROSS JOIN records r ON r.id >= (e.id >> {TASK_BITS} << {TASK_BITS}) + e.first_record
                      AND r.id < (e.id >> {TASK_BITS} << {TASK_BITS}) + e.first_record + e.records
  WHERE +r.id > ? AND +r.id < ? ORDER BY r.id LIMIT ?"""


def listing(
    db: sqlite3.Connection, now: int, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
) -> list[StoredRecord]:
    base, last = run << TASK_BITS, (run + 1) << TASK_BITS
    if tasks:
        chosen = msgspec.json.encode(list(set(tasks))).decode()
        rows = db.execute(_OF_TASKS, (chosen, base + after, last, limit)).fetchall()
    else:
        rows = db.execute(
            "SELECT id, task, data FROM records WHERE id > ? AND id < ? ORDER BY id LIMIT ?",
            (base + after, last, limit),
        ).fetchall()
    return [StoredRecord(row[0] - base, row[1], row[2].encode()) for row in rows]


def trim(db: sqlite3.Connection, now: int, run: int, upto: int) -> int:
    runs.get(db, run)
    base, last = run << TASK_BITS, (run + 1) << TASK_BITS
    gone = db.execute("DELETE FROM records WHERE id > ? AND id <= ?", (base, min(base + upto, last - 1))).rowcount
    if gone:
        db.execute("UPDATE runs SET trimmed = trimmed + ? WHERE id = ?", (gone, run))
    return gone
