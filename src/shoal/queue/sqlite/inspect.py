"""Inspection: tasks, dead letters and records as people see them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.core.run import TASK_BITS, run_of
from shoal.core.task import State
from shoal.queue.base import DeadLetterGroup, TaskFilter, TaskView
from shoal.queue.cells import read_attempts, read_object
from shoal.queue.remains import cancelled_view, discarded_view
from shoal.queue.sqlite import identity
from shoal.queue.sqlite.filter import condition
from shoal.queue.sqlite.index_choice import IndexScan, LiveCounts, choose_index

FIRST_STEP = 1000  # of a scan along an index with more to filter; each further step is longer

_SHAPES: dict[str, tuple[str, str]] = {
    "tasks": (
        "t.id, t.url, l.name, CASE WHEN r.leftovers THEN 'cancelled' WHEN t.state = 0 THEN 'ready' WHEN t.state = 2 THEN 'delayed'"
        " WHEN t.state = 1 THEN 'leased' ELSE 'cancelled' END,"
        " t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, t.due, 0,"
        " CASE WHEN t.state IN (1, 3) THEN t.lease ELSE 0 END, ifnull(x.worker, ''), ifnull(x.expires_at, 0), '', 0, t.history, NULL,"
        " CASE WHEN t.state = 3 OR r.leftovers THEN NULL ELSE t.meta END, n.names, t.state = 1 AND t.auto_ack, CASE WHEN t.state = 1 THEN ifnull(t.expires_at, 0) ELSE 0 END",
        "JOIN runs r ON r.id = t.run LEFT JOIN lanes l ON l.id = t.lane LEFT JOIN leases x ON t.state = 1 AND x.number = t.lease"
        " LEFT JOIN run_needs n ON t.needs > 0 AND n.run = t.run AND n.needs = t.needs AND t.state <> 3 AND NOT r.leftovers",
    ),
    "ended": (
        "t.id, t.url, l.name, t.state, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, 0, t.ended_at,"
        " t.lease, '', 0, t.cause, t.records, t.history, NULL, NULL, NULL, 0, 0",
        "LEFT JOIN lanes l ON l.id = t.lane",
    ),
    "cancelled": (
        "t.id, t.url, l.name, t.state, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, 0, t.ended_at,"
        " t.lease, '', 0, t.cause, 0, t.history, NULL, NULL, NULL, 0, 0",
        "LEFT JOIN lanes l ON l.id = t.lane",
    ),
    "dead": (
        "t.id, t.url, l.name, 'dead', t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, 0, t.ended_at,"
        " t.lease, '', 0, t.cause, 0, t.history, t.evidence, t.meta, n.names, 0, 0",
        "LEFT JOIN lanes l ON l.id = t.lane LEFT JOIN run_needs n ON t.needs > 0 AND n.run = t.run AND n.needs = t.needs",
    ),
}
_TABLES: dict[State | None, list[tuple[str, str]]] = {
    "ready": [("tasks", "t.state = 0")],
    "delayed": [("tasks", "t.state = 2")],
    "leased": [("tasks", "t.state = 1")],
    "done": [("ended", "1")],
    "cancelled": [("cancelled", "1"), ("tasks", "t.state = 3")],
    "dead": [("dead", "1")],
    None: [("tasks", "1"), ("ended", "1"), ("cancelled", "1"), ("dead", "1")],
}
# A run that was cancelled, and whose tasks are not all removed yet.
_LEFTOVERS: dict[State | None, list[tuple[str, str]]] = _TABLES | {
    "ready": [],
    "delayed": [],
    "cancelled": [("cancelled", "1"), ("tasks", "t.state <> 1")],
}


def _view(row: tuple[Any, ...]) -> TaskView:
    return TaskView(
        id=row[0], run=run_of(row[0]), url=row[1], lane=row[2] or "", state=row[3], kind=row[4], priority=row[5], depth=row[6],
        parent=row[7], attempts=row[8], lost=row[9], added_at=row[10], due_at=row[11], finished_at=row[12], lease=row[13],
        worker=row[14], leased_until=row[15], cause=row[16], records=row[17],
        history=tuple(read_attempts(row[18])),
        evidence=read_object(row[19]),
        meta=read_object(row[20]), needs=tuple(row[21].split("+")) if row[21] else (),
        ack="auto" if row[22] else "manual", expires_at=row[23],
    )  # fmt: skip


def list_tasks(
    db: sqlite3.Connection,
    now: int,
    run: int,
    *,
    state: State | None = None,
    where: TaskFilter = TaskFilter(),
    after: int = 0,
    upto: int = 0,
    limit: int = 100,
) -> list[TaskView]:
    first = max(after + 1, run << TASK_BITS)
    last = (run + 1) << TASK_BITS
    if upto > 0:
        last = min(upto + 1, last)
    row = db.execute("SELECT leftovers, ready - delayed, delayed, leased FROM runs WHERE id = ?", (run,)).fetchone()
    if row is None or first >= last or limit < 1:
        return []
    leftovers, live_counts = row[0], LiveCounts(*row[1:])
    views: list[TaskView] = []
    for table, term in (_LEFTOVERS if leftovers else _TABLES)[state]:
        if where.ids:
            ids = sorted({id for id in where.ids if first <= id < last})
            views += _select_ids(db, table, term, where, ids)
        elif (index_scan := None if leftovers else choose_index(run, table, state, where, live_counts)) is None:
            views += _scan_by_id(db, table, term, where, first, last, limit)
        else:
            views += _scan_by_index(db, table, term, where, index_scan, first, last, limit)
    views.sort(key=lambda view: view.id)
    return views[:limit]


def _scan_by_id(
    db: sqlite3.Connection, table: str, term: str, where: TaskFilter, first: int, last: int, limit: int
) -> list[TaskView]:
    columns, joins = _SHAPES[table]
    extra, values = condition(where, "t", dead=table != "tasks")
    rows = db.execute(
        f"SELECT {columns} FROM {table} t {joins} WHERE t.id >= ? AND t.id < ? AND {term} AND {extra} ORDER BY t.id LIMIT ?",
        (first, last, *values, limit),
    ).fetchall()
    return [_view(row) for row in rows]


def _scan_by_index(
    db: sqlite3.Connection,
    table: str,
    term: str,
    where: TaskFilter,
    index_scan: IndexScan,
    first: int,
    last: int,
    limit: int,
) -> list[TaskView]:
    views: list[TaskView] = []
    step = max(limit, FIRST_STEP) if where.url or where.cause else limit
    while len(views) < limit:
        ids = index_scan.ids(db, first, last, step)
        views += _select_ids(db, table, term, where, ids)
        if len(ids) < step:
            break
        first, step = ids[-1] + 1, 4 * step
    return views[:limit]


def _select_ids(db: sqlite3.Connection, table: str, term: str, where: TaskFilter, ids: list[int]) -> list[TaskView]:
    columns, joins = _SHAPES[table]
    extra, values = condition(where, "t", dead=table != "tasks")
    rows = db.execute(
        f"SELECT {columns} FROM json_each(?) j CROSS JOIN {table} t ON t.id = j.value {joins} WHERE {term} AND {extra}",
        (msgspec.json.encode(ids).decode(), *values),
    ).fetchall()
    return [_view(row) for row in rows]


def find(db: sqlite3.Connection, now: int, run: int, digest: bytes) -> TaskView | None:
    task = identity.owner(db, run, digest)
    if not task:
        return None
    for table, (columns, joins) in _SHAPES.items():
        found = db.execute(f"SELECT {columns} FROM {table} t {joins} WHERE t.id = ?", (task,)).fetchone()
        if found:
            return _view(found)
    is_discarded = db.execute("SELECT 1 FROM discarded WHERE id = ?", (task,)).fetchone()
    return discarded_view(run, task) if is_discarded else cancelled_view(run, task)


def dead_groups(db: sqlite3.Connection, now: int, run: int, limit: int = 100) -> list[DeadLetterGroup]:
    rows = db.execute(
        """SELECT l.name, g.lane, g.cause, g.count FROM dead_groups g CROSS JOIN lanes l ON l.id = g.lane
           WHERE g.run = ? ORDER BY g.count DESC, g.lane, g.cause LIMIT ?""",
        (run, limit),
    ).fetchall()
    return [_group(db, run, *row) for row in rows]


def _group(db: sqlite3.Connection, run: int, name: str, lane: int, cause: str, count: int) -> DeadLetterGroup:
    inside = "FROM dead WHERE run = ? AND lane = ? AND cause = ?"
    (first,) = db.execute(f"SELECT min(ended_at) {inside}", (run, lane, cause)).fetchone()
    url, past, last = db.execute(
        f"SELECT url, history, ended_at {inside} ORDER BY ended_at DESC LIMIT 1", (run, lane, cause)
    ).fetchone()
    attempts = read_attempts(past)
    return DeadLetterGroup(name, cause, count, url, attempts[-1].message if attempts else "", first, last)


def skipped(db: sqlite3.Connection, now: int, run: int, limit: int = 100) -> list[tuple[str, str]]:
    return db.execute(
        "SELECT reason, url FROM skip_samples WHERE run = ? ORDER BY reason, url LIMIT ?", (run, limit)
    ).fetchall()


def ids(db: sqlite3.Connection, now: int, run: int, digests: Sequence[bytes]) -> list[int]:
    return identity.owners(db, run, digests)
