"""Claim: which tasks a worker gets next.

Order: runs by priority and weighted share, lanes by when they come due, in a lane the most urgent run and of
equals the one served least there, then band and age; every 16th pick takes the oldest task (core/claim_plan.py).
The cost is that of the lanes touched, never that of the backlog.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cache

from shoal.core.capability import MAX_CAPABILITIES, capability_names
from shoal.core.claim_plan import (
    MIN_LANES_PER_BATCH,
    OLDEST_PICK_EVERY,
    SLOT_HORIZON_US,
    UNLIMITED,
    CandidateRun,
    Competitor,
    Lane,
    plan_claim,
)
from shoal.core.task import BANDS, ISOLATED, Claim
from shoal.queue.base import LEASE_SECONDS, MAX_OUTBOX_PER_RUN
from shoal.queue.sqlite import dead_letter, due_lanes, lanes, needs
from shoal.queue.sqlite.lanes import SECOND, micros
from shoal.queue.sqlite.task_row import COLUMNS, Names, TaskRow, leased_task, task_names

PROMOTE_LIMIT = 1000
RUNS_CONSIDERED = 32  # per claim
ACTIVE_WITHIN = 10 * SECOND  # a run nobody has asked for work for so long is nobody's rival

_ISOLATED_DUE = f"""SELECT {COLUMNS} FROM tasks t WHERE t.state = 0 AND t.band = {ISOLATED} AND t.run = ?1 AND t.needs = ?2
                 AND EXISTS (SELECT 1 FROM run_lanes h WHERE h.run = t.run AND h.lane = t.lane AND h.needs = t.needs AND h.wake_at <= ?3)
                 AND (SELECT {lanes.OPENS_AT} FROM lanes l WHERE l.id = t.lane) <= ?3
                 ORDER BY t.due LIMIT 20"""
_POP = f"SELECT {COLUMNS} FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND needs = ? AND band >= 0 ORDER BY band, due, id LIMIT ?"
_POP_BAND = f"SELECT {COLUMNS} FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND needs = ? AND band = ? ORDER BY due, id LIMIT ?"
_TOP_BAND = (
    f"SELECT ifnull(min(band), {BANDS}) FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND needs = ? AND band >= 0"
)
_LOWEST_BAND = f"SELECT ifnull(max(band), {ISOLATED}) FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND needs = ?"
_OLDEST = " UNION ALL ".join(
    f"SELECT * FROM (SELECT due FROM tasks WHERE state = 0 AND lane = ?1 AND run = ?2 AND needs = ?3 AND band = {band} ORDER BY due LIMIT ?4)"
    for band in range(BANDS)
)
# Work with needs does not count here: nobody may be there to take what would be left to it.
_WANTING = "SELECT run, picks FROM run_lanes WHERE lane = ? AND needs = 0 AND ready > 0"
_SOONEST = "SELECT min(wake_at) FROM run_lanes WHERE run = ? AND needs = ? AND wake_at IS NOT NULL"
# The others that want the lane find out when they look.
_TAKE = f"""UPDATE run_lanes SET ready = ready - ?1, picks = ?2,
              wake_at = iif(ready > ?1, (SELECT {lanes.OPENS_AT} FROM lanes l WHERE l.id = run_lanes.lane), NULL)
            WHERE run = ?3 AND lane = ?4 AND needs = 0"""
Shelf = tuple[int, int, Sequence[int]]  # a lane, a run, and the numbers of the needs within reach
_NEXT_DELAYED = """SELECT min((SELECT min(due) FROM tasks WHERE state = 2 AND run = r.id))
                   FROM runs r WHERE r.state = 'running' AND r.delayed > 0"""
Pick = tuple[TaskRow, Lane, int]  # a task, its lane, its slot


def claim(
    db: sqlite3.Connection,
    now: int,
    worker: str,
    limit: int,
    *,
    lease: float = LEASE_SECONDS,
    serves: Collection[str] | None = None,
    capabilities: Collection[str] = (),
    request_id: str = "",
) -> Claim:
    has = capability_names(capabilities, most=MAX_CAPABILITIES)
    again = same_request(db, now, worker, request_id)
    if again is not None:
        return again
    promote(db, now)
    runs = _served_runs(db, now, serves, has)
    if not runs or limit < 1:
        return Claim(0, (), _next_in(db, now, runs))
    picked = _pick_isolated(db, now, runs) or _pick_batch(db, now, runs, limit)
    if not picked:
        return Claim(0, (), _next_in(db, now, runs))
    return lease_tasks(db, now, worker, lease, request_id, picked)


def promote(db: sqlite3.Connection, now: int) -> None:
    """Delayed tasks whose time has come are ready; those of a run that was cancelled are only kept."""
    rows = db.execute(
        """SELECT t.id, t.run, t.lane, t.needs FROM runs r CROSS JOIN tasks t ON t.run = r.id AND t.state = 2 AND t.due <= ?
           WHERE r.state IN ('running', 'paused') AND r.delayed > 0 LIMIT ?""",
        (now, PROMOTE_LIMIT),
    ).fetchall()
    if not rows:
        return
    db.executemany("UPDATE tasks SET state = 0 WHERE id = ?", [(row[0],) for row in rows])
    for run in {row[1] for row in rows}:
        needs.change_ready(db, run, Counter((row[2], row[3]) for row in rows if row[1] == run))
    db.executemany(
        "UPDATE runs SET delayed = delayed - ? WHERE id = ?",
        [(count, run) for run, count in Counter(row[1] for row in rows).items()],
    )
    lanes.wake(db, {row[2] for row in rows})


def _served_runs(
    db: sqlite3.Connection, now: int, serves: Collection[str] | None, capabilities: Collection[str]
) -> list[CandidateRun]:
    rows = db.execute(
        """SELECT id, weight, share, priority, bands, max_pages, done + dead + discarded + leased - aside, name, scraper, last_claim_at
           FROM runs
           WHERE state = 'running' AND ready > delayed AND outbox < ? ORDER BY priority DESC, share, id""",
        (MAX_OUTBOX_PER_RUN,),
    ).fetchall()
    found = []
    for run, weight, share, priority, bands, max_pages, used, name, scraper, last_claim_at in rows:
        if serves is not None and name not in serves and scraper not in serves:
            continue
        if now - last_claim_at > SECOND:
            db.execute("UPDATE runs SET last_claim_at = ? WHERE id = ?", (now, run))
        left = max_pages - used if max_pages else UNLIMITED
        if left > 0:
            candidate = CandidateRun(run, max(1, weight), share, left, priority, bool(bands & (bands - 1)))
            if capabilities:
                candidate.needs = needs.reachable(db, run, capabilities)
            found.append(candidate)
    return found


def has_claimable_work(db: sqlite3.Connection, now: int) -> bool:
    """Whether somebody could be handed something now."""
    return (
        db.execute(
            """SELECT 1 FROM runs r WHERE state = 'running' AND ready > delayed AND outbox < ?2
                 AND (EXISTS (SELECT 1 FROM run_lanes WHERE run = r.id AND needs = 0 AND wake_at <= ?1)
                   OR EXISTS (SELECT 1 FROM run_needs n CROSS JOIN run_lanes h ON h.run = n.run AND h.needs = n.needs
                              AND h.wake_at <= ?1 WHERE n.run = r.id AND n.ready > 0)) LIMIT 1""",
            (now, MAX_OUTBOX_PER_RUN),
        ).fetchone()
        is not None
    )


def _next_in(db: sqlite3.Connection, now: int, runs: Iterable[CandidateRun]) -> float | None:
    times = [db.execute(_SOONEST, (run.id, number)).fetchone()[0] for run in runs for number in run.needs]
    times.append(db.execute(_NEXT_DELAYED).fetchone()[0])
    soonest = min((at for at in times if at is not None), default=None)
    return None if soonest is None else max(0.0, (soonest - now) / SECOND)


def _pick_isolated(db: sqlite3.Connection, now: int, runs: list[CandidateRun]) -> list[Pick]:
    """A task that has lost a worker is handed out by itself, before all others."""
    if db.execute(f"SELECT 1 FROM tasks WHERE state = 0 AND band = {ISOLATED} LIMIT 1").fetchone() is None:
        return []
    for run in runs:
        horizon = now + SLOT_HORIZON_US
        for row in [
            it for number in run.needs for it in db.execute(_ISOLATED_DUE, (run.id, number, horizon)).fetchall()
        ]:
            run_lane = due_lanes.run_lane_row(db, run.id, row[1])
            lane = due_lanes.to_lane(run_lane)
            if lane.open_slots(now) < 1:
                continue
            if row[7] is not None and row[7] <= now:
                dead_letter.expire(db, now, [row[0]])
                continue
            lane.picks[run.id] = run_lane[2] + 1
            return [(row, lane, lane.take_slot(now))]
    return []


def _pick_batch(db: sqlite3.Connection, now: int, runs: list[CandidateRun], limit: int) -> list[Pick]:
    known: dict[int, Lane] = {}
    candidates = []
    for run in runs:
        for row in due_lanes.due_lanes(db, now, run, max(limit, MIN_LANES_PER_BATCH), alone=len(runs) == 1):
            lane = known.get(row[0]) or known.setdefault(row[0], due_lanes.to_lane(row))
            lane.ready[run.id] = row[1]
            lane.picks[run.id] = row[2]
            if run.has_bands:
                lane.top_band[run.id] = min(
                    db.execute(_TOP_BAND, (lane.id, run.id, number)).fetchone()[0] for number in run.needs
                )
            run.due.append(lane.id)
        run.due.reverse()
        if run.due:
            candidates.append(run)
        if len(candidates) >= RUNS_CONSIDERED:
            break  # the most urgent came first, and of equals those with the least share
    if not candidates:
        return []
    _find_competitors(db, now, runs, known)
    shares = {run.id: run.share for run in candidates}
    reach = {run.id: run.needs for run in candidates}
    deep = limit // OLDEST_PICK_EVERY + 1

    @cache
    def oldest(run: int, lane: int) -> list[int]:
        found = [row[0] for number in reach[run] for row in db.execute(_OLDEST, (lane, run, number, deep))]
        return sorted(found)[:deep]

    decided = plan_claim(now, candidates, known, limit, oldest)
    changed = [(run.share, run.id) for run in candidates if run.share != shares[run.id]]
    db.executemany("UPDATE runs SET share = ? WHERE id = ?", changed)
    picked: list[Pick] = []
    for (run_id, lane_id), part in decided.items():
        lane = known[lane_id]
        rows = _pop(db, now, (lane_id, run_id, reach[run_id]), len(part.slots), part.oldest)
        # There may be fewer than the run_lane row promised: expired ones, or tasks kept to be alone.
        picked.extend((row, lane, slot) for row, slot in zip(rows, part.slots, strict=False))
    if len(decided) > 1:
        urgency = {run.id: -run.priority for run in candidates}
        picked.sort(key=lambda pick: (pick[2], urgency[pick[0][2]], pick[0][3]))
    return picked


def _find_competitors(db: sqlite3.Connection, now: int, served: list[CandidateRun], known: dict[int, Lane]) -> None:
    """Runs that other workers serve, and that want slots of the same scarce lanes."""
    own = {run.id for run in served}
    others = db.execute(
        "SELECT id, weight, priority FROM runs WHERE state = 'running' AND ready > delayed AND last_claim_at > ?",
        (now - ACTIVE_WITHIN,),
    ).fetchall()
    about = {run: (max(1, weight), priority) for run, weight, priority in others if run not in own}
    if not about:
        return
    for lane in known.values():
        if lane.spacing or lane.free < UNLIMITED:
            rows = db.execute(_WANTING, (lane.id,)).fetchall()
            lane.competitors = [Competitor(picks / about[run][0], about[run][1]) for run, picks in rows if run in about]


def _pop(db: sqlite3.Connection, now: int, place: Shelf, count: int, oldest: int) -> list[TaskRow]:
    rows: list[TaskRow] = []
    for _ in range(3):  # a few rounds, should the first hold tasks whose time is over
        wanted = count - len(rows)
        rows.extend(_drop_expired(db, now, _first(db, _POP, place, wanted)))
        if len(rows) >= count:
            break
        if wanted and not rows:
            continue
        break
    if oldest and rows and len(rows) == count and _lowest_band(db, place) != rows[0][3]:
        _mix_in_oldest(db, now, place, rows, oldest)
    return rows


def _first(db: sqlite3.Connection, query: str, place: Shelf, *values: int) -> list[TaskRow]:
    """The first rows of a query over all that a worker can reach; the last of the values is how many."""
    lane, run, reach = place
    rows: list[TaskRow] = db.execute(query, (lane, run, reach[0], *values)).fetchall()
    if len(reach) > 1:
        for number in reach[1:]:
            rows += db.execute(query, (lane, run, number, *values)).fetchall()
        rows.sort(key=lambda row: (row[3], row[4], row[0]))
        del rows[values[-1] :]
    return rows


def _drop_expired(db: sqlite3.Connection, now: int, rows: list[TaskRow]) -> list[TaskRow]:
    over = [row[0] for row in rows if row[7] is not None and row[7] <= now]
    if over:
        dead_letter.expire(db, now, over)
        rows = [row for row in rows if row[0] not in over]
    return rows


def _lowest_band(db: sqlite3.Connection, place: Shelf) -> int:
    lane, run, reach = place
    return max(int(db.execute(_LOWEST_BAND, (lane, run, number)).fetchone()[0]) for number in reach)


def _mix_in_oldest(db: sqlite3.Connection, now: int, place: Shelf, rows: list[TaskRow], count: int) -> None:
    first_of_bands: list[TaskRow] = []
    for number in range(BANDS):
        first_of_bands.extend(_first(db, _POP_BAND, place, number, count))
    first_of_bands.sort(key=lambda row: (row[4], row[0]))
    taken = {row[0] for row in rows}
    for row in first_of_bands[:count]:
        if row[0] not in taken and (row[7] is None or row[7] > now):
            rows.pop()
            rows.insert(0, row)


def lease_tasks(db: sqlite3.Connection, now: int, worker: str, lease: float, request: str, picked: list[Pick]) -> Claim:
    number = next_lease(db, now)
    db.execute(
        "INSERT INTO leases (number, worker, request_id, expires_at, open) VALUES (?, ?, ?, ?, ?)",
        (number, worker, request, now + micros(lease), len(picked)),
    )
    db.executemany(
        "UPDATE tasks SET state = 1, lease = ?, slot = ? WHERE id = ?",
        [(number, slot, row[0]) for row, _, slot in picked],
    )
    in_flight = Counter(lane.id for _, lane, _ in picked)
    # Slots grow along a lane, so the last one seen here is its latest.
    next_at = {lane.id: slot + lane.spacing for _, lane, slot in sorted(picked, key=lambda pick: pick[2])}
    db.executemany(
        "UPDATE lanes SET in_flight = in_flight + ?1, given = given + ?1, next_at = ?2 WHERE id = ?3",
        [(count, next_at[lane], lane) for lane, count in in_flight.items()],
    )
    places = Counter((row[2], lane.id) for row, lane, _ in picked if row[17] == needs.NONE)
    picks = {(row[2], lane.id): lane.picks[row[2]] for row, lane, _ in picked}
    db.executemany(_TAKE, [(places[place], given, *place) for place, given in picks.items()])
    names = _take_needed(db, picked) if len(places) < len(picks) or places.total() < len(picked) else {}
    db.executemany(
        "UPDATE runs SET ready = ready - ?1, leased = leased + ?1 WHERE id = ?2",
        [(count, run) for run, count in Counter(row[2] for row, _, _ in picked).items()],
    )
    return Claim(number, tuple(leased_task(row, number, lane, slot - now, names) for row, lane, slot in picked))


def _take_needed(db: sqlite3.Connection, picked: list[Pick]) -> Names:
    """Those with needs are ready no longer; the names of what they need."""
    for run in {row[2] for row, _, _ in picked}:
        taken = Counter((lane.id, row[17]) for row, lane, _ in picked if row[2] == run and row[17] != needs.NONE)
        needs.change_ready(db, run, {place: -count for place, count in taken.items()})
        lanes.correct(db, [(run, *place) for place in taken])
        lanes.wake(db, {lane for lane, _ in taken})
    return task_names(db, (row for row, _, _ in picked))


def next_lease(db: sqlite3.Connection, now: int) -> int:
    row = db.execute(
        "UPDATE meta SET value = max(value + 1, ?) WHERE key = 'last_lease' RETURNING value", (now,)
    ).fetchone()
    return int(row[0])


def same_request(db: sqlite3.Connection, now: int, worker: str, request_id: str) -> Claim | None:
    """The batch of a request that was answered before, as long as its lease lives."""
    if not request_id:
        return None
    known = db.execute(
        "SELECT number FROM leases WHERE worker = ? AND request_id = ? AND expires_at > ? ORDER BY number DESC LIMIT 1",
        (worker, request_id, now),
    ).fetchone()
    return _repeat_claim(db, now, known[0]) if known else None


def _repeat_claim(db: sqlite3.Connection, now: int, number: int) -> Claim:
    """The same batch once more. A slot that has passed is negative: the worker reserves anew where it is late."""
    rows = db.execute(
        f"SELECT {COLUMNS}, slot FROM tasks WHERE state IN (1, 3) AND lease = ? AND state = 1 ORDER BY slot, id",
        (number,),
    ).fetchall()
    known = {
        row[1]: Lane(
            row[1], *db.execute("SELECT name, 0, spacing, 0, parked FROM lanes WHERE id = ?", (row[1],)).fetchone()
        )
        for row in rows
    }
    names = task_names(db, rows)
    return Claim(number, tuple(leased_task(row, number, known[row[1]], row[18] - now, names) for row in rows))
