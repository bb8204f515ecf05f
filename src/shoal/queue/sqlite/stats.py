"""The exact counters of a run, and the same counted again from its tasks."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.needs import shown
from shoal.core.run import TASK_BITS
from shoal.core.stats import Stats
from shoal.queue.base import MAX_OUTBOX_PER_RUN, SLOT_HORIZON_SECONDS
from shoal.queue.sqlite import lanes, needs, runs

MOST_LANES, FEWEST_LANES, ALL_LANES = 1000, 4, 10_000  # looked at for what is claimable, of a run and of all
MOST_COUNTED, FEWEST_COUNTED, ALL_COUNTED = 20_000, 200, 100_000  # only counted
MAX_DUE_DELAYED = 10_000
HORIZON = lanes.micros(SLOT_HORIZON_SECONDS)

_COUNTERS = "seen, ready, delayed, leased, done, dead, cancelled, records, retries, lost, stale, bytes, trimmed, discarded, aside, outbox"
_NAMES = _COUNTERS.split(", ")
_ROOM = "iif(l.max_in_flight OR l.parked, iif(l.parked, 1, l.max_in_flight) - l.in_flight, ?3)"
_SLOTS = f"iif(l.spacing, {HORIZON} / l.spacing + 1, ?3)"
_IS_DUE = "max(l.next_at, l.held_until) <= ?2"  # what run_lanes say may be too early
_DUE = f"""SELECT ifnull(sum(max(0, min(h.ready, {_SLOTS}, {_ROOM})) * ({_IS_DUE})), 0), count(*)
           FROM (SELECT lane, ready FROM run_lanes WHERE run = ?1 AND needs = 0 AND wake_at <= ?2 LIMIT ?4) h
           CROSS JOIN lanes l ON l.id = h.lane"""
_COUNT_DUE = "SELECT count(*) FROM (SELECT 1 FROM run_lanes WHERE run = ? AND needs = 0 AND wake_at <= ? LIMIT ?)"
# The same of a run whose tasks have needs: what waits in a lane is in several rows.
_EVERY_ROW = """(SELECT 0 AS needs UNION ALL SELECT needs FROM run_needs WHERE run = ?1) s
               CROSS JOIN run_lanes h ON h.run = ?1 AND h.needs = s.needs AND h.wake_at <= ?2"""
_DUE_WITH_NEEDS = f"""SELECT ifnull(sum(max(0, min(h.ready, {_SLOTS}, {_ROOM})) * ({_IS_DUE})), 0), ifnull(sum(h.rows), 0)
           FROM (SELECT lane, sum(ready) AS ready, count(*) AS rows
                 FROM (SELECT h.lane, h.ready FROM {_EVERY_ROW} LIMIT ?4) GROUP BY lane) h
           CROSS JOIN lanes l ON l.id = h.lane"""
_COUNT_DUE_WITH_NEEDS = f"SELECT count(*) FROM (SELECT 1 FROM {_EVERY_ROW} LIMIT ?3)"
# A lane with delayed tasks whose time has come: what can be handed out now, less what _DUE counts of it.
_DUE_DELAYED = f"""SELECT max(0, min(h.ready + ?4, {_SLOTS}, {_ROOM})), max(0, min(h.ready, {_SLOTS}, {_ROOM})),
                   h.wake_at <= ?2 AND {_IS_DUE}, {_IS_DUE}
            FROM (SELECT lane, sum(ready) AS ready, min(wake_at) AS wake_at FROM run_lanes WHERE run = ?1 AND lane = ?5) h
            CROSS JOIN lanes l ON l.id = h.lane"""
_NEEDS = "SELECT n.run, n.names, n.ready FROM json_each(?) j CROSS JOIN run_needs n ON n.run = j.value"
_UNLIMITED = 1 << 62
_ASIDE = "kind >= 'page:' AND kind < 'page;'"

DueDelayed = Mapping[int, Mapping[needs.Place, int]]  # run -> place -> tasks


def counters(db: sqlite3.Connection, run: int) -> dict[str, int]:
    row = db.execute(f"SELECT {_COUNTERS} FROM runs WHERE id = ?", (run,)).fetchone()
    return dict(zip(_NAMES, row, strict=True))


def stats(db: sqlite3.Connection, now: int, run: int) -> Stats:
    found = _stats_by_run(db, now, [run], 1)
    if not found:
        runs.get(db, run)  # says that there is none
    return found[run]


def stats_of(db: sqlite3.Connection, now: int, numbers: Sequence[int], asked: int) -> list[Stats]:
    """Of some of so many runs that are asked for."""
    found = _stats_by_run(db, now, numbers, asked)
    return [found.get(run, Stats()) for run in numbers]


def _stats_by_run(db: sqlite3.Connection, now: int, numbers: Sequence[int], asked: int) -> dict[int, Stats]:
    chosen = msgspec.json.encode(list(set(numbers))).decode()
    rows = db.execute(
        f"SELECT {_COUNTERS}, r.id, r.state, r.max_pages FROM json_each(?) j CROSS JOIN runs r ON r.id = j.value",
        (chosen,),
    ).fetchall()
    due_delayed = {row[-3]: _due_delayed(db, now, row[-3]) for row in rows if row[2]}
    part = (
        max(FEWEST_LANES, min(MOST_LANES, ALL_LANES // max(1, asked))),
        max(FEWEST_COUNTED, min(MOST_COUNTED, ALL_COUNTED // max(1, asked))),
    )
    by_needs: dict[int, dict[str, int]] = defaultdict(dict)
    for run, names, ready in db.execute(_NEEDS, (chosen,)).fetchall():
        by_needs[run][names] = ready
    return {row[-3]: _run_stats(db, now, row, due_delayed, by_needs.get(row[-3]), part) for row in rows}


def _run_stats(
    db: sqlite3.Connection,
    now: int,
    row: tuple[Any, ...],
    due_delayed: DueDelayed,
    by_needs: dict[str, int] | None,
    part: tuple[int, int],
) -> Stats:
    run, state, max_pages = row[-3:]
    known = dict(zip(_NAMES, row, strict=False))
    mine = due_delayed.get(run, {})
    known["delayed"] -= sum(mine.values())
    claimable = 0
    if state == "running" and known["outbox"] < MAX_OUTBOX_PER_RUN:
        claimable = min(known["ready"], _claimable(db, now, run, mine, part, with_needs=by_needs is not None))
        if max_pages:
            used = sum(known[name] for name in ("done", "dead", "discarded", "leased")) - known["aside"]
            claimable = max(0, min(claimable, max_pages - used))
    skipped = dict(db.execute("SELECT reason, count FROM skips WHERE run = ?", (run,)).fetchall())
    waiting = {} if by_needs is None else _ready_by_needs(db, run, by_needs, mine)
    return Stats(**known, claimable=claimable, skipped=skipped, needs=waiting)


def _ready_by_needs(
    db: sqlite3.Connection, run: int, by_needs: dict[str, int], due_delayed: Mapping[needs.Place, int]
) -> dict[str, int]:
    names = needs.names(db, run) if due_delayed else {}
    for (_, number), count in due_delayed.items():
        if number != needs.NONE:
            by_needs[shown(names[number])] += count
    return {name: count for name, count in by_needs.items() if count}


def _due_delayed(db: sqlite3.Connection, now: int, run: int) -> dict[needs.Place, int]:
    """Delayed tasks by lane and needs whose time has come and that no claim has promoted yet."""
    rows = db.execute(
        """SELECT lane, needs, count(*) FROM (SELECT lane, needs FROM tasks WHERE state = 2 AND run = ? AND due <= ? LIMIT ?)
           GROUP BY lane, needs""",
        (run, now, MAX_DUE_DELAYED),
    )
    return {(lane, needed): count for lane, needed, count in rows.fetchall()}


def _claimable(
    db: sqlite3.Connection,
    now: int,
    run: int,
    due_delayed: Mapping[needs.Place, int],
    part: tuple[int, int],
    *,
    with_needs: bool,
) -> int:
    """Exact where few lanes are due; of more a part is looked at, and the others are taken to be like it."""
    looked_at, counted = part
    sum_due, count_due = (_DUE_WITH_NEEDS, _COUNT_DUE_WITH_NEEDS) if with_needs else (_DUE, _COUNT_DUE)
    total, rows = db.execute(sum_due, (run, now, _UNLIMITED, looked_at)).fetchone()
    if rows == looked_at:
        (due,) = db.execute(count_due, (run, now, counted)).fetchone()
        total = total * due // rows
    by_lane = Counter[int]()
    for (lane, _), count in due_delayed.items():
        by_lane[lane] += count
    for lane, count in by_lane.items():
        row = db.execute(_DUE_DELAYED, (run, now, _UNLIMITED, count, lane)).fetchone()
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
            db.execute(f"SELECT count(*) FROM {table} WHERE id >= ? AND id < ? AND {term}", (first, last)).fetchone()[0]
        )

    open_ = runs.accepts_tasks(db, run)
    ready, due_delayed, delayed, leased = (
        count("tasks", term) if open_ else 0
        for term in ("state = 0", f"state = 2 AND due <= {now}", f"state = 2 AND due > {now}", "state = 1")
    )
    ready += due_delayed
    by_needs = db.execute(
        """SELECT n.names, count(*) FROM tasks t JOIN run_needs n ON n.run = t.run AND n.needs = t.needs
           WHERE t.id >= ? AND t.id < ? AND t.needs > 0 AND (t.state = 0 OR (t.state = 2 AND t.due <= ?)) GROUP BY n.names""",
        (first, last, now),
    ).fetchall()
    (seen,) = db.execute("SELECT count(*) FROM seen WHERE run = ? AND task > 0", (run,)).fetchone()
    done, dead, discarded = count("ended"), count("dead"), count("discarded")
    # Tasks cancelled with their run leave no row behind: what the seen-set knows and no table holds.
    gone = seen - done - dead - discarded - ready - delayed - leased if known.cancelled else count("cancelled")
    return msgspec.structs.replace(
        known,
        seen=seen,
        ready=ready + delayed,
        delayed=delayed,
        leased=leased,
        done=done,
        dead=dead,
        discarded=discarded,
        aside=count("ended", _ASIDE) + count("dead", _ASIDE),
        cancelled=gone,
        records=count("records") + known.trimmed,
        needs=dict(by_needs) if open_ else {},
        outbox=db.execute("SELECT count(*) FROM outbox WHERE run = ?", (run,)).fetchone()[0],
    )


def orphans(db: sqlite3.Connection, now: int, run: int, limit: int = 20) -> list[int]:
    state, cancelled = runs.get(db, run).state, counters(db, run)["cancelled"]
    first, last = run << TASK_BITS, (run + 1) << TASK_BITS
    (kept,) = db.execute("SELECT count(*) FROM cancelled WHERE id >= ? AND id < ?", (first, last)).fetchone()
    if state == "cancelled" or cancelled > kept:
        return []  # some went with their run, or came without more than their identity
    rows = db.execute(
        """SELECT s.task FROM seen s WHERE s.run = ? AND s.task > 0
             AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM ended WHERE id = s.task)
             AND NOT EXISTS (SELECT 1 FROM dead WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM cancelled WHERE id = s.task)
             AND NOT EXISTS (SELECT 1 FROM discarded WHERE id = s.task)
           ORDER BY s.task LIMIT ?""",
        (run, limit),
    ).fetchall()
    return [row[0] for row in rows]
