"""Reap: what dead workers held goes back, and what nobody came for in time is ended."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

import msgspec

from shoal.core.task import ISOLATED, Attempt
from shoal.queue.base import LEASE_SECONDS, LOST_LIMIT, ExtendResult, ReapResult
from shoal.queue.cells import UNREADABLE
from shoal.queue.sqlite import dead_letter, failing, idle_lanes, lanes, needs, runs, seen_sets
from shoal.queue.sqlite.lanes import micros

_decode_ids = msgspec.json.Decoder(list[int]).decode
LEASES_PER_CALL = 200
EXPIRED_PER_CALL = 1000
_HELD = "SELECT id, run, lane, attempts, lost, due, history, state, auto_ack, needs FROM tasks WHERE state IN (1, 3) AND lease = ?"


def reap(db: sqlite3.Connection, now: int, dead_workers: Mapping[str, Collection[int]] | None = None) -> ReapResult:
    dead_workers = dead_workers or {}
    returned = dead = 0
    for number, worker, started in _lost_leases(db, now, dead_workers):
        if worker in dead_workers:
            charged: Collection[int] | None = dead_workers[worker]
        else:
            charged = _started(started)
        back, dead_lettered = _return_tasks(db, now, number, worker, charged)
        returned += back
        dead += dead_lettered
    over = [
        row[0]
        for row in db.execute(
            """SELECT t.id FROM runs r CROSS JOIN tasks t ON t.run = r.id AND t.expires_at IS NOT NULL AND t.expires_at <= ?
               WHERE r.state IN ('running', 'paused') AND t.state IN (0, 2) LIMIT ?""",
            (now, EXPIRED_PER_CALL),
        ).fetchall()
    ]
    expired = dead_letter.expire(db, now, over) if over else 0
    for (run,) in db.execute("SELECT id FROM runs WHERE state IN ('running', 'paused') AND max_pages > 0").fetchall():
        runs.stop_at_limit(db, now, run)  # tasks that expired or lost their workers count as ended too
    dead_letter.discard(db, now)
    runs.sweep(db, now)
    seen_sets.sweep(db, now)
    failing.forget_old(db, now)
    idle_lanes.remove(db, now)
    return ReapResult(returned, dead, expired)


def _lost_leases(
    db: sqlite3.Connection, now: int, dead_workers: Mapping[str, object]
) -> list[tuple[int, str, str | None]]:
    found = db.execute(
        "SELECT number, worker, started FROM leases WHERE expires_at <= ? ORDER BY number LIMIT ?",
        (now, LEASES_PER_CALL),
    ).fetchall()
    for worker in dead_workers:
        found += db.execute(
            "SELECT number, worker, started FROM leases WHERE worker = ? AND expires_at > ?", (worker, now)
        ).fetchall()
    return found


def _return_tasks(
    db: sqlite3.Connection, now: int, number: int, worker: str, charged: Collection[int] | None
) -> tuple[int, int]:
    counters: dict[int, Counter[str]] = defaultdict(Counter)
    in_flight: Counter[int] = Counter()
    ready: dict[int, Counter[needs.Place]] = defaultdict(Counter)
    for task, run, lane, attempts, lost, due, past, state, auto_ack, needed in db.execute(_HELD, (number,)).fetchall():
        if state == 3:  # cancelled with its run; nobody will bring its records any more
            runs.keep_returned(db, now, task, run, lane, needed) if not auto_ack else _forget(db, task)
            continue
        in_flight[lane] += 1
        counters[run]["leased"] -= 1
        if auto_ack:
            dead_letter.move_to_dead_unacknowledged(db, now, task, worker, attempts, past)
            counters[run]["dead"] += 1
            continue
        is_charged = charged is None or task in charged
        lost += is_charged
        counters[run]["lost"] += is_charged
        if is_charged:
            past = dead_letter.history(
                past, Attempt(now, worker, "worker_lost", "the worker died or went silent while it held this task")
            )
        if lost >= LOST_LIMIT:
            db.execute("UPDATE tasks SET lost = ?, lease = 0 WHERE id = ?", (lost, task))
            dead_letter.move_to_dead(db, now, task, attempts=attempts, cause="worker_lost", past=past)
            counters[run]["dead"] += 1
            continue
        # lease = 0 is the fence: whoever still holds the old number is stale from now on.
        db.execute(
            f"UPDATE tasks SET state = 0, lease = 0, lost = ?1, band = iif(?1, {ISOLATED}, band), due = ?2, history = ?3 WHERE id = ?4 AND state = 1 AND lease = ?5",
            (lost, due, past, task, number),
        )
        counters[run]["ready"] += 1
        ready[run][lane, needed] += 1
    db.execute("DELETE FROM leases WHERE number = ?", (number,))
    for run, change in counters.items():
        db.execute(
            "UPDATE runs SET leased = leased + ?, ready = ready + ?, dead = dead + ?, lost = lost + ? WHERE id = ?",
            (change["leased"], change["ready"], change["dead"], change["lost"], run),
        )
    for run, places in ready.items():
        needs.change_ready(db, run, places)
    db.executemany(
        "UPDATE lanes SET in_flight = in_flight - ? WHERE id = ?", [(n, lane) for lane, n in in_flight.items()]
    )
    lanes.wake(db, in_flight)
    return sum(change["ready"] for change in counters.values()), sum(change["dead"] for change in counters.values())


def _forget(db: sqlite3.Connection, task: int) -> None:
    db.execute("DELETE FROM tasks WHERE id = ?", (task,))


def _started(text: str | None) -> Collection[int] | None:
    """The tasks of a lease that were begun; None, which is all, where nobody knows."""
    try:
        return None if text is None else _decode_ids(text)
    except UNREADABLE:
        return None


def extend(
    db: sqlite3.Connection,
    now: int,
    worker: str,
    leases: Mapping[int, Collection[int]],
    *,
    lease: float = LEASE_SECONDS,
) -> ExtendResult:
    lost: set[int] = set()
    cancelled: set[int] = set()
    for number, started in leases.items():
        rows = db.execute(
            "SELECT id FROM tasks WHERE state IN (1, 3) AND lease = ? AND state = 3", (number,)
        ).fetchall()
        gone = {row[0] for row in rows}  # nobody executes these from here on
        row = db.execute(
            "UPDATE leases SET expires_at = max(expires_at, ?), started = ? WHERE number = ? AND worker = ? AND expires_at > ? RETURNING number",
            (
                now + micros(lease),
                msgspec.json.encode([it for it in started if it not in gone]).decode(),
                number,
                worker,
                now,
            ),
        ).fetchone()
        if row is None:
            lost.add(number)
        else:
            cancelled |= gone
    return ExtendResult(frozenset(lost), frozenset(cancelled))
