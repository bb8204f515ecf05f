"""Live tasks become dead letters, with what a person needs to judge them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from shoal.core.task import UNACKNOWLEDGED, UNACKNOWLEDGED_MESSAGE, Attempt
from shoal.queue.cells import read_attempts
from shoal.queue.sqlite import failing, lanes, needs

HISTORY_LIMIT = 20
EXPIRED_PER_STEP = 1000
DISCARDED_PER_STEP = 1000
_encode = msgspec.json.Encoder().encode

_MOVE = """INSERT OR REPLACE INTO dead (id, run, lease, returned_lease, lane, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, kind, url, meta, request_options, cause, history, evidence, auto_ack, needs)
           SELECT id, run, lease, returned_lease, lane, ?, added_at, expires_at, ?, lost, priority, depth, parent, kind, url, meta, request_options, ?, ?, ?, auto_ack, needs FROM tasks WHERE id = ?"""


def history(text: str | None, attempt: Attempt | None) -> str | None:
    """The history of a task with one more attempt; the first and the newest are kept."""
    if attempt is None:
        return text
    known = read_attempts(text)
    known.append(attempt)
    if len(known) > HISTORY_LIMIT:
        del known[1 : len(known) - HISTORY_LIMIT + 1]
    return _encode(known).decode()


def move_to_dead(
    db: sqlite3.Connection, now: int, task: int, *, attempts: int, cause: str, past: str | None, evidence: object = None
) -> None:
    """Move one live task to the dead letters; the caller keeps the account."""
    failing.count(db, now, task, cause)
    db.execute(_MOVE, (now, attempts, cause, past, None if evidence is None else _encode(evidence).decode(), task))
    db.execute("DELETE FROM tasks WHERE id = ?", (task,))


def move_to_dead_unacknowledged(
    db: sqlite3.Connection, now: int, task: int, worker: str, attempts: int, past: str | None
) -> None:
    """Its lease ended before it was settled: it may have been done, and must not be done twice."""
    attempt = Attempt(now, worker, UNACKNOWLEDGED, UNACKNOWLEDGED_MESSAGE)
    db.execute("UPDATE tasks SET lease = 0 WHERE id = ?", (task,))
    move_to_dead(db, now, task, attempts=attempts, cause=UNACKNOWLEDGED, past=history(past, attempt))


def overdue(db: sqlite3.Connection, now: int, runs: Sequence[int], limit: int = EXPIRED_PER_STEP) -> list[int]:
    """Waiting tasks of these runs whose time to live ran out; those of a run that ended are only kept."""
    rows = db.execute(
        """SELECT t.id FROM json_each(?) j CROSS JOIN runs r ON r.id = j.value
           CROSS JOIN tasks t ON t.run = r.id AND t.expires_at IS NOT NULL AND t.expires_at <= ?
           WHERE r.state IN ('running', 'paused') AND t.state IN (0, 2) LIMIT ?""",
        (_encode(runs).decode(), now, limit),
    )
    return [row[0] for row in rows.fetchall()]


def expire_overdue(db: sqlite3.Connection, now: int, runs: Sequence[int]) -> int:
    return expire(db, now, overdue(db, now, runs))


def expire(db: sqlite3.Connection, now: int, tasks: Iterable[int]) -> int:
    """End waiting tasks whose time to live ran out; says how many."""
    places: Counter[tuple[int, int, int, int]] = Counter()
    for task in tasks:
        row = db.execute(
            "SELECT run, lane, needs, state, attempts, history FROM tasks WHERE id = ? AND state IN (0, 2)", (task,)
        ).fetchone()
        if row is None:
            continue
        run, lane, needed, state, attempts, past = row
        message = "its time to live ran out while it waited"
        move_to_dead(
            db, now, task, attempts=attempts, cause="expired", past=history(past, Attempt(now, "", "expired", message))
        )
        places[run, lane, needed, state] += 1
    for (run, lane, needed, state), count in places.items():
        delayed = count if state == 2 else 0
        db.execute(
            "UPDATE runs SET ready = ready - ?1, delayed = delayed - ?2, dead = dead + ?1 WHERE id = ?3",
            (count, delayed, run),
        )
        needs.change_ready(db, run, {(lane, needed): delayed - count})
    lanes.wake(db, {lane for _, lane, _, _ in places})
    return sum(places.values())


def discard(db: sqlite3.Connection, now: int) -> int:
    """Remove dead letters whose retention is over, some at a time; says how many."""
    gone = 0
    for run, retention in db.execute(
        "SELECT id, dead_retention FROM runs WHERE dead_retention > 0 AND dead > 0"
    ).fetchall():
        tasks = db.execute(
            "SELECT id FROM dead WHERE run = ? AND ended_at <= ? LIMIT ?",
            (run, now - retention, DISCARDED_PER_STEP - gone),
        ).fetchall()
        db.executemany("INSERT INTO discarded (id) VALUES (?)", tasks)
        db.executemany("DELETE FROM dead WHERE id = ?", tasks)
        db.execute("UPDATE runs SET dead = dead - ?1, discarded = discarded + ?1 WHERE id = ?2", (len(tasks), run))
        gone += len(tasks)
    return gone
