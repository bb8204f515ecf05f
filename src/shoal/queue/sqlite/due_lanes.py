"""Due lanes: where a run has work that may be handed out now, as a claim looks for it."""

from __future__ import annotations

import sqlite3

from shoal.core.claim_plan import SLOT_HORIZON_US, UNLIMITED, CandidateRun, Lane
from shoal.queue.sqlite import lanes, needs

CORRECTIONS = 4  # rounds per run and claim, where lanes have moved on since they were written down
FIRST_LANES = 32

_LANE = "l.name, l.next_at, l.spacing, l.max_in_flight, l.in_flight, l.held_until, l.parked, l.given"
_OF_RUN = f"SELECT h.lane, h.ready, h.picks, {_LANE} FROM run_lanes h JOIN lanes l ON l.id = h.lane WHERE h.run = ? AND h.needs = ?"
_DUE = f"{_OF_RUN} AND h.wake_at <= ? ORDER BY h.wake_at LIMIT ?"
_DUE_WITH_NEEDS = f"""SELECT h.lane, h.ready, p.picks, {_LANE} FROM run_lanes h JOIN lanes l ON l.id = h.lane
           JOIN run_lanes p ON p.run = h.run AND p.lane = h.lane AND p.needs = 0
           WHERE h.run = ? AND h.needs = ? AND h.wake_at <= ? ORDER BY h.wake_at LIMIT ?"""
_RUN_LANE = f"{_OF_RUN} AND h.lane = ?"
LaneRow = tuple[int, int, int, str, int, int, int, int, int, int, int]  # of _DUE


def run_lane_row(db: sqlite3.Connection, run: int, lane: int) -> LaneRow:
    row: LaneRow = db.execute(_RUN_LANE, (run, needs.NONE, lane)).fetchone()
    return row


def to_lane(row: LaneRow) -> Lane:
    lane, _, _, name, next_at, spacing, max_in_flight, in_flight, held_until, parked, given = row
    free = max_in_flight - in_flight if max_in_flight else UNLIMITED
    if parked:
        free = min(free, 1 - in_flight)
    return Lane(lane, name, max(next_at, held_until), spacing, free, parked, given)


def due_lanes(db: sqlite3.Connection, now: int, run: CandidateRun, most: int, *, alone: bool = False) -> list[LaneRow]:
    """The lanes of a run where there is work for this worker, soonest first.

    The first few will do if they have slots for all that is wanted, no other run takes some (`alone`), and all
    tasks are equally urgent.
    """
    if len(run.needs) == 1:
        if alone and most > FIRST_LANES and not run.has_bands:
            rows = _due_rows(db, now, _DUE, (run.id, needs.NONE), FIRST_LANES)
            if _has_slots(rows, now, most):
                return rows
        return _due_rows(db, now, _DUE, (run.id, needs.NONE), most)
    by_lane = {row[0]: row for row in _due_rows(db, now, _DUE, (run.id, needs.NONE), most)}
    for number in run.needs[1:]:
        for row in _due_rows(db, now, _DUE_WITH_NEEDS, (run.id, number), most):
            known = by_lane.get(row[0])
            by_lane[row[0]] = row if known is None else (row[0], row[1] + known[1], *row[2:])
    return sorted(by_lane.values(), key=_opens_at)[:most]


def _due_rows(db: sqlite3.Connection, now: int, query: str, kind: tuple[int, int], most: int) -> list[LaneRow]:
    """Those found in lanes that have moved on since are put where they belong, and others are looked at instead."""
    horizon, found = now + SLOT_HORIZON_US, list[LaneRow]()
    for _ in range(CORRECTIONS):
        rows: list[LaneRow] = db.execute(query, (*kind, horizon, most)).fetchall()
        found = [row for row in rows if _opens_at(row) <= horizon and not _is_full(row)]
        if len(found) == len(rows):
            break
        known = {row[0] for row in found}
        lanes.correct(db, [(kind[0], row[0], kind[1]) for row in rows if row[0] not in known])
        if len(rows) < most:
            break
    found.sort(key=_opens_at)
    return found


def _has_slots(rows: list[LaneRow], now: int, count: int) -> bool:
    """Whether so many tasks can be handed out there within the horizon."""
    for row in rows:
        count -= min(row[1], to_lane(row).open_slots(now))
        if count <= 0:
            return True
    return False


def _opens_at(row: LaneRow) -> int:
    return max(row[4], row[8])


def _is_full(row: LaneRow) -> bool:
    return row[7] >= row[6] > 0 or (row[9] > 0 and row[7] > 0)
