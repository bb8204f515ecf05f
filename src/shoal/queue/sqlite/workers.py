"""Workers: who is there, what they say of themselves, and what people asked of them."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from shoal.core.lane import WorkerStatus
from shoal.queue.base import MAX_COUNTERS_BYTES
from shoal.queue.cells import UNREADABLE
from shoal.queue.sqlite.lanes import micros


class WorkerDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """What nobody searches for."""

    serves: tuple[str, ...] = ()
    code: str = ""
    done: int = 0
    failed: int = 0
    memory: int = 0
    capabilities: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(WorkerDetails).decode


def register(db: sqlite3.Connection, now: int, status: WorkerStatus) -> str:
    details = WorkerDetails(status.serves, status.code, status.done, status.failed, status.memory, status.capabilities)
    counters = status.counters if len(status.counters) <= MAX_COUNTERS_BYTES else b""
    row = db.execute(
        """INSERT INTO workers (id, name, host, pid, version, started_at, seen_at, state, activity, details, counters)
           VALUES (?1, ?2, ?3, ?4, ?5, iif(?6, ?6, ?7), ?7, ?8, ?9, ?10, ?11)
           ON CONFLICT DO UPDATE SET name = ?2, host = ?3, pid = ?4, version = ?5, started_at = iif(?6, ?6, started_at),
             seen_at = ?7, state = ?8, activity = ?9, details = ?10, counters = ?11
           RETURNING command""",
        (
            status.id, status.name, status.host, status.pid, status.version, status.started_at, now,
            status.state, status.activity, msgspec.json.encode(details).decode(), counters,
        ),
    ).fetchone()  # fmt: skip
    return str(row[0])


def set_command(db: sqlite3.Connection, now: int, worker: str, command: str) -> bool:
    return bool(db.execute("UPDATE workers SET command = ? WHERE id = ?", (command, worker)).rowcount)


def listing(db: sqlite3.Connection, now: int) -> list[WorkerStatus]:
    rows = db.execute(
        """SELECT w.id, w.name, w.host, w.pid, w.version, w.started_at, w.seen_at, w.state, w.activity,
                  ifnull(x.held, 0), w.details, w.command, w.counters
           FROM workers w LEFT JOIN (SELECT worker, sum(open) AS held FROM leases GROUP BY worker) x ON x.worker = w.id
           ORDER BY w.started_at, w.id"""
    ).fetchall()
    return [_worker_status(row) for row in rows]


def _worker_status(row: tuple[Any, ...]) -> WorkerStatus:
    try:
        details = _decode(row[10])
    except UNREADABLE:
        details = WorkerDetails()
    status = WorkerStatus(*row[:10])
    return msgspec.structs.replace(status, **msgspec.structs.asdict(details), command=row[11], counters=row[12])


def forget(db: sqlite3.Connection, now: int, worker: str) -> None:
    db.execute("DELETE FROM workers WHERE id = ?", (worker,))


def forget_silent(db: sqlite3.Connection, now: int, seconds: float) -> None:
    db.execute("DELETE FROM workers WHERE seen_at < ?", (now - micros(seconds),))
