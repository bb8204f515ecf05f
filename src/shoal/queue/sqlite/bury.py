"""Bury: live tasks become dead letters, with what a person needs to judge them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable

import msgspec

from shoal.core.task import Attempt
from shoal.queue.sqlite import lanes

HISTORY_LIMIT = 20
_encode = msgspec.json.Encoder().encode
_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode

_MOVE = """INSERT OR REPLACE INTO dead (id, run, lease, gave_back, lane, ended_at, added_at, expires_at, attempts, lost, priority, depth, parent, kind, url, meta, ask, cause, history, evidence)
           SELECT id, run, lease, gave_back, lane, ?, added_at, expires_at, ?, lost, priority, depth, parent, kind, url, meta, ask, ?, ?, ? FROM tasks WHERE id = ?"""


def history(text: str | None, attempt: Attempt | None) -> str | None:
    """The history of a task with one more attempt; the first and the newest are kept."""
    if attempt is None:
        return text
    known = _decode_attempts(text) if text else []
    known.append(attempt)
    if len(known) > HISTORY_LIMIT:
        del known[1 : len(known) - HISTORY_LIMIT + 1]
    return _encode(known).decode()


def entomb(
    db: sqlite3.Connection,
    now: int,
    task: int,
    *,
    attempts: int,
    cause: str,
    past: str | None,
    evidence: object = None,
) -> None:
    """Move one live task to the dead letters; the caller keeps the account."""
    db.execute(
        _MOVE, (now, attempts, cause, past, None if evidence is None else _encode(evidence).decode(), task)
    )
    db.execute("DELETE FROM tasks WHERE id = ?", (task,))


def expire(db: sqlite3.Connection, now: int, tasks: Iterable[int]) -> int:
    """End waiting tasks whose time to live ran out; says how many."""
    places: Counter[tuple[int, int, int]] = Counter()
    for task in tasks:
        row = db.execute(
            "SELECT run, lane, state, attempts, history FROM tasks WHERE id = ? AND state IN (0, 2)", (task,)
        ).fetchone()
        if row is None:
            continue
        run, lane, state, attempts, past = row
        message = "its time to live ran out while it waited"
        entomb(
            db,
            now,
            task,
            attempts=attempts,
            cause="expired",
            past=history(past, Attempt(now, "", "expired", message)),
        )
        places[run, lane, state] += 1
    for (run, lane, state), count in places.items():
        delayed = count if state == 2 else 0
        db.execute(
            "UPDATE runs SET ready = ready - ?1, delayed = delayed - ?2, dead = dead + ?1 WHERE id = ?3",
            (count, delayed, run),
        )
        db.execute(
            "UPDATE heads SET ready = ready - ? WHERE run = ? AND lane = ?", (count - delayed, run, lane)
        )
    lanes.wake(db, {lane for _, lane, _ in places})
    return sum(places.values())
