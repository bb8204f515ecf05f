"""Settle: the one place where tasks are acknowledged."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS, run_of
from shoal.core.task import ALONE, LaneChange, Outcome, Task, Verdict, band
from shoal.queue.sqlite import bury, identity, lanes, runs
from shoal.queue.sqlite.admit import admit, more_ready
from shoal.queue.sqlite.lanes import micros

SAMPLES = 50  # refused links remembered per run and reason
_encode = msgspec.json.Encoder().encode

_LOOK = """SELECT t.id, t.lease, t.state, t.lane, t.attempts, t.lost, t.history, t.priority, t.due, t.added_at, t.depth, t.parent, t.kind, t.url, t.gave_back
           FROM json_each(?) j CROSS JOIN tasks t ON t.id = j.value"""
_END = """INSERT OR REPLACE INTO {table} (id, state, lease, gave_back, lane, ended_at, added_at, attempts, lost, priority, depth, parent, kind, url, cause, first_record, records, history)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_END_WELL, _END_CANCELLED = _END.format(table="ended"), _END.format(table="cancelled")
_ANSWERED = " UNION ALL ".join(
    f"SELECT lease, gave_back FROM {table} WHERE id = ?1" for table in ("ended", "dead", "cancelled")
)
_BACK = "UPDATE tasks SET state = ?, band = ?, due = ?, attempts = ?, history = ?, gave_back = lease, lease = 0 WHERE id = ?"

Row = tuple[int, int, int, int, int, int, str | None, int, int, int, int, int | None, str, str, int]


class Book:
    """What one commit changes, gathered first so that each row is written once."""

    def __init__(self, db: sqlite3.Connection, now: int, paces: Mapping[str, Pace]) -> None:
        self.db = db
        self.now = now
        self.paces = paces
        self.account: dict[int, Counter[str]] = defaultdict(Counter)  # run -> column -> change
        self.left_flight: Counter[int] = Counter()  # lane -> tasks no longer in flight
        self.ready: dict[int, Counter[int]] = defaultdict(Counter)  # run -> lane -> tasks back to ready
        self.leases: Counter[int] = Counter()
        self.ended: list[tuple[object, ...]] = []
        self.cancelled: list[tuple[object, ...]] = []
        self.records: list[tuple[int, int, str]] = []
        self.next_record: dict[int, int] = {}
        self.found: dict[int, list[Task]] = defaultdict(list)
        self.skipped: dict[int, list[tuple[str, str]]] = defaultdict(list)
        self.changes: list[LaneChange] = []

    def free(self, row: Row) -> None:
        """The task leaves its lease; one whose run was cancelled has left the account already."""
        self.leases[row[1]] += 1
        if row[2] == 1:
            self.left_flight[row[3]] += 1
            self.account[run_of(row[0])]["leased"] -= 1

    def store_records(self, run: int, task: int, records: Sequence[bytes]) -> int:
        """Number the records of one task; they lie together."""
        if run not in self.next_record:
            (self.next_record[run],) = self.db.execute(
                "SELECT next_record FROM runs WHERE id = ?", (run,)
            ).fetchone()
        first = self.next_record[run]
        self.records.extend(
            ((run << TASK_BITS) + first + n, task, data.decode()) for n, data in enumerate(records)
        )
        self.next_record[run] = first + len(records)
        self.account[run]["records"] += len(records)
        return first

    def write(self) -> None:
        db = self.db
        if self.ended:
            db.executemany(_END_WELL, self.ended)
            db.executemany("DELETE FROM tasks WHERE id = ?", [(row[0],) for row in self.ended])
        if self.cancelled:
            db.executemany(_END_CANCELLED, self.cancelled)
            db.executemany("DELETE FROM tasks WHERE id = ?", [(row[0],) for row in self.cancelled])
        if self.records:
            db.executemany("INSERT INTO records (id, task, data) VALUES (?, ?, ?)", self.records)
            for run, number in self.next_record.items():
                db.execute("UPDATE runs SET next_record = ? WHERE id = ?", (number, run))
        for run, tasks in self.found.items():
            if runs.takes_work(db, run):
                admit(db, self.now, run, tasks, self.paces)
        for run, links in self.skipped.items():
            skip(db, run, links)
        for run, change in self.account.items():
            columns = {name: count for name, count in change.items() if count}
            if columns:
                assignments = ", ".join(f"{name} = {name} + ?" for name in columns)
                db.execute(f"UPDATE runs SET {assignments} WHERE id = ?", (*columns.values(), run))
        db.executemany(
            "UPDATE lanes SET in_flight = in_flight - ? WHERE id = ?",
            [(n, lane) for lane, n in self.left_flight.items()],
        )
        touched = set(self.left_flight)
        for run, ready in self.ready.items():
            more_ready(db, run, ready)
            touched |= ready.keys()
        close_leases(db, self.leases)
        if self.changes:
            lanes.change(db, self.now, self.changes)
        lanes.wake(db, touched)
        for run in self.account:
            runs.stop_at_limit(db, self.now, run)


def settle(
    db: sqlite3.Connection, now: int, outcomes: Sequence[Outcome], paces: Mapping[str, Pace]
) -> list[Verdict]:
    ids = _encode(list({outcome.task for outcome in outcomes})).decode()
    live: dict[int, Row] = {row[0]: row for row in db.execute(_LOOK, (ids,)).fetchall()}
    settled: dict[int, int] = {}
    book = Book(db, now, paces)
    verdicts: list[Verdict] = []
    for outcome in outcomes:
        row = live.get(outcome.task)
        if row is None or row[1] != outcome.lease or row[2] not in (1, 3):
            verdicts.append(_late(db, book, outcome, row, settled))
            continue
        verdicts.append("ok")
        _apply(book, row, outcome)
        if outcome.result != "part":
            settled[outcome.task] = outcome.lease
            del live[outcome.task]
    book.write()
    return verdicts


def _late(
    db: sqlite3.Connection, book: Book, outcome: Outcome, row: Row | None, settled: Mapping[int, int]
) -> Verdict:
    """Tell a repeated answer (already) from one that was overtaken (stale)."""
    known = {settled.get(outcome.task), row[14] if row is not None else None}
    if row is None:
        known.update(
            *db.execute(
                _ANSWERED,
                (outcome.task,),
            ).fetchall()
        )
    if outcome.lease in known:
        return "already"
    book.account[run_of(outcome.task)]["stale"] += 1
    return "stale"


def _apply(book: Book, row: Row, outcome: Outcome) -> None:
    run = run_of(row[0])
    book.skipped[run].extend(outcome.skipped) if outcome.skipped else None
    book.changes.extend(outcome.lanes)
    if outcome.result == "part":
        book.found[run].extend(outcome.found)
        return
    if outcome.attempt is not None:
        book.account[run]["bytes"] += outcome.attempt.size
    book.free(row)
    cancelled = row[2] == 3
    if outcome.result == "done":
        _done(book, row, outcome, cancelled)
    elif cancelled or outcome.result == "cancelled":
        _end(book, row, outcome, "cancelled", 0, 0)
        book.account[run]["cancelled"] += 0 if cancelled else 1
    elif outcome.result == "dead":
        past = bury.history(row[6], outcome.attempt)
        bury.entomb(
            book.db,
            book.now,
            row[0],
            attempts=row[4] + 1,
            cause=outcome.cause,
            past=past,
            evidence=outcome.evidence,
        )
        book.account[run]["dead"] += 1
    else:
        _back(book, row, outcome)


def _done(book: Book, row: Row, outcome: Outcome, cancelled: bool) -> None:
    run = run_of(row[0])
    first = count = 0
    if outcome.same_as is None or _is_own(book.db, run, row[0], outcome.same_as):
        count = len(outcome.records)
        first = book.store_records(run, row[0], outcome.records) if count else 0
        book.found[run].extend(outcome.found)
    _end(book, row, outcome, "done", first, count)
    book.account[run]["done"] += 1
    book.account[run]["cancelled"] -= 1 if cancelled else 0


def _is_own(db: sqlite3.Connection, run: int, task: int, digest: bytes) -> bool:
    """Whether the address a redirect led to is this task's to record; if it is new, it becomes so."""
    owner = identity.owner(db, run, digest)
    if not owner:
        name = identity.key(digest)
        db.execute("INSERT INTO seen (run, digest, task) VALUES (?, ?, ?)", (run, name, -task))
    return owner in (0, task)


def _end(book: Book, row: Row, outcome: Outcome, state: str, first: int, count: int) -> None:
    (book.ended if state == "done" else book.cancelled).append((
        row[0], state, row[1], row[14], row[3], book.now, row[9], row[4] + 1, row[5], row[7], row[10], row[11], row[12], row[13],
        outcome.cause, first, count, bury.history(row[6], outcome.attempt),
    ))  # fmt: skip


def _back(book: Book, row: Row, outcome: Outcome) -> None:
    """Retry or release: back to ready, alone if it has lost a worker before."""
    run, lane = run_of(row[0]), row[3]
    line = ALONE if row[5] else band(row[7])
    account = book.account[run]
    account["ready"] += 1
    if outcome.result == "released":
        book.db.execute(_BACK, (0, line, row[8], row[4], row[6], row[0]))
        book.ready[run][lane] += 1
        return
    late = outcome.after > 0
    account["retries"] += 1
    account["delayed"] += 1 if late else 0
    due = book.now + micros(outcome.after)
    book.db.execute(
        _BACK, (2 if late else 0, line, due, row[4] + 1, bury.history(row[6], outcome.attempt), row[0])
    )
    if not late:
        book.ready[run][lane] += 1


def close_leases(db: sqlite3.Connection, counts: Mapping[int, int]) -> None:
    if counts:
        db.executemany(
            "UPDATE leases SET open = open - ? WHERE number = ?",
            [(n, number) for number, n in counts.items()],
        )
        db.executemany("DELETE FROM leases WHERE number = ? AND open <= 0", [(number,) for number in counts])


def skip(db: sqlite3.Connection, run: int, links: Iterable[tuple[str, str]]) -> None:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for reason, url in links:
        by_reason[reason].append(url)
    for reason, urls in by_reason.items():
        db.execute(
            "INSERT INTO skips VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = count + ?3",
            (run, reason, len(urls)),
        )
        (kept,) = db.execute(
            "SELECT count(*) FROM skip_samples WHERE run = ? AND reason = ?", (run, reason)
        ).fetchone()
        room = urls[: max(0, SAMPLES - kept)]
        db.executemany(
            "INSERT OR IGNORE INTO skip_samples VALUES (?, ?, ?)", [(run, reason, url) for url in room]
        )
