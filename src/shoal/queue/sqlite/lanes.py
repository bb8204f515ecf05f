"""Lanes: pace, holds and the run_lanes that tell claims where there is work."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping

from shoal.core.lane import Pace, Slot
from shoal.core.task import LaneChange

SECOND = 1_000_000
DEFAULT_PACE = Pace()
LONGEST_WAIT = 60 * SECOND
LANES_PER_STEP = 100  # of a run that ends, so that nobody waits for it long

# When a lane may next be asked, or NULL where it is full.
OPENS_AT = """CASE WHEN (l.max_in_flight > 0 AND l.in_flight >= l.max_in_flight) OR (l.parked > 0 AND l.in_flight > 0) THEN NULL
              ELSE max(l.next_at, l.held_until) END"""
_EMPTY = "UPDATE run_lanes SET wake_at = NULL WHERE lane = ? AND ready <= 0 AND wake_at IS NOT NULL"
_OPEN = f"UPDATE run_lanes SET wake_at = o.at FROM (SELECT l.id, {OPENS_AT} AS at FROM lanes l WHERE l.id = ?) o WHERE o.at IS NOT NULL AND lane = o.id AND ready > 0"
_WAKE = f"{_OPEN} AND wake_at IS NULL"
_WAKE_SOONER = f"{_OPEN} AND wake_at > o.at"
_CORRECT = f"""UPDATE run_lanes SET wake_at = (SELECT {OPENS_AT} FROM lanes l WHERE l.id = run_lanes.lane)
               WHERE run = ? AND lane = ? AND needs = ? AND ready > 0"""


def micros(seconds: float) -> int:
    return round(seconds * SECOND)


def wake(db: sqlite3.Connection, lanes: Iterable[int]) -> None:
    """Work in these lanes is found as early as it may be asked for; call it last, once all else has changed.

    A lane that has moved on or is full is left to claims, which look at few runs of the many that may want it.
    """
    places = [(lane,) for lane in lanes]
    db.executemany(_EMPTY, places)
    db.executemany(_WAKE, places)
    db.executemany(_WAKE_SOONER, places)


def correct(db: sqlite3.Connection, places: Collection[tuple[int, int, int]]) -> None:
    """Say anew when these run_lanes (run, lane, needs) may be asked, or that they wait for a place in flight."""
    db.executemany(_CORRECT, places)


def ensure_lanes(db: sqlite3.Connection, run: int, names: Iterable[str], paces: Mapping[str, Pace]) -> dict[str, int]:
    """The ids of a run's lanes, making lanes and run_lanes that are new and applying new paces."""
    ids = {}
    for name in names:
        pace = paces.get(name)
        row = db.execute(
            "SELECT l.id, h.spacing, h.max_in_flight FROM lanes l LEFT JOIN run_lanes h ON h.run = ? AND h.lane = l.id AND h.needs = 0 WHERE l.name = ?",
            (run, name),
        ).fetchone()
        if row is None:
            lane = int(db.execute("INSERT INTO lanes (name) VALUES (?) RETURNING id", (name,)).fetchone()[0])
            row = (lane, None, None)
        ids[name] = row[0]
        if row[1] is None or (pace is not None and (micros(pace.spacing), pace.max_in_flight) != row[1:]):
            _set_run_pace(db, run, row[0], pace or DEFAULT_PACE)
    return ids


def _set_run_pace(db: sqlite3.Connection, run: int, lane: int, pace: Pace) -> None:
    # A newcomer to a lane starts level with the run that was served least for its weight: it catches up with nobody.
    db.execute(
        """INSERT INTO run_lanes (run, lane, spacing, max_in_flight, picks)
           VALUES (?1, ?2, ?3, ?4, ifnull((SELECT max(1, weight) FROM runs WHERE id = ?1) * (
             SELECT min(h.picks / max(1, r.weight)) FROM run_lanes h JOIN runs r ON r.id = h.run WHERE h.lane = ?2 AND h.needs = 0 AND r.state = 'running'), 0))
           ON CONFLICT (run, lane, needs) DO UPDATE SET spacing = ?3, max_in_flight = ?4""",
        (run, lane, micros(pace.spacing), pace.max_in_flight),
    )
    apply_pace(db, [lane])


_APPLY_PACE = """
UPDATE lanes SET (requested, max_in_flight) = (
  SELECT ifnull(max(h.spacing), 0), iif(lanes.limit_override < 0, ifnull(min(nullif(h.max_in_flight, 0)), 0), lanes.limit_override)
  FROM run_lanes h JOIN runs r ON r.id = h.run WHERE h.lane = lanes.id AND r.state IN ('running', 'paused'))
WHERE id = ?
"""


def apply_pace(db: sqlite3.Connection, lanes: Collection[int]) -> None:
    """Apply the slowest pace that any unfinished run asks of the lane."""
    db.executemany(_APPLY_PACE, [(lane,) for lane in lanes])
    db.executemany(
        "UPDATE lanes SET spacing = iif(spacing_override < 0, max(learned, requested), spacing_override) WHERE id = ?",
        [(lane,) for lane in lanes],
    )


# What waits there is kept apart while its run has ended. Both are sums: what changes before a lane's turn counts, too.
_KEEP = "UPDATE run_lanes SET kept = kept + ready, ready = 0 WHERE run = ? AND lane = ? AND ready <> 0"
_BRING_BACK = "UPDATE run_lanes SET ready = ready + kept, kept = 0 WHERE run = ? AND lane = ? AND kept <> 0"


def move_some(db: sqlite3.Connection, now: int, run: int) -> bool:
    """Some lanes of a run that ended, or began again, notice it: what it asks and has there stops or starts to count.

    Says whether there are more of them.
    """
    row = db.execute("SELECT lane_cursor, state FROM runs WHERE id = ? AND lane_cursor >= 0", (run,)).fetchone()
    if row is None:
        return False
    ids = [
        found[0]
        for found in db.execute(
            "SELECT DISTINCT lane FROM run_lanes WHERE run = ? AND lane > ? ORDER BY lane LIMIT ?",
            (run, row[0], LANES_PER_STEP),
        ).fetchall()
    ]
    moved = _BRING_BACK if row[1] in ("running", "paused") else _KEEP
    db.executemany(moved, [(run, lane) for lane in ids])
    apply_pace(db, ids)
    wake(db, ids)
    more = len(ids) == LANES_PER_STEP
    db.execute("UPDATE runs SET lane_cursor = ? WHERE id = ?", (ids[-1] if more else -1, run))
    return more


def drop_run_lanes(db: sqlite3.Connection, run: int, most: int) -> int:
    """A run that is removed leaves no trace in its lanes: some of them, and how many."""
    gone = [
        row[0]
        for row in db.execute(
            """DELETE FROM run_lanes WHERE run = ?1 AND lane IN (SELECT lane FROM run_lanes WHERE run = ?1 LIMIT ?2)
               RETURNING lane""",
            (run, max(0, min(most, LANES_PER_STEP))),
        ).fetchall()
    ]
    ids = sorted(set(gone))
    apply_pace(db, ids)
    wake(db, ids)
    return min(len(gone), most)


def apply_changes(db: sqlite3.Connection, now: int, changes: Iterable[LaneChange]) -> None:
    touched = set()
    for item in changes:
        row = db.execute("SELECT id FROM lanes WHERE name = ?", (item.lane,)).fetchone()
        if row is None:
            row = db.execute("INSERT INTO lanes (name) VALUES (?) RETURNING id", (item.lane,)).fetchone()
        lane = row[0]
        touched.add(lane)
        if item.hold_for is not None:
            db.execute(
                "UPDATE lanes SET held_until = max(held_until, ?), reason = ? WHERE id = ?",
                (now + micros(item.hold_for), item.reason, lane),
            )
        if item.park_for is not None and item.park_for > 0:
            db.execute(
                # Two workers that park it for the same failures have parked it once.
                "UPDATE lanes SET held_until = max(held_until, ?1), parked = parked + (parked = 0 OR held_until <= ?2), reason = ?3 WHERE id = ?4",
                (now + micros(item.park_for), now, item.reason, lane),
            )
        elif item.park_for is not None:
            db.execute("UPDATE lanes SET held_until = 0, parked = 0, reason = '' WHERE id = ?", (lane,))
        if item.spacing is not None or item.spacing_override is not None:
            learned = None if item.spacing is None else micros(item.spacing)
            spacing_override = (
                None
                if item.spacing_override is None
                else micros(item.spacing_override)
                if item.spacing_override >= 0
                else -1
            )
            db.execute(_SPACE, (learned, spacing_override, item.reason, lane))
        if item.limit is not None:
            db.execute(_LIMIT, (max(-1, item.limit), lane))
    wake(db, touched)


# A spacing that has grown counts from the last request on.
_SPACE = """
UPDATE lanes SET (learned, spacing_override, next_at, spacing) = (
  SELECT learned, spacing_override, lanes.next_at + max(0, spacing - lanes.spacing), spacing
  FROM (SELECT learned, spacing_override, iif(spacing_override < 0, max(lanes.requested, learned), spacing_override) AS spacing
        FROM (SELECT ifnull(?1, lanes.learned) AS learned, ifnull(?2, lanes.spacing_override) AS spacing_override))),
  reason = iif(?3 = '', reason, ?3)
WHERE id = ?4
"""
_LIMIT = """
UPDATE lanes SET limit_override = ?1, max_in_flight = iif(?1 >= 0, ?1, (
  SELECT ifnull(min(nullif(h.max_in_flight, 0)), 0)
  FROM run_lanes h JOIN runs r ON r.id = h.run WHERE h.lane = lanes.id AND r.state IN ('running', 'paused')))
WHERE id = ?2
"""


def reserve(
    db: sqlite3.Connection, now: int, lane: str, pace: Pace | None = None, *, within: float | None = None
) -> Slot:
    row = db.execute(
        "SELECT id, next_at, spacing, held_until, parked, reason, spacing_override FROM lanes WHERE name = ?", (lane,)
    ).fetchone()
    if row is None:
        wanted = pace or DEFAULT_PACE
        # No run asks anything of this lane yet; this is in force until one does.
        row = db.execute(
            "INSERT INTO lanes (name, requested, spacing, max_in_flight) VALUES (?1, ?2, ?2, ?3) RETURNING id, 0, spacing, 0, 0, '', -1",
            (lane, micros(wanted.spacing), wanted.max_in_flight),
        ).fetchone()
    number, next_at, spacing, held_until, parked, reason, spacing_override = row
    if pace is not None and spacing_override < 0:
        spacing = max(spacing, micros(pace.spacing))
    if parked and held_until > now:
        return Slot((held_until - now) / SECOND, reason or "parked", spacing / SECOND, taken=False)
    at = max(now, next_at, held_until)
    if within is not None and at - now > micros(within):
        return Slot((at - now) / SECOND, spacing=spacing / SECOND, taken=False)
    db.execute("UPDATE lanes SET next_at = ? WHERE id = ?", (at + spacing, number))
    wake(db, [number])
    return Slot((at - now) / SECOND, spacing=spacing / SECOND)


def clamp_future_slots(db: sqlite3.Connection, now: int) -> None:
    """After the clock stepped back: no slot lies further away than anybody would have waited for one."""
    rows = db.execute(
        """UPDATE lanes SET next_at = CASE spacing WHEN 0 THEN ?1 ELSE ?1 + max(spacing, ?2) END
           WHERE next_at > CASE spacing WHEN 0 THEN ?1 ELSE ?1 + max(spacing, ?2) END RETURNING id""",
        (now, LONGEST_WAIT),
    ).fetchall()
    wake(db, [row[0] for row in rows])
