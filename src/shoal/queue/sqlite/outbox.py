"""Outbox: what settled tasks want done elsewhere, until whoever drains it says that it was done."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection

import msgspec

from shoal.queue.base import StoredEntry


def listing(db: sqlite3.Connection, now: int, kind: str, *, after: int = 0, limit: int = 1000) -> list[StoredEntry]:
    rows = db.execute(
        "SELECT seq, run, kind, key, data FROM outbox WHERE kind = ? AND seq > ? ORDER BY seq LIMIT ?",
        (kind, after, limit),
    ).fetchall()
    return [StoredEntry(*row) for row in rows]


def acknowledge(db: sqlite3.Connection, now: int, seqs: Collection[int]) -> int:
    chosen = (msgspec.json.encode(list(seqs)).decode(),)
    runs = db.execute(
        """SELECT o.run, count(*) FROM (SELECT DISTINCT value FROM json_each(?)) j CROSS JOIN outbox o ON o.seq = j.value
           GROUP BY o.run""",
        chosen,
    ).fetchall()
    if runs:
        db.execute("DELETE FROM outbox WHERE seq IN (SELECT value FROM json_each(?))", chosen)
        db.executemany("UPDATE runs SET outbox = outbox - ? WHERE id = ?", [(count, run) for run, count in runs])
    return sum(count for _, count in runs)
