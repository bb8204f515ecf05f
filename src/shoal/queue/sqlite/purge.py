"""Purge: ended runs leave the file, a slice at a time, so that nobody waits for it long."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from shoal.core.run import TASK_BITS
from shoal.errors import UsageError
from shoal.queue.sqlite import lanes, runs, workers

SLICE = 2_000  # rows per transaction
LANE_COST = 4  # rows that take as long as what a run has in one lane
_PART = "DELETE FROM {table} WHERE id IN (SELECT id FROM {table} WHERE id >= ? AND id < ? {term} LIMIT ?)"
# What is leased goes last, with its leases.
_PARTS = [
    _PART.format(table=table, term=term)
    for table, term in (
        ("dead", ""),
        ("discarded", ""),
        ("tasks", "AND state IN (0, 2)"),
        ("ended", ""),
        ("cancelled", ""),
        ("records", ""),
        ("page_states", ""),
    )
]
_SEEN = "DELETE FROM seen WHERE run = ?1 AND digest IN (SELECT digest FROM seen WHERE run = ?1 LIMIT ?2)"
_OUTBOX = "DELETE FROM outbox WHERE seq IN (SELECT seq FROM outbox WHERE run = ? LIMIT ?)"


def choose(db: sqlite3.Connection, now: int, run: int | None, older_than: float | None) -> list[int]:
    if run is not None:
        chosen = runs.get(db, run)
        if chosen.state not in ("finished", "cancelled"):
            raise UsageError(
                f"run {chosen.name} is {chosen.state}: only ended runs can be removed", hint="cancel it first"
            )
        return [run]
    if older_than is None:
        return []
    workers.forget_silent(db, now, older_than)
    return runs.ended_before(db, now - lanes.micros(older_than))


def step(db: sqlite3.Connection, now: int, numbers: Sequence[int]) -> tuple[int, int]:
    """As many of these runs as can go at once: how many were dealt with, and how many of those went."""
    left, gone = SLICE, 0
    for at, run in enumerate(numbers):
        state = db.execute("SELECT state FROM runs WHERE id = ?", (run,)).fetchone()
        if state is None or state[0] not in ("finished", "cancelled"):
            continue  # somebody else removed it, or set it to work again
        left -= _delete_rows(db, run, left)
        if left < LANE_COST:
            # It has lost some already: nobody shall bring the rest back.
            db.execute("UPDATE runs SET state = 'cancelled', undo_until = 0 WHERE id = ?", (run,))
            return at, gone
        _remove(db, run)
        gone += 1
    return len(numbers), gone


def _delete_rows(db: sqlite3.Connection, run: int, most: int) -> int:
    """Some of the rows of a run."""
    first, last, count = run << TASK_BITS, (run + 1) << TASK_BITS, 0
    for part in _PARTS:
        count += db.execute(part, (first, last, most - count)).rowcount
    for part in (_SEEN, _OUTBOX):
        count += db.execute(part, (run, most - count)).rowcount
    dropped = lanes.drop_run_lanes(db, run, (most - count) // LANE_COST)
    return most if dropped >= lanes.LANES_PER_STEP else count + LANE_COST * dropped  # there may be more lanes


def _remove(db: sqlite3.Connection, run: int) -> None:
    """All that is left of it."""
    first, last = run << TASK_BITS, (run + 1) << TASK_BITS
    # One claim may hold tasks of several runs: only leases that hold nothing else go with this one.
    held = db.execute(
        "SELECT DISTINCT lease FROM tasks WHERE state IN (1, 3) AND id >= ? AND id < ?", (first, last)
    ).fetchall()
    db.execute("DELETE FROM tasks WHERE id >= ? AND id < ?", (first, last))
    db.executemany(
        "DELETE FROM leases WHERE number = ?1 AND NOT EXISTS (SELECT 1 FROM tasks WHERE state IN (1, 3) AND lease = ?1)",
        held,
    )
    for table in ("skips", "skip_samples", "run_needs", "run_counters"):
        db.execute(f"DELETE FROM {table} WHERE run = ?", (run,))
    db.execute("DELETE FROM runs WHERE id = ?", (run,))
