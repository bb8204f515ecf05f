"""Settle: the one place where tasks are acknowledged."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from shoal.core.lane import Pace
from shoal.core.needs import skip_refused
from shoal.core.run import TASK_BITS, run_of
from shoal.core.task import SEEN, LaneChange, OutboxEntry, Outcome, Task, Verdict
from shoal.queue.counter_totals import Totals, counter_totals
from shoal.queue.outbox_limits import check_outbox
from shoal.queue.sqlite import dead_letter, failing, identity, lanes, needs, run_counters, runs
from shoal.queue.sqlite.admit import admit
from shoal.queue.sqlite.lanes import micros

SAMPLES = 50  # refused links remembered per run and reason
_encode = msgspec.json.Encoder().encode

_SELECT_LEASED = """SELECT t.id, t.lease, t.state, t.lane, t.attempts, t.lost, t.history, t.priority, t.due, t.added_at, t.depth, t.parent, t.kind, t.url, t.returned_lease, t.auto_ack, t.needs
           FROM json_each(?) j CROSS JOIN tasks t ON t.id = j.value"""
_END = """INSERT OR REPLACE INTO {table} (id, state, lease, returned_lease, lane, ended_at, added_at, attempts, lost, priority, depth, parent, kind, url, cause, first_record, records, history)
          VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_END_WELL, _END_CANCELLED = _END.format(table="ended"), _END.format(table="cancelled")
_ANSWERED = " UNION ALL ".join(
    f"SELECT lease, returned_lease FROM {table} WHERE id = ?1" for table in ("ended", "dead", "cancelled")
)
_RETURN_TO_READY = (
    "UPDATE tasks SET state = ?, due = ?, attempts = ?, history = ?, returned_lease = lease, lease = 0 WHERE id = ?"
)
_FREE = "UPDATE lanes SET in_flight = in_flight - ? WHERE id = ? RETURNING max_in_flight > 0 OR parked > 0"

LeasedRow = tuple[int, int, int, int, int, int, str | None, int, int, int, int, int | None, str, str, int, int, int]


class SettleBatch:
    """What one commit changes, gathered first so that each row is written once."""

    def __init__(self, db: sqlite3.Connection, now: int, paces: Mapping[str, Pace]) -> None:
        self.db = db
        self.now = now
        self.paces = paces
        self.counters: dict[int, Counter[str]] = defaultdict(Counter)  # run -> column -> change
        self.freed_slots: Counter[int] = Counter()  # lane -> tasks no longer in flight
        self.ready: dict[int, Counter[needs.Place]] = defaultdict(Counter)  # run -> place -> tasks back to ready
        self.leases: Counter[int] = Counter()
        self.ended: list[tuple[object, ...]] = []
        self.went_well: list[tuple[int, str]] = []  # task, URL
        self.cancelled: list[tuple[object, ...]] = []
        self.records: list[tuple[int, int, str]] = []
        self.next_record: dict[int, int] = {}
        self.found: dict[int, list[Task]] = defaultdict(list)
        self.skipped: dict[int, list[tuple[str, str]]] = defaultdict(list)
        self.changes: list[LaneChange] = []
        self.outbox: dict[int, list[OutboxEntry]] = defaultdict(list)
        self.run_counters: Totals = {}
        self.dropped: set[int] = set()  # tasks whose records were another's

    def release_lease(self, row: LeasedRow) -> None:
        """The task leaves its lease; one whose run was cancelled has left the account already."""
        self.leases[row[1]] += 1
        if row[2] == 1:
            self.freed_slots[row[3]] += 1
            self.counters[run_of(row[0])]["leased"] -= 1

    def store_records(self, run: int, task: int, records: Sequence[bytes]) -> int:
        """Number the records of one task; they lie together."""
        if run not in self.next_record:
            (self.next_record[run],) = self.db.execute("SELECT next_record FROM runs WHERE id = ?", (run,)).fetchone()
        first = self.next_record[run]
        self.records.extend(((run << TASK_BITS) + first + n, task, data.decode()) for n, data in enumerate(records))
        self.next_record[run] = first + len(records)
        self.counters[run]["records"] += len(records)
        return first

    def write(self) -> None:
        db = self.db
        if self.ended:
            db.executemany(_END_WELL, self.ended)
            failing.forget_done(db, self.went_well)
            db.executemany("DELETE FROM tasks WHERE id = ?", [(row[0],) for row in self.ended])
        if self.cancelled:
            db.executemany(_END_CANCELLED, self.cancelled)
            db.executemany("DELETE FROM tasks WHERE id = ?", [(row[0],) for row in self.cancelled])
        if self.records:
            db.executemany("INSERT INTO records (id, task, data) VALUES (?, ?, ?)", self.records)
            for run, number in self.next_record.items():
                db.execute("UPDATE runs SET next_record = ? WHERE id = ?", (number, run))
        for run, tasks in self.found.items():
            if runs.accepts_tasks(db, run):
                count_seen(db, run, admit(db, self.now, run, tasks, self.paces).count("seen"))
        self._write_outbox()
        for run, counts in self.run_counters.items():
            run_counters.add(db, run, counts)
        for run, links in self.skipped.items():
            record_skips(db, run, links)
        for run, change in self.counters.items():
            columns = {name: count for name, count in change.items() if count}
            if columns:
                assignments = ", ".join(f"{name} = {name} + ?" for name in columns)
                db.execute(f"UPDATE runs SET {assignments} WHERE id = ?", (*columns.values(), run))
        # A place that becomes free matters only where they are counted: elsewhere the lane opens when it did before.
        touched = {lane for lane, n in self.freed_slots.items() if db.execute(_FREE, (n, lane)).fetchone()[0]}
        for run, ready in self.ready.items():
            needs.change_ready(db, run, ready)
            touched.update(lane for lane, _ in ready)
        close_leases(db, self.leases)
        if self.changes:
            lanes.apply_changes(db, self.now, self.changes)
        lanes.wake(db, touched)
        for run in self.counters:
            runs.stop_at_limit(db, self.now, run)

    def _write_outbox(self) -> None:
        for run, entries in self.outbox.items():
            if runs.accepts_tasks(self.db, run):
                self.counters[run]["outbox"] += len(entries)
                self.db.executemany(
                    "INSERT INTO outbox (run, kind, key, data) VALUES (?, ?, ?, ?)",
                    [(run, entry.kind, entry.key, entry.data) for entry in entries],
                )


def settle(
    db: sqlite3.Connection, now: int, outcomes: Sequence[Outcome], paces: Mapping[str, Pace] | None = None
) -> list[Verdict]:
    check_outbox(outcomes)
    totals = counter_totals(outcomes)
    paces = paces or {}
    ids = _encode(list({outcome.task for outcome in outcomes})).decode()
    live: dict[int, LeasedRow] = {row[0]: row for row in db.execute(_SELECT_LEASED, (ids,)).fetchall()}
    settled: dict[int, int] = {}
    batch = SettleBatch(db, now, paces)
    verdicts: list[Verdict] = []
    taken: list[Outcome] = []
    for outcome in outcomes:
        row = live.get(outcome.task)
        if row is None or row[1] != outcome.lease or row[2] not in (1, 3):
            verdicts.append(_late_verdict(db, batch, outcome, row, settled))
            continue
        verdicts.append("ok")
        taken.append(outcome)
        if outcome.found:
            outcome = skip_refused(outcome, needs.refused_of(db, run_of(row[0]), outcome.found))
        _apply(batch, row, outcome)
        if outcome.result != "part":
            settled[outcome.task] = outcome.lease
            del live[outcome.task]
    if totals:
        all_taken = len(taken) == len(outcomes) and not batch.dropped
        batch.run_counters = totals if all_taken else counter_totals(taken, batch.dropped)
    batch.write()
    return verdicts


def _late_verdict(
    db: sqlite3.Connection, batch: SettleBatch, outcome: Outcome, row: LeasedRow | None, settled: Mapping[int, int]
) -> Verdict:
    """Tell a repeated answer (already) from one that was overtaken (stale)."""
    known = {settled.get(outcome.task), row[14] if row is not None else None}
    if row is None:
        known.update(*db.execute(_ANSWERED, (outcome.task,)).fetchall())
    if outcome.lease in known:
        return "already"
    batch.counters[run_of(outcome.task)]["stale"] += 1
    return "stale"


def _apply(batch: SettleBatch, row: LeasedRow, outcome: Outcome) -> None:
    run = run_of(row[0])
    batch.skipped[run].extend(outcome.skipped) if outcome.skipped else None
    batch.changes.extend(outcome.lanes)
    if outcome.result == "part":
        batch.found[run].extend(outcome.found)
        return
    if outcome.attempt is not None:
        batch.counters[run]["bytes"] += outcome.attempt.size
    batch.release_lease(row)
    cancelled = row[2] == 3
    if outcome.result == "done":
        _done(batch, row, outcome, cancelled)
    elif cancelled and _is_kept(batch, row, outcome):
        _return_to_ready(batch, row, outcome, kept=True)
    elif cancelled or outcome.result == "cancelled":
        _end(batch, row, outcome, "cancelled", 0, 0)
        batch.counters[run]["cancelled"] += 0 if cancelled else 1
    elif outcome.result == "dead" or (outcome.result == "retry" and row[15]):
        past = dead_letter.history(row[6], outcome.attempt)
        dead_letter.move_to_dead(
            batch.db, batch.now, row[0], attempts=row[4] + 1, cause=outcome.cause, past=past, evidence=outcome.evidence
        )
        batch.counters[run]["dead"] += 1
    else:
        _return_to_ready(batch, row, outcome)


def _done(batch: SettleBatch, row: LeasedRow, outcome: Outcome, cancelled: bool) -> None:
    run = run_of(row[0])
    first = count = 0
    if outcome.redirect_digest is None or _owns_digest(batch.db, run, row[0], outcome.redirect_digest):
        records = _unclaimed_records(batch.db, run, row[0], outcome) if outcome.record_keys else outcome.records
        count = len(records)
        first = batch.store_records(run, row[0], records) if count else 0
        batch.found[run].extend(outcome.found)
        if outcome.outbox and not cancelled:
            batch.outbox[run].extend(outcome.outbox)
    else:
        batch.dropped.add(row[0])
    _end(batch, row, outcome, "done", first, count)
    batch.went_well.append((row[0], row[13]))
    batch.counters[run]["done"] += 1
    batch.counters[run]["cancelled"] -= 1 if cancelled else 0


def _unclaimed_records(db: sqlite3.Connection, run: int, task: int, outcome: Outcome) -> list[bytes]:
    """The records whose keys no other task has."""
    pairs = zip(outcome.records, outcome.record_keys, strict=True)
    return [record for record, key in pairs if not key or _owns_digest(db, run, task, key)]


def _owns_digest(db: sqlite3.Connection, run: int, task: int, digest: bytes) -> bool:
    """Whether a record's key, or the URL a redirect led to, is this task's; if it is new, it becomes so."""
    owner = identity.owner(db, run, digest)
    if not owner:
        name = identity.key(digest)
        db.execute("INSERT INTO seen (run, digest, task) VALUES (?, ?, ?)", (run, name, -task))
    return owner in (0, task)


def _end(batch: SettleBatch, row: LeasedRow, outcome: Outcome, state: str, first: int, count: int) -> None:
    (batch.ended if state == "done" else batch.cancelled).append((
        row[0], state, row[1], row[14], row[3], batch.now, row[9], row[4] + 1, row[5], row[7], row[10], row[11], row[12], row[13],
        outcome.cause, first, count, dead_letter.history(row[6], outcome.attempt),
    ))  # fmt: skip


def _is_kept(batch: SettleBatch, row: LeasedRow, outcome: Outcome) -> bool:
    """Whether a task that was cancelled with its run waits again if that is undone."""
    returns = outcome.result == "released" or (outcome.result == "retry" and not row[15])
    return returns and runs.keeps_tasks(batch.db, batch.now, run_of(row[0]))


def _return_to_ready(batch: SettleBatch, row: LeasedRow, outcome: Outcome, *, kept: bool = False) -> None:
    """Retry or release: back to ready, alone if it has lost a worker before."""
    run = run_of(row[0])
    counters = batch.counters[run]
    late = outcome.after > 0
    counters["kept_ready" if kept else "ready"] += 1
    counters["kept_delayed" if kept else "delayed"] += late
    due, attempts, past = batch.now + micros(outcome.after), row[4], row[6]
    if outcome.result == "retry":
        counters["retries"] += 1
        attempts, past = attempts + 1, dead_letter.history(past, outcome.attempt)
    elif not late:
        due = row[8]  # its old place
    batch.db.execute(_RETURN_TO_READY, (2 if late else 0, due, attempts, past, row[0]))
    if kept and not late:
        runs.keep_ready(batch.db, run, row[3], row[16])
    elif not late:
        batch.ready[run][row[3], row[16]] += 1


def close_leases(db: sqlite3.Connection, counts: Mapping[int, int]) -> None:
    if counts:
        db.executemany(
            "UPDATE leases SET open = open - ? WHERE number = ?", [(n, number) for number, n in counts.items()]
        )
        db.executemany("DELETE FROM leases WHERE number = ? AND open <= 0", [(number,) for number in counts])


def count_seen(db: sqlite3.Connection, run: int, count: int) -> None:
    """Links that another run of the same seen-set has had."""
    if count:
        db.execute(
            "INSERT INTO skips VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = count + ?3", (run, SEEN, count)
        )


def record_skips(db: sqlite3.Connection, run: int, links: Iterable[tuple[str, str]]) -> None:
    by_reason: dict[str, list[str]] = defaultdict(list)
    for reason, url in links:
        by_reason[reason].append(url)
    for reason, urls in by_reason.items():
        db.execute(
            "INSERT INTO skips VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET count = count + ?3",
            (run, reason, len(urls)),
        )
        (kept,) = db.execute("SELECT count(*) FROM skip_samples WHERE run = ? AND reason = ?", (run, reason)).fetchone()
        room = urls[: max(0, SAMPLES - kept)]
        db.executemany("INSERT OR IGNORE INTO skip_samples VALUES (?, ?, ?)", [(run, reason, url) for url in room])
