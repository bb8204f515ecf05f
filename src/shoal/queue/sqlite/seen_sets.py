"""Seen-sets: what runs of one name have had between them, kept when the runs are gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from shoal.core.seen_set import SWEEP_INTERVAL, hour_of, oldest_hour
from shoal.core.task import SHORT_DIGEST, Task
from shoal.queue.sqlite.lanes import SECOND, micros
from shoal.queue.values import SeenSet

ENTRY_BYTES = 19  # of one in the file, measured with a million of them
SLICE = 10_000  # entries looked at in one step
_OPEN = """INSERT INTO seen_sets (name, seen_for, created_at, changed_at, swept_at) VALUES (?1, ?2, ?3, ?3, ?3)
           ON CONFLICT (name) DO UPDATE SET seen_for = CASE ?2 WHEN 0 THEN seen_for ELSE ?2 END"""
_JOIN = "INSERT OR IGNORE INTO seen_entries (seen_set, digest, hour) VALUES (?, ?, ?)"
_JOIN_AGAIN = "UPDATE seen_entries SET hour = ? WHERE seen_set = ? AND digest = ? AND hour < ?"


class _Row(NamedTuple):
    id: int
    seen_for: int
    created_at: int


def open_set(db: sqlite3.Connection, now: int, name: str, seen_for: float) -> None:
    """What a new run says of its set."""
    if name:
        db.execute(_OPEN, (name, micros(seen_for), now))


def join(db: sqlite3.Connection, now: int, run: int, tasks: Iterable[Task]) -> list[Task]:
    """Put tasks that are new to a run into its seen-set; those that another run has had are told."""
    found = _set_of(db, now, run)
    if found is None:
        return []
    hour, oldest = hour_of(now, found.created_at), oldest_hour(now, found.created_at, found.seen_for)
    seen, joined, again = [], 0, 0
    # In the order of the key, neighbouring rows are written together.
    for task in sorted(tasks, key=lambda task: task.digest):
        digest = task.digest[:SHORT_DIGEST]
        if db.execute(_JOIN, (found.id, digest, hour)).rowcount:
            joined += 1
        elif oldest and db.execute(_JOIN_AGAIN, (hour, found.id, digest, oldest)).rowcount:
            again += 1
        elif not task.revisit:
            seen.append(task)
    if joined or again:
        db.execute("UPDATE seen_sets SET entries = entries + ?, changed_at = ? WHERE id = ?", (joined, now, found.id))
    return seen


def _set_of(db: sqlite3.Connection, now: int, run: int) -> _Row | None:
    name, seen_for = db.execute("SELECT seen_set, seen_for FROM runs WHERE id = ?", (run,)).fetchone()
    if not name:
        return None
    sql = "SELECT id, seen_for, created_at FROM seen_sets WHERE name = ?"
    row = db.execute(sql, (name,)).fetchone()
    if row is None:  # it was cleared
        open_set(db, now, name, seen_for / SECOND)
        row = db.execute(sql, (name,)).fetchone()
    return _Row(*row)


def sweep(db: sqlite3.Connection, now: int) -> None:
    """Remove a slice of what is remembered no more, and of sets that were cleared."""
    for id, seen_for, created_at, cursor in db.execute(
        "SELECT id, seen_for, created_at, cursor FROM seen_sets WHERE name IS NOT NULL AND seen_for > 0 AND swept_at <= ? LIMIT 1",
        (now - SWEEP_INTERVAL,),
    ).fetchall():
        _sweep_slice(db, now, id, cursor or b"", oldest_hour(now, created_at, seen_for))
    for (id,) in db.execute("SELECT id FROM seen_sets WHERE name IS NULL LIMIT 1").fetchall():
        clear_slice(db, now, id)


def _sweep_slice(db: sqlite3.Connection, now: int, id: int, cursor: bytes, oldest: int) -> None:
    last = db.execute(
        "SELECT digest FROM seen_entries WHERE seen_set = ? AND digest > ? ORDER BY digest LIMIT 1 OFFSET ?",
        (id, cursor, SLICE - 1),
    ).fetchone()
    upto = last[0] if last else b"\xff" * (SHORT_DIGEST + 1)
    gone = db.execute(
        "DELETE FROM seen_entries WHERE seen_set = ? AND digest > ? AND digest <= ? AND hour < ?",
        (id, cursor, upto, oldest),
    ).rowcount
    db.execute(
        "UPDATE seen_sets SET entries = entries - ?, cursor = ?, swept_at = iif(?, swept_at, ?) WHERE id = ?",
        (gone, upto if last else None, last is not None, now, id),
    )


def listing(db: sqlite3.Connection, now: int) -> list[SeenSet]:
    rows = db.execute(
        "SELECT name, entries, seen_for, created_at, changed_at FROM seen_sets WHERE name IS NOT NULL ORDER BY name"
    ).fetchall()
    return [
        SeenSet(name, entries, entries * ENTRY_BYTES, seen_for / SECOND, created_at, changed_at)
        for name, entries, seen_for, created_at, changed_at in rows
    ]


def forget(db: sqlite3.Connection, now: int, name: str, digests: Sequence[bytes]) -> int:
    row = db.execute("SELECT id FROM seen_sets WHERE name = ?", (name,)).fetchone()
    if row is None:
        return 0
    gone = sum(
        db.execute(
            "DELETE FROM seen_entries WHERE seen_set = ? AND digest = ?", (row[0], digest[:SHORT_DIGEST])
        ).rowcount
        for digest in digests
    )
    db.execute("UPDATE seen_sets SET entries = entries - ? WHERE id = ?", (gone, row[0]))
    return gone


def clear(db: sqlite3.Connection, now: int, name: str) -> tuple[int, int]:
    """Nobody finds the set any more; its number, and how many are in it. They go in slices."""
    row = db.execute("UPDATE seen_sets SET name = NULL WHERE name = ? RETURNING id, entries", (name,)).fetchone()
    return (row[0], row[1]) if row else (0, 0)


def clear_slice(db: sqlite3.Connection, now: int, id: int) -> bool:
    """Remove some entries of a set that was cleared; False: it is gone."""
    gone = db.execute(
        "DELETE FROM seen_entries WHERE seen_set = ?1 AND digest IN (SELECT digest FROM seen_entries WHERE seen_set = ?1 LIMIT ?2)",
        (id, SLICE),
    ).rowcount
    if gone == SLICE:
        return True
    db.execute("DELETE FROM seen_sets WHERE id = ? AND name IS NULL", (id,))
    return False
