"""Reap: what dead workers held goes back, and what nobody came for in time is ended."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

import msgspec

from shoal.core.task import ALONE, Attempt, band
from shoal.queue.base import LOST_LIMIT, Extended, Reaped
from shoal.queue.sqlite import bury, lanes, runs
from shoal.queue.sqlite.admit import more_ready
from shoal.queue.sqlite.lanes import micros

LEASES_PER_CALL = 200
EXPIRED_PER_CALL = 1000
_HELD = "SELECT id, run, lane, attempts, lost, priority, due, history, state FROM tasks WHERE state IN (1, 3) AND lease = ?"


def reap(db: sqlite3.Connection, now: int, dead_workers: Mapping[str, Collection[int]]) -> Reaped:
    returned = dead = 0
    for number, worker, started in _lost_leases(db, now, dead_workers):
        if worker in dead_workers:
            charged: Collection[int] | None = dead_workers[worker]
        else:
            charged = None if started is None else msgspec.json.decode(started)
        back, buried = _give_back(db, now, number, worker, charged)
        returned += back
        dead += buried
    over = [
        row[0]
        for row in db.execute(
            "SELECT t.id FROM tasks t JOIN runs r ON r.id = t.run WHERE t.expires_at IS NOT NULL AND t.expires_at <= ? AND t.state IN (0, 2) AND NOT r.leftovers ORDER BY t.expires_at LIMIT ?",
            (now, EXPIRED_PER_CALL),
        ).fetchall()
    ]
    expired = bury.expire(db, now, over) if over else 0
    for (run,) in db.execute(
        "SELECT id FROM runs WHERE state IN ('running', 'paused') AND max_pages > 0"
    ).fetchall():
        runs.stop_at_limit(db, now, run)  # tasks that expired or lost their workers count as ended too
    runs.sweep(db, now)
    return Reaped(returned, dead, expired)


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


def _give_back(
    db: sqlite3.Connection, now: int, number: int, worker: str, charged: Collection[int] | None
) -> tuple[int, int]:
    account: dict[int, Counter[str]] = defaultdict(Counter)
    in_flight: Counter[int] = Counter()
    ready: dict[int, Counter[int]] = defaultdict(Counter)
    for task, run, lane, attempts, lost, priority, due, past, state in db.execute(
        _HELD, (number,)
    ).fetchall():
        if state == 3:  # cancelled with its run; nobody will bring its records any more
            db.execute("DELETE FROM tasks WHERE id = ?", (task,))
            continue
        in_flight[lane] += 1
        account[run]["leased"] -= 1
        guilty = charged is None or task in charged
        lost += guilty
        account[run]["lost"] += guilty
        if guilty:
            past = bury.history(
                past,
                Attempt(now, worker, "worker_lost", "the worker died or fell silent while it held this task"),
            )
        if lost >= LOST_LIMIT:
            db.execute("UPDATE tasks SET lost = ?, lease = 0 WHERE id = ?", (lost, task))
            bury.entomb(db, now, task, attempts=attempts, cause="worker_lost", past=past)
            account[run]["dead"] += 1
            continue
        # lease = 0 is the fence: whoever still holds the old number is stale from now on.
        db.execute(
            "UPDATE tasks SET state = 0, lease = 0, lost = ?, band = ?, due = ?, history = ? WHERE id = ? AND state = 1 AND lease = ?",
            (lost, ALONE if lost else band(priority), due, past, task, number),
        )
        account[run]["ready"] += 1
        ready[run][lane] += 1
    db.execute("DELETE FROM leases WHERE number = ?", (number,))
    for run, change in account.items():
        db.execute(
            "UPDATE runs SET leased = leased + ?, ready = ready + ?, dead = dead + ?, lost = lost + ? WHERE id = ?",
            (change["leased"], change["ready"], change["dead"], change["lost"], run),
        )
    for run, places in ready.items():
        more_ready(db, run, places)
    db.executemany(
        "UPDATE lanes SET in_flight = in_flight - ? WHERE id = ?",
        [(n, lane) for lane, n in in_flight.items()],
    )
    lanes.wake(db, in_flight)
    return sum(change["ready"] for change in account.values()), sum(
        change["dead"] for change in account.values()
    )


def extend(
    db: sqlite3.Connection, now: int, worker: str, leases: Mapping[int, Collection[int]], lease: float
) -> Extended:
    lost: set[int] = set()
    cancelled: set[int] = set()
    for number, started in leases.items():
        row = db.execute(
            "UPDATE leases SET expires_at = max(expires_at, ?), started = ? WHERE number = ? AND worker = ? AND expires_at > ? RETURNING number",
            (now + micros(lease), msgspec.json.encode(list(started)).decode(), number, worker, now),
        ).fetchone()
        if row is None:
            lost.add(number)
            continue
        cancelled.update(
            row[0]
            for row in db.execute(
                "SELECT id FROM tasks WHERE state IN (1, 3) AND lease = ? AND state = 3", (number,)
            ).fetchall()
        )
    return Extended(frozenset(lost), frozenset(cancelled))
