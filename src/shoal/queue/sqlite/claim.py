"""Claim: which tasks a worker gets next.

Order: runs by weighted share, lanes by when they come due, in a lane the run served least there,
then band and age; every 16th pick of a (run, lane) takes its oldest task. The cost is that of the
lanes touched, never that of the backlog.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from shoal.core.task import ALONE, BANDS, Attempt, Claim, Leased
from shoal.queue.base import SLOT_HORIZON
from shoal.queue.sqlite import bury, lanes
from shoal.queue.sqlite.lanes import SECOND, micros

OLDEST_EVERY = 16
LANES_SPREAD = 16  # a batch is spread over at least so many lanes, if they are due
PROMOTE_LIMIT = 1000
HORIZON = micros(SLOT_HORIZON)

_COLUMNS = (
    "id, lane, run, band, due, attempts, lost, expires_at, priority, depth, parent, kind, url, meta, history"
)
_DUE = """SELECT h.lane, h.ready, h.picks, l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until
          FROM heads h JOIN lanes l ON l.id = h.lane
          WHERE h.run = ? AND h.wake_at <= ? ORDER BY h.wake_at LIMIT ?"""
_POP = f"SELECT {_COLUMNS} FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND band >= 0 ORDER BY band, due, id LIMIT ?"
_POP_BAND = f"SELECT {_COLUMNS} FROM tasks WHERE state = 0 AND lane = ? AND run = ? AND band = ? ORDER BY due, id LIMIT ?"
_decode_attempts = msgspec.json.Decoder(list[Attempt]).decode

Row = tuple[
    int, int, int, int, int, int, int, int | None, int, int, int | None, str, str, str | None, str | None
]


@dataclass(slots=True)
class _Run:
    id: int
    weight: int
    share: float
    left: int  # how many it may still hand out
    due: list[int] = field(default_factory=list)  # lanes, soonest last


@dataclass(slots=True)
class _Lane:
    id: int
    name: str
    next_at: int
    spacing: int
    free: int  # places in flight
    ready: dict[int, int] = field(default_factory=dict)  # by run
    picks: dict[int, int] = field(default_factory=dict)

    def room(self, now: int) -> int:
        """How many more tasks it may start within the horizon."""
        if self.spacing == 0:
            return self.free if max(self.next_at, now) <= now + HORIZON else 0
        first = max(self.next_at, now)
        return max(0, min(self.free, (now + HORIZON - first) // self.spacing + 1))

    def take(self, now: int) -> int:
        slot = max(self.next_at, now)
        self.next_at = slot + self.spacing
        self.free -= 1
        return slot


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
    runs = _served(db, serves)
    if not runs or limit < 1:
        return Claim(0, (), _next_in(db, now, runs))
    picked = _alone(db, now, runs) or _batch(db, now, runs, limit)
    if not picked:
        return Claim(0, (), _next_in(db, now, runs))
    return _hand_out(db, now, worker, lease, request, picked)


def promote(db: sqlite3.Connection, now: int) -> None:
    """Delayed tasks whose time has come are ready."""
    rows = db.execute(
        "SELECT id, run, lane FROM tasks WHERE state = 2 AND due <= ? ORDER BY due LIMIT ?",
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
    for run, count in Counter(row[1] for row in rows).items():
        # A cancelled run's account is closed already; its rows are only waiting to be removed.
        db.execute(
            "UPDATE runs SET delayed = delayed - ? WHERE id = ? AND state <> 'cancelled'", (count, run)
        )
    lanes.wake(db, {row[2] for row in rows})


def _served(db: sqlite3.Connection, serves: Collection[str] | None) -> list[_Run]:
    rows = db.execute(
        "SELECT id, weight, share, max_pages, done, leased, name, scraper FROM runs WHERE state = 'running' AND ready > delayed ORDER BY share, id"
    ).fetchall()
    found = []
    for run, weight, share, max_pages, done, leased, name, scraper in rows:
        if serves is not None and name not in serves and scraper not in serves:
            continue
        left = max_pages - done - leased if max_pages else 1 << 40
        if left > 0:
            found.append(_Run(run, max(1, weight), share, left))
    return found


def _next_in(db: sqlite3.Connection, now: int, runs: Iterable[_Run]) -> float | None:
    times = [
        db.execute(
            "SELECT min(wake_at) FROM heads WHERE run = ? AND wake_at IS NOT NULL", (run.id,)
        ).fetchone()[0]
        for run in runs
    ]
    times.append(db.execute("SELECT min(due) FROM tasks WHERE state = 2").fetchone()[0])
    soonest = min((at for at in times if at is not None), default=None)
    return None if soonest is None else max(0.0, (soonest - now) / SECOND)


def _alone(db: sqlite3.Connection, now: int, runs: list[_Run]) -> list[tuple[Row, _Lane, int]]:
    """A task that has lost a worker is handed out by itself, before all others."""
    served = {run.id for run in runs}
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM tasks WHERE state = 0 AND band = {ALONE} ORDER BY due LIMIT 50"
    ).fetchall()
    for row in rows:
        if row[2] not in served:
            continue
        head = db.execute(
            _DUE.replace("ORDER BY h.wake_at LIMIT ?", "AND h.lane = ?"), (row[2], now + HORIZON, row[1])
        ).fetchone()
        if head is None:
            continue
        lane = _lane(head, now)
        if lane.room(now) < 1:
            continue
        if row[7] is not None and row[7] <= now:
            bury.expire(db, now, [row[0]])
            continue
        return [(row, lane, lane.take(now))]
    return []


def _lane(row: tuple[int, int, int, str, int, int, int, int, int], now: int) -> _Lane:
    lane, _, _, name, next_at, spacing, max_in_flight, in_flight, held_until = row
    return _Lane(
        lane, name, max(next_at, held_until), spacing, max_in_flight - in_flight if max_in_flight else 1 << 40
    )


def _batch(db: sqlite3.Connection, now: int, runs: list[_Run], limit: int) -> list[tuple[Row, _Lane, int]]:
    known: dict[int, _Lane] = {}
    for run in runs:
        for row in db.execute(_DUE, (run.id, now + HORIZON, limit)).fetchall():
            lane = known.get(row[0]) or known.setdefault(row[0], _lane(row, now))
            lane.ready[run.id] = row[1]
            lane.picks[run.id] = row[2]
            run.due.append(lane.id)
        run.due.reverse()
    contenders = [run for run in runs if run.due]
    if not contenders:
        return []
    plan = _plan(now, contenders, known, limit)
    for run in contenders:
        db.execute("UPDATE runs SET share = ? WHERE id = ?", (run.share, run.id))
    picked: list[tuple[Row, _Lane, int]] = []
    for (run_id, lane_id), slots in plan.items():
        lane = known[lane_id]
        rows = _pop(db, now, lane_id, run_id, len(slots), lane.picks[run_id])
        # There may be fewer than the head promised: expired ones, or tasks kept to be alone.
        picked.extend((row, lane, slot) for row, slot in zip(rows, slots, strict=False))
    return picked


def _plan(
    now: int, contenders: list[_Run], known: dict[int, _Lane], limit: int
) -> dict[tuple[int, int], list[int]]:
    """Decide how many tasks each (run, lane) gives, without looking at any task."""
    by_id = {run.id: run for run in contenders}
    _level(contenders)
    chunk = max(1, -(-limit // min(len(known), LANES_SPREAD)))
    plan: dict[tuple[int, int], list[int]] = {}
    while limit > 0:
        turn = min(
            (run for run in contenders if run.due and run.left > 0),
            key=lambda run: (run.share, run.id),
            default=None,
        )
        if turn is None:
            break
        lane = known[turn.due.pop()]
        chosen = turn
        rivals = [run for run in lane.ready if run != turn.id and lane.ready[run] > 0 and by_id[run].left > 0]
        if rivals:
            # The lane is the scarce thing here: whoever was served least in it goes first.
            chosen = by_id[
                min([turn.id, *rivals], key=lambda run: (lane.picks[run] / by_id[run].weight, run))
            ]
        count = min(chunk, limit, chosen.left, lane.room(now), lane.ready.get(chosen.id, 0))
        if rivals:
            count = min(count, 1)
        if count > 0:
            plan.setdefault((chosen.id, lane.id), []).extend(lane.take(now) for _ in range(count))
            lane.ready[chosen.id] -= count
            lane.picks[chosen.id] += count
            chosen.left -= count
            chosen.share += count / chosen.weight
            limit -= count
            if lane.room(now) > 0 and any(lane.ready.values()):
                turn.due.insert(0, lane.id)
    return plan


def _level(contenders: list[_Run]) -> None:
    """A run that had nothing to do does not get to catch up at the others' expense."""
    floor = max(run.share for run in contenders) - 64
    for run in contenders:
        run.share = max(run.share, floor)


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
    picked: list[tuple[Row, _Lane, int]],
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
    db.executemany(
        "UPDATE heads SET ready = ready - ?1, picks = picks + ?1 WHERE run = ?2 AND lane = ?3",
        [(n, *place) for place, n in places.items()],
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
    return Claim(
        number, tuple(leased(row, number, lane.name, slot - now, lane.spacing) for row, lane, slot in picked)
    )


def next_lease(db: sqlite3.Connection, now: int) -> int:
    row = db.execute(
        "UPDATE meta SET value = max(value + 1, ?) WHERE key = 'last_lease' RETURNING value", (now,)
    ).fetchone()
    return int(row[0])


def leased(row: Row, lease: int, lane: str, start_in: int, spacing: int) -> Leased:
    failures = None
    if row[14]:
        failures = dict(Counter(attempt.cause for attempt in _decode_attempts(row[14]) if attempt.cause))
    return Leased(
        row[0], lease, row[2], lane, row[12], row[11], row[8], row[9], row[10],
        None if row[13] is None else msgspec.json.decode(row[13]),
        row[5], row[6], start_in / SECOND, spacing / SECOND, failures,
    )  # fmt: skip


def _again(db: sqlite3.Connection, now: int, number: int) -> Claim:
    """The same batch once more. A slot that has passed is negative: the worker reserves anew where it is late."""
    rows = db.execute(
        f"SELECT {_COLUMNS}, slot FROM tasks WHERE state = 1 AND lease = ? ORDER BY slot, id", (number,)
    ).fetchall()
    names = {
        row[1]: db.execute("SELECT name, spacing FROM lanes WHERE id = ?", (row[1],)).fetchone()
        for row in rows
    }
    return Claim(
        number, tuple(leased(row, number, names[row[1]][0], row[15] - now, names[row[1]][1]) for row in rows)
    )
