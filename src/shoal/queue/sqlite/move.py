"""Export and import: a run is moved to another queue, or comes from one."""

from __future__ import annotations

import sqlite3
from binascii import a2b_base64
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from shoal.core.capability import Needs, capability_names
from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS, Run
from shoal.core.stats import Stats
from shoal.core.task import ISOLATED, ExportedTask, Task, band
from shoal.errors import UsageError
from shoal.queue.base import StoredRecord
from shoal.queue.cells import read_attempts, read_moved, read_object
from shoal.queue.outbox_limits import outbox_pending
from shoal.queue.sqlite import identity, lanes, needs, run_counters, runs, seen_sets
from shoal.queue.sqlite.admit import MAX_PRIORITY, mask_of_bands
from shoal.queue.sqlite.lanes import SECOND, micros
from shoal.queue.sqlite.stats import counters as account

NUMBER = (1 << TASK_BITS) - 1
FULL_DIGEST = 16
IDENTITY_ONLY = ("seen", "discarded")  # states of which nothing else is left
_encode = msgspec.json.Encoder().encode

# One shape for all tables: id, lane, url, kind, priority, depth, parent, attempts, lost, added_at, history,
# state, delay from, expires_at, meta, request_options, cause, ended_at, evidence, first_record, records, auto_ack, needs
_SHARED = "t.id, l.name, t.url, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, t.history"
_SHAPES = {
    "tasks": "CASE WHEN r.leftovers OR t.state = 3 THEN 'cancelled' ELSE 'ready' END, iif(t.state = 2, t.due, 0),"
    " t.expires_at, t.meta, t.request_options, '', 0, NULL, 0, 0, t.auto_ack, t.needs",
    "ended": "t.state, 0, NULL, NULL, NULL, t.cause, t.ended_at, NULL, t.first_record, t.records, 0, 0",
    "cancelled": "t.state, 0, NULL, NULL, NULL, t.cause, t.ended_at, NULL, t.first_record, t.records, 0, 0",
    "dead": "'dead', 0, t.expires_at, t.meta, t.request_options, t.cause, t.ended_at, t.evidence, 0, 0, t.auto_ack, t.needs",
}


def export_run(db: sqlite3.Connection, now: int, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
    about = runs.get(db, run)
    if about.state == "running":
        raise UsageError(
            f"run {about.name} is running: it cannot be exported to another queue",
            hint=f"pause it first: shoal pause {about.name}",
        )
    if entries := account(db, run)["outbox"]:
        raise outbox_pending(about.name, entries, "it cannot be moved")
    _sort_seen(db, about)
    base = run << TASK_BITS
    digests = dict(
        db.execute(
            "SELECT task, digest FROM exported WHERE own AND task > ? ORDER BY task LIMIT ?", (base + after, limit)
        ).fetchall()
    )
    if not digests:
        return []
    aliases: dict[int, list[bytes]] = defaultdict(list)
    for task, name in db.execute(
        "SELECT task, digest FROM exported WHERE NOT own AND task > ? AND task <= ?", (base + after, max(digests))
    ).fetchall():
        aliases[task].append(_digest(name))
    rows, names, gone = _rows(db, digests), needs.names(db, run), _discarded(db, digests)
    return [
        _exported_task(now, task, _digest(name), tuple(aliases[task]), names, rows.get(task), discarded=task in gone)
        for task, name in digests.items()
    ]


def _sort_seen(db: sqlite3.Connection, run: Run) -> None:
    """The seen-set by number: it is kept by digest, and sorting it for every page would take for ever."""
    totals = account(db, run.id)
    state = f"{run.id} {run.changed_at} {totals['seen']} {totals['done']}"
    db.execute("CREATE TEMP TABLE IF NOT EXISTS exported_of (state TEXT)")
    if db.execute("SELECT 1 FROM exported_of WHERE state = ?", (state,)).fetchone():
        return
    db.execute("DROP TABLE IF EXISTS temp.exported")
    db.execute(
        "CREATE TEMP TABLE exported (own INTEGER, task INTEGER, digest TEXT, PRIMARY KEY (own, task, digest)) WITHOUT ROWID"
    )
    db.execute(
        "INSERT INTO exported SELECT task > 0, abs(task), digest FROM seen WHERE run = ? ORDER BY task > 0, abs(task)",
        (run.id,),
    )
    db.execute("DELETE FROM exported_of")
    db.execute("INSERT INTO exported_of VALUES (?)", (state,))


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


def _discarded(db: sqlite3.Connection, tasks: Iterable[int]) -> set[int]:
    chosen = _encode(list(tasks)).decode()
    rows = db.execute("SELECT d.id FROM json_each(?) j CROSS JOIN discarded d ON d.id = j.value", (chosen,))
    return {row[0] for row in rows.fetchall()}


def _exported_task(
    now: int,
    task: int,
    digest: bytes,
    aliases: tuple[bytes, ...],
    names: Mapping[int, Needs],
    row: tuple[Any, ...] | None,
    *,
    discarded: bool,
) -> ExportedTask:
    if row is None:
        left: Literal["discarded", "seen"] = "discarded" if discarded else "seen"
        return ExportedTask(task & NUMBER, Task("", "", digest), left, aliases=aliases)
    (
        _, lane, url, kind, priority, depth, parent, attempts, lost, added_at, past,
        state, due, expires_at, meta, request_options, cause, ended_at, evidence, first_record, records, auto_ack, needed,
    ) = row  # fmt: skip
    open_ = state in ("ready", "dead")
    read_meta, options = read_moved(url, meta or None, request_options or None) if open_ else (None, None)
    return ExportedTask(
        number=task & NUMBER,
        task=Task(
            url, lane or "", digest, kind, priority, depth,
            parent=None if parent is None else parent & NUMBER,
            meta=read_meta,
            delay=max(0, due - now) / SECOND if due and state == "ready" else 0.0,
            ttl=(expires_at - now) / SECOND if expires_at is not None and open_ else None,
            request_options=options,
            ack="auto" if auto_ack else "manual", needs=names.get(needed, ()) if open_ else (),
        ),
        state=state, attempts=attempts, lost=lost, added_at=added_at, finished_at=ended_at, cause=cause,
        history=tuple(read_attempts(past)),
        evidence=read_object(evidence),
        first_record=first_record, records=records, aliases=aliases,
    )  # fmt: skip


def import_run(
    db: sqlite3.Connection,
    now: int,
    run: int,
    tasks: Sequence[ExportedTask],
    records: Sequence[StoredRecord] = (),
    *,
    paces: Mapping[str, Pace] | None = None,
    counts: Stats | None = None,
    counters: Mapping[str, int] | None = None,
) -> None:
    about = runs.get(db, run)
    if about.state != "paused":
        raise UsageError(
            f"run {about.name} is {about.state}: only a paused run can receive an export",
            hint=f"pause it first: shoal pause {about.name}",
        )
    if tasks:
        _import_tasks(db, now, about, tasks, paces or {})
    if records:
        _import_records(db, run, records)
    if counts is not None:
        _import_counts(db, run, counts)
    if counters is not None:
        run_counters.write(db, run, counters)


def _import_tasks(
    db: sqlite3.Connection, now: int, run: Run, tasks: Sequence[ExportedTask], paces: Mapping[str, Pace]
) -> None:
    named = {identity.key(exported.task.digest): exported for exported in tasks}
    for name in identity.known(db, run.id, named):
        del named[name]
    _refuse_duplicate_numbers(db, run, named.values())
    seen_sets.join(db, now, run.id, (exported.task for exported in named.values()))
    places = dict.fromkeys(exported.task.lane for exported in tasks if exported.state not in IDENTITY_ONLY)
    lane_ids = lanes.ensure_lanes(db, run.id, places, paces)
    totals, ready = Counter[str](), Counter[needs.Place]()
    seen: list[tuple[int, str, int]] = []
    numbers = needs.numbers_for(db, run.id, (exported.task for exported in named.values()))
    for name, exported in named.items():
        id = (run.id << TASK_BITS) + exported.number
        seen.append((run.id, name, id))
        seen += [(run.id, identity.key(other), -id) for other in exported.aliases]
        lane = lane_ids.get(exported.task.lane, 0)
        needed = numbers[capability_names(exported.task.needs)] if exported.task.needs else needs.NONE
        totals["cancelled" if exported.state == "seen" else exported.state] += 1
        if exported.state == "ready":
            _insert_live(db, now, id, run.id, (lane, needed), exported)
            late = exported.task.delay > 0
            totals["delayed"] += late
            ready[lane, needed] += not late
        elif exported.state == "dead":
            _insert_dead(db, now, id, (lane, needed), exported)
        elif exported.state == "discarded":
            db.execute("INSERT INTO discarded (id) VALUES (?)", (id,))
        elif exported.state != "seen":
            _insert_ended(db, id, lane, exported)
    db.executemany("INSERT OR IGNORE INTO seen (run, digest, task) VALUES (?, ?, ?)", sorted(seen))
    short = any(len(digest) < FULL_DIGEST for it in named.values() for digest in (it.task.digest, *it.aliases))
    db.execute(
        """UPDATE runs SET seen = seen + ?, ready = ready + ?, delayed = delayed + ?, done = done + ?, dead = dead + ?,
             cancelled = cancelled + ?, discarded = discarded + ?, short_digests = short_digests OR ?, next_task = max(next_task, ?), next_record = max(next_record, ?),
             bands = bands | ?
           WHERE id = ?""",
        (
            len(named), totals["ready"], totals["delayed"], totals["done"], totals["dead"], totals["cancelled"],
            totals["discarded"], short, 1 + max(it.number for it in tasks), max(it.first_record + it.records for it in tasks),
            mask_of_bands(band(it.task.priority) for it in tasks), run.id,
        ),
    )  # fmt: skip
    needs.change_ready(db, run.id, ready)
    lanes.wake(db, lane_ids.values())


def _refuse_duplicate_numbers(db: sqlite3.Connection, run: Run, tasks: Iterable[ExportedTask]) -> None:
    if _rows(db, [(run.id << TASK_BITS) + exported.number for exported in tasks]):
        raise UsageError(
            f"run {run.name} has tasks of its own under the same numbers", hint="move the other run into a new one"
        )


def _text(value: object) -> str | None:
    return None if value is None else _encode(value).decode()


def _common(run: int, exported: ExportedTask) -> dict[str, object]:
    task = exported.task
    return {
        "attempts": exported.attempts, "lost": exported.lost, "added_at": exported.added_at,
        "priority": max(-MAX_PRIORITY, min(task.priority, MAX_PRIORITY)), "depth": task.depth,
        "parent": None if task.parent is None else (run << TASK_BITS) + task.parent,
        "kind": task.kind, "url": task.url, "history": _text(exported.history) if exported.history else None,
    }  # fmt: skip


def _insert(db: sqlite3.Connection, table: str, values: Mapping[str, object]) -> None:
    names, marks = ", ".join(values), ", ".join("?" * len(values))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(values.values()))


def _insert_live(
    db: sqlite3.Connection, now: int, id: int, run: int, place: needs.Place, exported: ExportedTask
) -> None:
    task, late = exported.task, exported.task.delay > 0
    _insert(db, "tasks", _common(run, exported) | {
        "id": id, "run": run, "lane": place[0], "needs": place[1], "state": 2 if late else 0,
        "band": ISOLATED if exported.lost else band(task.priority),
        # Among equals the oldest comes first, as it did where it came from.
        "due": now + micros(task.delay) if late else min(now, exported.added_at or now),
        "expires_at": None if task.ttl is None else now + micros(task.ttl),
        "meta": _text(task.meta), "request_options": _text(task.request_options), "auto_ack": task.ack == "auto",
    })  # fmt: skip


def _insert_dead(db: sqlite3.Connection, now: int, id: int, place: needs.Place, exported: ExportedTask) -> None:
    task = exported.task
    _insert(db, "dead", _common(id >> TASK_BITS, exported) | {
        "id": id, "run": id >> TASK_BITS, "lane": place[0], "needs": place[1], "lease": 0, "returned_lease": 0, "ended_at": exported.finished_at,
        "expires_at": None if task.ttl is None else now + micros(task.ttl),
        "meta": _text(task.meta), "request_options": _text(task.request_options), "auto_ack": task.ack == "auto",
        "cause": exported.cause, "evidence": _text(exported.evidence),
    })  # fmt: skip


def _insert_ended(db: sqlite3.Connection, id: int, lane: int, exported: ExportedTask) -> None:
    _insert(db, "ended" if exported.state == "done" else "cancelled", _common(id >> TASK_BITS, exported) | {
        "id": id, "lane": lane, "lease": 0, "returned_lease": 0, "ended_at": exported.finished_at,
        "state": exported.state, "cause": exported.cause,
        "first_record": exported.first_record, "records": exported.records,
    })  # fmt: skip


def _import_records(db: sqlite3.Connection, run: int, records: Sequence[StoredRecord]) -> None:
    base = run << TASK_BITS
    fresh = db.executemany(
        "INSERT OR IGNORE INTO records (id, task, data) VALUES (?, ?, ?)",
        [(base + it.seq, base + it.task, it.data.decode()) for it in records],
    ).rowcount
    db.execute(
        "UPDATE runs SET records = records + ?, next_record = max(next_record, ?) WHERE id = ?",
        (fresh, 1 + max(it.seq for it in records), run),
    )


def _import_counts(db: sqlite3.Connection, run: int, counts: Stats) -> None:
    db.execute(
        """UPDATE runs SET retries = ?1, lost = ?2, stale = ?3, bytes = ?4, records = records - trimmed + ?5, trimmed = ?5,
             next_record = max(next_record, ?5 + 1) WHERE id = ?6""",
        (counts.retries, counts.lost, counts.stale, counts.bytes, counts.trimmed, run),
    )
    db.execute("DELETE FROM skips WHERE run = ?", (run,))
    db.executemany(
        "INSERT INTO skips VALUES (?, ?, ?)", [(run, reason, count) for reason, count in counts.skipped.items()]
    )
