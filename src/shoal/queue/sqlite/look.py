"""Look: tasks, dead letters and records as people see them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.core.run import TASK_BITS, run_of
from shoal.core.task import Attempt, State
from shoal.queue.base import DeadGroup, TaskView, Where
from shoal.queue.sqlite import identity
from shoal.queue.sqlite.filter import condition

_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode

_SHAPES: dict[str, tuple[str, str]] = {
    "tasks": (
        "t.id, t.url, l.name, CASE WHEN r.leftovers THEN 'cancelled' WHEN t.state = 0 THEN 'ready' WHEN t.state = 2 THEN 'delayed'"
        " WHEN t.state = 1 THEN 'leased' ELSE 'cancelled' END,"
        " t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, t.due, 0,"
        " CASE WHEN t.state IN (1, 3) THEN t.lease ELSE 0 END, ifnull(x.worker, ''), ifnull(x.expires_at, 0), '', 0, t.history, NULL,"
        " CASE WHEN t.state = 3 OR r.leftovers THEN NULL ELSE t.meta END",
        "tasks t JOIN runs r ON r.id = t.run LEFT JOIN lanes l ON l.id = t.lane LEFT JOIN leases x ON t.state = 1 AND x.number = t.lease",
    ),
    "ended": (
        "t.id, t.url, l.name, t.state, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, 0, t.ended_at,"
        " t.lease, '', 0, t.cause, t.records, t.history, NULL, NULL",
        "ended t LEFT JOIN lanes l ON l.id = t.lane",
    ),
    "dead": (
        "t.id, t.url, l.name, 'dead', t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, 0, t.ended_at,"
        " t.lease, '', 0, t.cause, 0, t.history, t.evidence, t.meta",
        "dead t LEFT JOIN lanes l ON l.id = t.lane",
    ),
}
_TABLES = {
    "ready": [("tasks", "t.state = 0 AND NOT r.leftovers")],
    "delayed": [("tasks", "t.state = 2 AND NOT r.leftovers")],
    "leased": [("tasks", "t.state = 1")],
    "done": [("ended", "t.state = 'done'")],
    "cancelled": [("ended", "t.state = 'cancelled'"), ("tasks", "(t.state = 3 OR r.leftovers)")],
    "dead": [("dead", "1")],
    None: [("tasks", "1"), ("ended", "1"), ("dead", "1")],
}


def _view(row: tuple[Any, ...]) -> TaskView:
    return TaskView(
        id=row[0], run=run_of(row[0]), url=row[1], lane=row[2] or "", state=row[3], kind=row[4], priority=row[5], depth=row[6],
        parent=row[7], attempts=row[8], lost=row[9], added_at=row[10], due_at=row[11], finished_at=row[12], lease=row[13],
        worker=row[14], leased_until=row[15], cause=row[16], records=row[17],
        history=tuple(_decode_attempts(row[18])) if row[18] else (),
        evidence=msgspec.json.decode(row[19]) if row[19] else None,
        meta=msgspec.json.decode(row[20]) if row[20] else None,
    )  # fmt: skip


def look(
    db: sqlite3.Connection, now: int, run: int, state: State | None, where: Where, after: int, limit: int
) -> list[TaskView]:
    first, last = max(after + 1, run << TASK_BITS), (run + 1) << TASK_BITS
    views: list[TaskView] = []
    for table, term in _TABLES[state]:
        columns, source = _SHAPES[table]
        extra, values = condition(where, "t", dead=table != "tasks")
        rows = db.execute(
            f"SELECT {columns} FROM {source} WHERE t.id >= ? AND t.id < ? AND {term} AND {extra} ORDER BY t.id LIMIT ?",
            (first, last, *values, limit),
        ).fetchall()
        views += [_view(row) for row in rows]
    views.sort(key=lambda view: view.id)
    return views[:limit]


def find(db: sqlite3.Connection, now: int, run: int, digest: bytes) -> TaskView | None:
    task = identity.owner(db, run, digest)
    if not task:
        return None
    for columns, source in _SHAPES.values():
        found = db.execute(f"SELECT {columns} FROM {source} WHERE t.id = ?", (task,)).fetchone()
        if found:
            return _view(found)
    # Its row went when the run was cancelled; the seen-set still knows that it was there.
    return TaskView(id=task, run=run, url="", lane="", state="cancelled", cause="run cancelled")


def dead_groups(db: sqlite3.Connection, now: int, run: int, limit: int) -> list[DeadGroup]:
    rows = db.execute(
        """SELECT l.name, d.cause, count(*), max(d.url), max(d.history), min(d.ended_at), max(d.ended_at)
           FROM dead d JOIN lanes l ON l.id = d.lane WHERE d.id >= ? AND d.id < ?
           GROUP BY d.lane, d.cause ORDER BY count(*) DESC, l.name, d.cause LIMIT ?""",
        (run << TASK_BITS, (run + 1) << TASK_BITS, limit),
    ).fetchall()
    groups = []
    for lane, cause, count, sample, past, first, last in rows:
        attempts = _decode_attempts(past) if past else []
        groups.append(
            DeadGroup(lane, cause, count, sample, attempts[-1].message if attempts else "", first, last)
        )
    return groups


def skipped(db: sqlite3.Connection, now: int, run: int, limit: int) -> list[tuple[str, str]]:
    return db.execute(
        "SELECT reason, url FROM skip_samples WHERE run = ? ORDER BY reason, url LIMIT ?", (run, limit)
    ).fetchall()


def ids(db: sqlite3.Connection, now: int, run: int, digests: Sequence[bytes]) -> list[int]:
    return identity.owners(db, run, digests)
