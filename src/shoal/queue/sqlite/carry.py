"""Carry: a run on its way to another queue, and one that comes from there."""

from __future__ import annotations

import sqlite3
from binascii import a2b_base64
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS, Run
from shoal.core.stats import Stats
from shoal.core.task import ALONE, Ask, Attempt, Carried, Task, band
from shoal.errors import Usage
from shoal.queue.base import StoredRecord
from shoal.queue.sqlite import identity, lanes, runs
from shoal.queue.sqlite.account import counters
from shoal.queue.sqlite.admit import FARTHEST, more_ready
from shoal.queue.sqlite.lanes import SECOND, micros

NUMBER = (1 << TASK_BITS) - 1
FULL_DIGEST = 16
_encode = msgspec.json.Encoder().encode
_decode_attempts = msgspec.json.Decoder(tuple[Attempt, ...]).decode
_decode_ask = msgspec.json.Decoder(Ask).decode

# One shape for all tables: id, lane, url, kind, priority, depth, parent, attempts, lost, added_at, history,
# state, delay from, expires_at, meta, ask, cause, ended_at, evidence, first_record, records
_SHARED = (
    "t.id, l.name, t.url, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, t.history"
)
_SHAPES = {
    "tasks": "CASE WHEN r.leftovers OR t.state = 3 THEN 'cancelled' ELSE 'ready' END, iif(t.state = 2, t.due, 0),"
    " t.expires_at, t.meta, t.ask, '', 0, NULL, 0, 0",
    "ended": "t.state, 0, NULL, NULL, NULL, t.cause, t.ended_at, NULL, t.first_record, t.records",
    "cancelled": "t.state, 0, NULL, NULL, NULL, t.cause, t.ended_at, NULL, t.first_record, t.records",
    "dead": "'dead', 0, t.expires_at, t.meta, t.ask, t.cause, t.ended_at, t.evidence, 0, 0",
}


def out(db: sqlite3.Connection, now: int, run: int, after: int, limit: int) -> list[Carried]:
    about = runs.get(db, run)
    if about.state == "running":
        raise Usage(
            f"run {about.name} is running: it cannot be carried to another queue",
            hint=f"pause it first: shoal pause {about.name}",
        )
    _order(db, about)
    base = run << TASK_BITS
    digests = dict(
        db.execute(
            "SELECT task, digest FROM carried WHERE own AND task > ? ORDER BY task LIMIT ?",
            (base + after, limit),
        ).fetchall()
    )
    if not digests:
        return []
    also: dict[int, list[bytes]] = defaultdict(list)
    for task, name in db.execute(
        "SELECT task, digest FROM carried WHERE NOT own AND task > ? AND task <= ?",
        (base + after, max(digests)),
    ).fetchall():
        also[task].append(_digest(name))
    rows = _rows(db, digests)
    return [
        _packed(now, task, _digest(name), tuple(also[task]), rows.get(task)) for task, name in digests.items()
    ]


def _order(db: sqlite3.Connection, run: Run) -> None:
    """The seen-set by number: it is kept by digest, and sorting it for every page would take for ever."""
    account = counters(db, run.id)
    state = f"{run.id} {run.changed_at} {account['seen']} {account['done']}"
    db.execute("CREATE TEMP TABLE IF NOT EXISTS carried_of (state TEXT)")
    if db.execute("SELECT 1 FROM carried_of WHERE state = ?", (state,)).fetchone():
        return
    db.execute("DROP TABLE IF EXISTS temp.carried")
    db.execute(
        "CREATE TEMP TABLE carried (own INTEGER, task INTEGER, digest TEXT, PRIMARY KEY (own, task, digest)) WITHOUT ROWID"
    )
    db.execute(
        "INSERT INTO carried SELECT task > 0, abs(task), digest FROM seen WHERE run = ? ORDER BY task > 0, abs(task)",
        (run.id,),
    )
    db.execute("DELETE FROM carried_of")
    db.execute("INSERT INTO carried_of VALUES (?)", (state,))


def _digest(name: str) -> bytes:
    return a2b_base64(name + "=" * (-len(name) % 4))


def _rows(db: sqlite3.Connection, tasks: Iterable[int]) -> dict[int, tuple[Any, ...]]:
    chosen = _encode(list(tasks)).decode()
    found: dict[int, tuple[Any, ...]] = {}
    for table, shape in _SHAPES.items():
        join = "JOIN runs r ON r.id = t.run" if table == "tasks" else ""
        rows = db.execute(
            f"""SELECT {_SHARED}, {shape} FROM json_each(?) j CROSS JOIN {table} t ON t.id = j.value
                {join} LEFT JOIN lanes l ON l.id = t.lane""",
            (chosen,),
        ).fetchall()
        found.update((row[0], row) for row in rows)
    return found


def _packed(
    now: int, task: int, digest: bytes, also: tuple[bytes, ...], row: tuple[Any, ...] | None
) -> Carried:
    if row is None:
        return Carried(task & NUMBER, Task("", "", digest), "seen", also=also)
    (
        _, lane, url, kind, priority, depth, parent, attempts, lost, added_at, past,
        state, due, expires_at, meta, ask, cause, ended_at, evidence, first_record, records,
    ) = row  # fmt: skip
    open_ = state in ("ready", "dead")
    return Carried(
        number=task & NUMBER,
        task=Task(
            url, lane or "", digest, kind, priority, depth,
            parent=None if parent is None else parent & NUMBER,
            meta=msgspec.json.decode(meta) if meta and open_ else None,
            delay=max(0, due - now) / SECOND if due and state == "ready" else 0.0,
            ttl=(expires_at - now) / SECOND if expires_at is not None and open_ else None,
            ask=_decode_ask(ask) if ask and open_ else None,
        ),
        state=state, attempts=attempts, lost=lost, added_at=added_at, finished_at=ended_at, cause=cause,
        history=_decode_attempts(past) if past else (),
        evidence=msgspec.json.decode(evidence) if evidence else None,
        first_record=first_record, records=records, also=also,
    )  # fmt: skip


def take(
    db: sqlite3.Connection,
    now: int,
    run: int,
    tasks: Sequence[Carried],
    records: Sequence[StoredRecord],
    paces: Mapping[str, Pace],
    counts: Stats | None,
) -> None:
    about = runs.get(db, run)
    if about.state != "paused":
        raise Usage(
            f"run {about.name} is {about.state}: only a paused run takes over what another queue carried out",
            hint=f"pause it first: shoal pause {about.name}",
        )
    if tasks:
        _take_tasks(db, now, about, tasks, paces)
    if records:
        _take_records(db, run, records)
    if counts is not None:
        _take_counts(db, run, counts)


def _take_tasks(
    db: sqlite3.Connection, now: int, run: Run, tasks: Sequence[Carried], paces: Mapping[str, Pace]
) -> None:
    named = {identity.key(carried.task.digest): carried for carried in tasks}
    for name in identity.known(db, run.id, named):
        del named[name]
    _refuse_taken(db, run, named.values())
    places = dict.fromkeys(carried.task.lane for carried in tasks if carried.state != "seen")
    lane_ids = lanes.ensure(db, run.id, places, paces)
    account, ready = Counter[str](), Counter[int]()
    seen: list[tuple[int, str, int]] = []
    for name, carried in named.items():
        id = (run.id << TASK_BITS) + carried.number
        seen.append((run.id, name, id))
        seen += [(run.id, identity.key(other), -id) for other in carried.also]
        lane = lane_ids.get(carried.task.lane, 0)
        account["cancelled" if carried.state == "seen" else carried.state] += 1
        if carried.state == "ready":
            _insert_live(db, now, id, run.id, lane, carried)
            late = carried.task.delay > 0
            account["delayed"] += late
            ready[lane] += not late
        elif carried.state == "dead":
            _insert_dead(db, now, id, lane, carried)
        elif carried.state != "seen":
            _insert_ended(db, id, lane, carried)
    db.executemany("INSERT OR IGNORE INTO seen (run, digest, task) VALUES (?, ?, ?)", sorted(seen))
    short = any(len(digest) < FULL_DIGEST for it in named.values() for digest in (it.task.digest, *it.also))
    db.execute(
        """UPDATE runs SET seen = seen + ?, ready = ready + ?, delayed = delayed + ?, done = done + ?, dead = dead + ?,
             cancelled = cancelled + ?, short = short OR ?, next_task = max(next_task, ?), next_record = max(next_record, ?)
           WHERE id = ?""",
        (
            len(named), account["ready"], account["delayed"], account["done"], account["dead"], account["cancelled"],
            short, 1 + max(it.number for it in tasks), max(it.first_record + it.records for it in tasks), run.id,
        ),
    )  # fmt: skip
    more_ready(db, run.id, ready)
    lanes.wake(db, lane_ids.values())


def _refuse_taken(db: sqlite3.Connection, run: Run, tasks: Iterable[Carried]) -> None:
    if _rows(db, [(run.id << TASK_BITS) + carried.number for carried in tasks]):
        raise Usage(
            f"run {run.name} has tasks of its own under the same numbers",
            hint="carry the other run into a new one",
        )


def _text(value: object) -> str | None:
    return None if value is None else _encode(value).decode()


def _common(run: int, carried: Carried) -> dict[str, object]:
    task = carried.task
    return {
        "attempts": carried.attempts, "lost": carried.lost, "added_at": carried.added_at,
        "priority": max(-FARTHEST, min(task.priority, FARTHEST)), "depth": task.depth,
        "parent": None if task.parent is None else (run << TASK_BITS) + task.parent,
        "kind": task.kind, "url": task.url, "history": _text(carried.history) if carried.history else None,
    }  # fmt: skip


def _insert(db: sqlite3.Connection, table: str, values: Mapping[str, object]) -> None:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))


def _insert_live(db: sqlite3.Connection, now: int, id: int, run: int, lane: int, carried: Carried) -> None:
    task, late = carried.task, carried.task.delay > 0
    _insert(db, "tasks", _common(run, carried) | {
        "id": id, "run": run, "lane": lane, "state": 2 if late else 0,
        "band": ALONE if carried.lost else band(task.priority),
        # Among equals the oldest comes first, as it did where it came from.
        "due": now + micros(task.delay) if late else min(now, carried.added_at or now),
        "expires_at": None if task.ttl is None else now + micros(task.ttl),
        "meta": _text(task.meta), "ask": _text(task.ask),
    })  # fmt: skip


def _insert_dead(db: sqlite3.Connection, now: int, id: int, lane: int, carried: Carried) -> None:
    task = carried.task
    _insert(db, "dead", _common(id >> TASK_BITS, carried) | {
        "id": id, "run": id >> TASK_BITS, "lane": lane, "lease": 0, "gave_back": 0, "ended_at": carried.finished_at,
        "expires_at": None if task.ttl is None else now + micros(task.ttl),
        "meta": _text(task.meta), "ask": _text(task.ask),
        "cause": carried.cause, "evidence": _text(carried.evidence),
    })  # fmt: skip


def _insert_ended(db: sqlite3.Connection, id: int, lane: int, carried: Carried) -> None:
    _insert(db, "ended" if carried.state == "done" else "cancelled", _common(id >> TASK_BITS, carried) | {
        "id": id, "lane": lane, "lease": 0, "gave_back": 0, "ended_at": carried.finished_at,
        "state": carried.state, "cause": carried.cause,
        "first_record": carried.first_record, "records": carried.records,
    })  # fmt: skip


def _take_records(db: sqlite3.Connection, run: int, records: Sequence[StoredRecord]) -> None:
    base = run << TASK_BITS
    fresh = db.executemany(
        "INSERT OR IGNORE INTO records (id, task, data) VALUES (?, ?, ?)",
        [(base + it.seq, base + it.task, it.data.decode()) for it in records],
    ).rowcount
    db.execute(
        "UPDATE runs SET records = records + ?, next_record = max(next_record, ?) WHERE id = ?",
        (fresh, 1 + max(it.seq for it in records), run),
    )


def _take_counts(db: sqlite3.Connection, run: int, counts: Stats) -> None:
    db.execute(
        """UPDATE runs SET retries = ?1, lost = ?2, stale = ?3, bytes = ?4, records = records - trimmed + ?5, trimmed = ?5,
             next_record = max(next_record, ?5 + 1) WHERE id = ?6""",
        (counts.retries, counts.lost, counts.stale, counts.bytes, counts.trimmed, run),
    )
    db.execute("DELETE FROM skips WHERE run = ?", (run,))
    db.executemany(
        "INSERT INTO skips VALUES (?, ?, ?)",
        [(run, reason, count) for reason, count in counts.skipped.items()],
    )
