"""Account: what a run has, exactly, and the same counted anew."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.run import TASK_BITS
from shoal.core.stats import Stats
from shoal.queue.base import SLOT_HORIZON
from shoal.queue.sqlite import lanes, runs

MOST_LANES, FEWEST_LANES, ALL_LANES = 1000, 4, 10_000  # looked at for what is claimable, of a run and of all
MOST_COUNTED, FEWEST_COUNTED, ALL_COUNTED = 20_000, 200, 100_000  # only counted
RIPE_COUNTED = 10_000
HORIZON = lanes.micros(SLOT_HORIZON)

_COUNTERS = (
    "seen, ready, delayed, leased, done, dead, cancelled, records, retries, lost, stale, bytes, trimmed"
)
_NAMES = _COUNTERS.split(", ")
_ROOM = "iif(l.max_in_flight OR l.parked, iif(l.parked, 1, l.max_in_flight) - l.in_flight, ?3)"
_SLOTS = f"iif(l.spacing, {HORIZON} / l.spacing + 1, ?3)"
_DUE = f"""SELECT ifnull(sum(max(0, min(h.ready, {_SLOTS}, {_ROOM}))), 0), count(*)
           FROM (SELECT lane, ready FROM heads WHERE run = ?1 AND wake_at <= ?2 LIMIT ?4) h
           CROSS JOIN lanes l ON l.id = h.lane"""
_COUNT_DUE = "SELECT count(*) FROM (SELECT 1 FROM heads WHERE run = ? AND wake_at <= ? LIMIT ?)"
# A lane with delayed tasks whose time has come: what can be handed out now, less what _DUE counts of it.
_RIPE = f"""SELECT max(0, min(h.ready + ?4, {_SLOTS}, {_ROOM})), max(0, min(h.ready, {_SLOTS}, {_ROOM})),
                   h.wake_at <= ?2, max(l.next_at, l.held_until) <= ?2
            FROM heads h CROSS JOIN lanes l ON l.id = h.lane WHERE h.run = ?1 AND h.lane = ?5"""
_UNLIMITED = 1 << 62

Ripe = Mapping[int, Mapping[int, int]]  # run -> lane -> tasks


def counters(db: sqlite3.Connection, run: int) -> dict[str, int]:
    row = db.execute(f"SELECT {_COUNTERS} FROM runs WHERE id = ?", (run,)).fetchone()
    return dict(zip(_NAMES, row, strict=True))


def stats(db: sqlite3.Connection, now: int, run: int) -> Stats:
    found = _accounts(db, now, [run], 1)
    if not found:
        runs.get(db, run)  # says that there is none
    return found[run]


def stats_of(db: sqlite3.Connection, now: int, numbers: Sequence[int], asked: int) -> list[Stats]:
    """Of some of so many runs that are asked for."""
    found = _accounts(db, now, numbers, asked)
    return [found.get(run, Stats()) for run in numbers]


def _accounts(db: sqlite3.Connection, now: int, numbers: Sequence[int], asked: int) -> dict[int, Stats]:
    rows = db.execute(
        f"SELECT {_COUNTERS}, r.id, r.state, r.max_pages FROM json_each(?) j CROSS JOIN runs r ON r.id = j.value",
        (msgspec.json.encode(list(set(numbers))).decode(),),
    ).fetchall()
    ripe = _ripe(db, now) if any(row[2] for row in rows) else {}
    part = (
        max(FEWEST_LANES, min(MOST_LANES, ALL_LANES // max(1, asked))),
        max(FEWEST_COUNTED, min(MOST_COUNTED, ALL_COUNTED // max(1, asked))),
    )
    return {row[-3]: _account(db, now, row, ripe, part) for row in rows}


def _account(
    db: sqlite3.Connection, now: int, row: tuple[Any, ...], ripe: Ripe, part: tuple[int, int]
) -> Stats:
    run, state, max_pages = row[-3:]
    known = dict(zip(_NAMES, row, strict=False))
    mine = ripe.get(run, {}) if known["delayed"] else {}
    known["delayed"] -= sum(mine.values())
    claimable = 0
    if state == "running":
        claimable = min(known["ready"], _claimable(db, now, run, mine, part))
        if max_pages:
            claimable = max(0, min(claimable, max_pages - known["done"] - known["dead"] - known["leased"]))
    skipped = dict(db.execute("SELECT reason, count FROM skips WHERE run = ?", (run,)).fetchall())
    return Stats(**known, claimable=claimable, skipped=skipped)


def _ripe(db: sqlite3.Connection, now: int) -> Ripe:
    """Delayed tasks by run and lane whose time has come and that no claim has promoted yet."""
    found: dict[int, dict[int, int]] = defaultdict(dict)
    for run, lane, count in db.execute(
        """SELECT run, lane, count(*) FROM (SELECT run, lane FROM tasks WHERE state = 2 AND due <= ? LIMIT ?)
           GROUP BY run, lane""",
        (now, RIPE_COUNTED),
    ).fetchall():
        found[run][lane] = count
    return found


def _claimable(
    db: sqlite3.Connection, now: int, run: int, ripe: Mapping[int, int], part: tuple[int, int]
) -> int:
    """Exact where few lanes are due; of more a part is looked at, and the others are taken to be like it."""
    looked_at, counted = part
    total, lanes = db.execute(_DUE, (run, now, _UNLIMITED, looked_at)).fetchone()
    if lanes == looked_at:
        (due,) = db.execute(_COUNT_DUE, (run, now, counted)).fetchone()
        total = total * due // lanes
    for lane, count in ripe.items():
        row = db.execute(_RIPE, (run, now, _UNLIMITED, count, lane)).fetchone()
        if row is not None and row[2]:
            total += row[0] - row[1]
        elif row is not None and row[3]:
            total += row[0]
    return int(total)


def recount(db: sqlite3.Connection, now: int, run: int) -> Stats:
    first, last = run << TASK_BITS, (run + 1) << TASK_BITS
    known = stats(db, now, run)

    def count(table: str, term: str = "1") -> int:
        return int(
            db.execute(
                f"SELECT count(*) FROM {table} WHERE id >= ? AND id < ? AND {term}", (first, last)
            ).fetchone()[0]
        )

    open_ = runs.takes_work(db, run)
    ready, ripe, delayed, leased = (
        count("tasks", term) if open_ else 0
        for term in ("state = 0", f"state = 2 AND due <= {now}", f"state = 2 AND due > {now}", "state = 1")
    )
    ready += ripe
    (seen,) = db.execute("SELECT count(*) FROM seen WHERE run = ? AND task > 0", (run,)).fetchone()
    done, dead = count("ended"), count("dead")
    # Tasks cancelled with their run leave no row behind: what the seen-set knows and no table holds.
    gone = seen - done - dead - ready - delayed - leased if known.cancelled else count("cancelled")
    return msgspec.structs.replace(
        known,
        seen=seen,
        ready=ready + delayed,
        delayed=delayed,
        leased=leased,
        done=done,
        dead=dead,
        cancelled=gone,
        records=count("records") + known.trimmed,
    )


def strays(db: sqlite3.Connection, now: int, run: int, limit: int) -> list[int]:
    state, cancelled = runs.get(db, run).state, counters(db, run)["cancelled"]
    first, last = run << TASK_BITS, (run + 1) << TASK_BITS
    (kept,) = db.execute("SELECT count(*) FROM cancelled WHERE id >= ? AND id < ?", (first, last)).fetchone()
    if state == "cancelled" or cancelled > kept:
        return []  # some went with their run, or came without more than their identity
    rows = db.execute(
        """SELECT s.task FROM seen s WHERE s.run = ? AND s.task > 0
             AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM ended WHERE id = s.task)
             AND NOT EXISTS (SELECT 1 FROM dead WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM cancelled WHERE id = s.task)
           ORDER BY s.task LIMIT ?""",
        (run, limit),
    ).fetchall()
    return [row[0] for row in rows]
