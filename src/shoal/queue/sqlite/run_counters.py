"""Counters of a run: what its outcomes count by name, one row that is read and written as a whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping

import msgspec

from shoal.core.run_counters import add_bounded
from shoal.queue.base import MAX_COUNTER_NAMES
from shoal.queue.cells import read_counts
from shoal.queue.sqlite import runs


def read(db: sqlite3.Connection, now: int, run: int) -> dict[str, int]:
    row = db.execute("SELECT counts FROM run_counters WHERE run = ?", (run,)).fetchone()
    if row is None:
        runs.get(db, run)  # says that there is none
        return {}
    return read_counts(row[0])


def add(db: sqlite3.Connection, run: int, more: Mapping[str, int]) -> None:
    row = db.execute("SELECT counts FROM run_counters WHERE run = ?", (run,)).fetchone()
    counts = read_counts(row[0]) if row else {}
    add_bounded(counts, more, MAX_COUNTER_NAMES)
    write(db, run, counts)


def write(db: sqlite3.Connection, run: int, counts: Mapping[str, int]) -> None:
    db.execute("INSERT OR REPLACE INTO run_counters VALUES (?, ?)", (run, msgspec.json.encode(counts).decode()))
