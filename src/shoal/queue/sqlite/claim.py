"""Claim: which tasks a worker gets next.

Order: runs by weighted share, lanes by when they come due, in a lane the run served least there,
then band and age; every 16th pick of a (run, lane) takes its oldest task. The cost is that of the
lanes touched, never that of the backlog.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from shoal.core.plan import HORIZON, UNLIMITED, Contender, Lane, plan
from shoal.core.task import ALONE, BANDS, Ask, Attempt, Claim, Leased, failures
from shoal.queue.sqlite import bury, lanes
from shoal.queue.sqlite.lanes import SECOND, micros

OLDEST_EVERY = 16
PROMOTE_LIMIT = 1000
RUNS_CONSIDERED = 32  # per claim
ALIVE = 10 * SECOND  # a run nobody has asked for work for so long is nobody's rival

_COLUMNS = "id, lane, run, band, due, attempts, lost, expires_at, priority, depth, parent, kind, url, meta, history, ask"
_HEAD = """SELECT h.lane, h.ready, h.picks, l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until, l.parked
           FROM heads h JOIN lanes l ON l.id = h.lane"""
_DUE = f"{_HEAD} WHERE h.run = ? AND h.wake_at <= ? ORDER BY h.wake_at LIMIT ?"
_ALONE_DUE = f"""SELECT {_COLUMNS} FROM tasks t WHERE t.state = 0 AND t.band = {ALONE} AND t.run = ?
                 AND EXISTS (SELECT 1 FROM heads h WHERE h.run = t.run AND h.lane = t.lane AND h.wake_at <= ?)
                 ORDER BY t.due LIMIT 20"""
_POP = f"SELECT {_COLUMNS} FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND band >= 0 ORDER BY band, due, id LIMIT ?"
_POP_BAND = f"SELECT {_COLUMNS} FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND band = ? ORDER BY due, id LIMIT ?"
_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode
_decode_ask = msgspec.json.Decoder(Ask).decode

Row = tuple[
    int,
    int,
    int,
    int,
    int,
    int,
    int,
    int | None,
    int,
    int,
    int | None,
    str,
    str,
    str | None,
    str | None,
    str | None,
]
Pick = tuple[Row, Lane, int]  # a task, its lane, its slot


def claim(
    db: sqlite3.Connection,
    now: int,
    worker: str,
    limit: int,
    lease: float,
    serves: Collection[str] | None,
    request: str,
) -> Claim:
    if request:
        known = db.execute(
            "SELECT number FROM leases WHERE worker = ? AND request = ? AND expires_at > ?",
            (worker, request, now),
        ).fetchone()
        if known:
            return _again(db, now, known[0])
    promote(db, now)
    runs = _served(db, now, serves)
    if not runs or limit < 1:
        return Claim(0, (), _next_in(db, now, runs))
    picked = _alone(db, now, runs) or _batch(db, now, runs, limit)
    if not picked:
        return Claim(0, (), _next_in(db, now, runs))
    return _hand_out(db, now, worker, lease, request, picked)


def promote(db: sqlite3.Connection, now: int) -> None:
    """Delayed tasks whose time has come are ready; those of a run that was cancelled only wait to be removed."""
    rows = db.execute(
        """SELECT t.id, t.run, t.lane FROM tasks t JOIN runs r ON r.id = t.run AND NOT r.leftovers
           WHERE t.state = 2 AND t.due <= ? ORDER BY t.due LIMIT ?""",
        (now, PROMOTE_LIMIT),
    ).fetchall()
    if not rows:
        return
    db.executemany("UPDATE tasks SET state = 0 WHERE id = ?", [(row[0],) for row in rows])
    places = Counter((row[1], row[2]) for row in rows)
    db.executemany(
        "UPDATE heads SET ready = ready + ? WHERE run = ? AND lane = ?",
        [(n, *place) for place, n in places.items()],
    )
    db.executemany(
        "UPDATE runs SET delayed = delayed - ? WHERE id = ?",
        [(count, run) for run, count in Counter(row[1] for row in rows).items()],
    )
    lanes.wake(db, {row[2] for row in rows})


def _served(db: sqlite3.Connection, now: int, serves: Collection[str] | None) -> list[Contender]:
    rows = db.execute(
        """SELECT id, weight, share, max_pages, done + dead + leased, name, scraper, asked_at FROM runs
           WHERE state = 'running' AND ready > delayed ORDER BY share, id"""
    ).fetchall()
    found = []
    for run, weight, share, max_pages, used, name, scraper, asked_at in rows:
        if serves is not None and name not in serves and scraper not in serves:
            continue
        if now - asked_at > SECOND:
            db.execute("UPDATE runs SET asked_at = ? WHERE id = ?", (now, run))
        left = max_pages - used if max_pages else UNLIMITED
        if left > 0:
            found.append(Contender(run, max(1, weight), share, left))
    return found


def is_waiting(db: sqlite3.Connection, now: int) -> bool:
    """Whether somebody could be handed something now."""
    return (
        db.execute(
            """SELECT 1 FROM runs r WHERE state = 'running' AND ready > delayed
                 AND EXISTS (SELECT 1 FROM heads WHERE run = r.id AND wake_at <= ?) LIMIT 1""",
            (now,),
        ).fetchone()
        is not None
    )


def _next_in(db: sqlite3.Connection, now: int, runs: Iterable[Contender]) -> float | None:
    times = [
        db.execute(
            "SELECT min(wake_at) FROM heads WHERE run = ? AND wake_at IS NOT NULL", (run.id,)
        ).fetchone()[0]
        for run in runs
    ]
    times.append(db.execute("SELECT min(due) FROM tasks WHERE state = 2").fetchone()[0])
    soonest = min((at for at in times if at is not None), default=None)
    return None if soonest is None else max(0.0, (soonest - now) / SECOND)


def _alone(db: sqlite3.Connection, now: int, runs: list[Contender]) -> list[Pick]:
    """A task that has lost a worker is handed out by itself, before all others."""
    if db.execute(f"SELECT 1 FROM tasks WHERE state = 0 AND band = {ALONE} LIMIT 1").fetchone() is None:
        return []
    for run in runs:
        for row in db.execute(_ALONE_DUE, (run.id, now + HORIZON)).fetchall():
            head = db.execute(f"{_HEAD} WHERE h.run = ? AND h.lane = ?", (run.id, row[1])).fetchone()
            lane = _lane(head)
            if lane.room(now) < 1:
                continue
            if row[7] is not None and row[7] <= now:
                bury.expire(db, now, [row[0]])
                continue
            lane.picks[run.id] = head[2] + 1
            return [(row, lane, lane.take(now))]
    return []


def _lane(row: tuple[int, int, int, str, int, int, int, int, int, int]) -> Lane:
    lane, _, _, name, next_at, spacing, max_in_flight, in_flight, held_until, parked = row
    free = max_in_flight - in_flight if max_in_flight else UNLIMITED
    if parked:
        free = min(free, 1 - in_flight)
    return Lane(lane, name, max(next_at, held_until), spacing, free, parked)


def _batch(db: sqlite3.Connection, now: int, runs: list[Contender], limit: int) -> list[Pick]:
    known: dict[int, Lane] = {}
    contenders = []
    for run in runs:
        for row in db.execute(_DUE, (run.id, now + HORIZON, limit)).fetchall():
            lane = known.get(row[0]) or known.setdefault(row[0], _lane(row))
            lane.ready[run.id] = row[1]
            lane.picks[run.id] = row[2]
            run.due.append(lane.id)
        run.due.reverse()
        if run.due:
            contenders.append(run)
        if len(contenders) >= RUNS_CONSIDERED:
            break  # those with the least share came first
    if not contenders:
        return []
    _find_strangers(db, now, runs, known)
    shares = {run.id: run.share for run in contenders}
    decided = plan(now, contenders, known, limit)
    changed = [(run.share, run.id) for run in contenders if run.share != shares[run.id]]
    db.executemany("UPDATE runs SET share = ? WHERE id = ?", changed)
    picked: list[Pick] = []
    for (run_id, lane_id), slots in decided.items():
        lane = known[lane_id]
        rows = _pop(db, now, lane_id, run_id, len(slots), lane.picks[run_id])
        # There may be fewer than the head promised: expired ones, or tasks kept to be alone.
        picked.extend((row, lane, slot) for row, slot in zip(rows, slots, strict=False))
    return picked


def _find_strangers(
    db: sqlite3.Connection, now: int, served: list[Contender], known: dict[int, Lane]
) -> None:
    """Runs that other workers serve, and that want slots of the same scarce lanes."""
    own = {run.id for run in served}
    others = db.execute(
        "SELECT id, weight FROM runs WHERE state = 'running' AND ready > delayed AND asked_at > ?",
        (now - ALIVE,),
    ).fetchall()
    weights = {run: max(1, weight) for run, weight in others if run not in own}
    if not weights:
        return
    for lane in known.values():
        if lane.spacing or lane.free < UNLIMITED:
            rows = db.execute(
                "SELECT run, picks FROM heads WHERE lane = ? AND ready > 0", (lane.id,)
            ).fetchall()
            lane.strangers = [picks / weights[run] for run, picks in rows if run in weights]


def _pop(db: sqlite3.Connection, now: int, lane: int, run: int, count: int, picks_after: int) -> list[Row]:
    rows: list[Row] = []
    for _ in range(3):  # a few rounds, should the first hold tasks whose time is over
        wanted = count - len(rows)
        rows.extend(_living(db, now, db.execute(_POP, (lane, run, wanted)).fetchall()))
        if len(rows) >= count:
            break
        if wanted and not rows:
            continue
        break
    oldest = picks_after // OLDEST_EVERY - (picks_after - count) // OLDEST_EVERY
    if oldest and rows and len(rows) == count and _lowest_band(db, lane, run) != rows[0][3]:
        _mix_in_oldest(db, now, lane, run, rows, oldest)
    return rows


def _living(db: sqlite3.Connection, now: int, rows: list[Row]) -> list[Row]:
    over = [row[0] for row in rows if row[7] is not None and row[7] <= now]
    if over:
        bury.expire(db, now, over)
        rows = [row for row in rows if row[0] not in over]
    return rows


def _lowest_band(db: sqlite3.Connection, lane: int, run: int) -> int:
    row = db.execute(
        "SELECT band FROM tasks WHERE state = 0 AND lane = ? AND run = ? ORDER BY band DESC LIMIT 1",
        (lane, run),
    ).fetchone()
    return int(row[0])


def _mix_in_oldest(
    db: sqlite3.Connection, now: int, lane: int, run: int, rows: list[Row], count: int
) -> None:
    first_of_bands: list[Row] = []
    for number in range(BANDS):
        first_of_bands.extend(db.execute(_POP_BAND, (lane, run, number, count)).fetchall())
    first_of_bands.sort(key=lambda row: (row[4], row[0]))
    taken = {row[0] for row in rows}
    for row in first_of_bands[:count]:
        if row[0] not in taken and (row[7] is None or row[7] > now):
            rows.pop()
            rows.insert(0, row)


def _hand_out(
    db: sqlite3.Connection,
    now: int,
    worker: str,
    lease: float,
    request: str,
    picked: list[Pick],
) -> Claim:
    number = next_lease(db, now)
    db.execute(
        "INSERT INTO leases (number, worker, request, expires_at, open) VALUES (?, ?, ?, ?, ?)",
        (number, worker, request, now + micros(lease), len(picked)),
    )
    db.executemany(
        "UPDATE tasks SET state = 1, lease = ?, slot = ? WHERE id = ?",
        [(number, slot, row[0]) for row, _, slot in picked],
    )
    places = Counter((row[2], lane.id) for row, lane, _ in picked)
    picks = {(row[2], lane.id): lane.picks[row[2]] for row, lane, _ in picked}
    db.executemany(
        "UPDATE heads SET ready = ready - ?, picks = ? WHERE run = ? AND lane = ?",
        [(n, picks[place], *place) for place, n in places.items()],
    )
    for run, count in Counter(row[2] for row, _, _ in picked).items():
        db.execute("UPDATE runs SET ready = ready - ?1, leased = leased + ?1 WHERE id = ?2", (count, run))
    in_flight = Counter(lane.id for _, lane, _ in picked)
    # Slots grow along a lane, so the last one seen here is its latest.
    next_at = {lane.id: slot + lane.spacing for _, lane, slot in sorted(picked, key=lambda pick: pick[2])}
    db.executemany(
        "UPDATE lanes SET in_flight = in_flight + ?, next_at = ? WHERE id = ?",
        [(count, next_at[lane], lane) for lane, count in in_flight.items()],
    )
    lanes.wake(db, in_flight)
    return Claim(number, tuple(leased(row, number, lane, slot - now) for row, lane, slot in picked))


def next_lease(db: sqlite3.Connection, now: int) -> int:
    row = db.execute(
        "UPDATE meta SET value = max(value + 1, ?) WHERE key = 'last_lease' RETURNING value", (now,)
    ).fetchone()
    return int(row[0])


def leased(row: Row, lease: int, lane: Lane, start_in: int) -> Leased:
    past = failures(_decode_attempts(row[14])) if row[14] else None
    return Leased(
        row[0], lease, row[2], lane.name, row[12], row[11], row[8], row[9], row[10],
        None if row[13] is None else msgspec.json.decode(row[13]),
        row[5], row[6], start_in / SECOND, lane.spacing / SECOND, past,
        None if row[15] is None else _decode_ask(row[15]), lane.parked,
    )  # fmt: skip


def _again(db: sqlite3.Connection, now: int, number: int) -> Claim:
    """The same batch once more. A slot that has passed is negative: the worker reserves anew where it is late."""
    rows = db.execute(
        f"SELECT {_COLUMNS}, slot FROM tasks WHERE state IN (1, 3) AND lease = ? AND state = 1 ORDER BY slot, id",
        (number,),
    ).fetchall()
    known = {
        row[1]: Lane(
            row[1],
            *db.execute("SELECT name, 0, spacing, 0, parked FROM lanes WHERE id = ?", (row[1],)).fetchone(),
        )
        for row in rows
    }
    return Claim(number, tuple(leased(row, number, known[row[1]], row[16] - now) for row in rows))
