"""Lanes: pace, holds and the heads that tell claims where there is work."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from shoal.core.lane import Pace, Slot
from shoal.core.task import LaneChange

SECOND = 1_000_000
DEFAULT_PACE = Pace()
LONGEST_WAIT = 60 * SECOND

_WAKE = """
UPDATE heads SET wake_at = (
  SELECT CASE WHEN heads.ready <= 0 OR (l.max_in_flight > 0 AND l.in_flight >= l.max_in_flight)
                OR (l.parked > 0 AND l.in_flight > 0) THEN NULL
         ELSE max(l.next_at, l.held_until) END
  FROM lanes l WHERE l.id = heads.lane)
WHERE lane = ? AND (ready > 0 OR wake_at IS NOT NULL)
"""


def micros(seconds: float) -> int:
    return round(seconds * SECOND)


def wake(db: sqlite3.Connection, lanes: Iterable[int]) -> None:
    """Say anew when each head of these lanes may be asked; call it last, once all else has changed."""
    db.executemany(_WAKE, [(lane,) for lane in lanes])


def ensure(
    db: sqlite3.Connection, run: int, names: Iterable[str], paces: Mapping[str, Pace]
) -> dict[str, int]:
    """The ids of a run's lanes, making lanes and heads that are new and applying new paces."""
    ids = {}
    for name in names:
        pace = paces.get(name)
        row = db.execute(
            "SELECT l.id, h.spacing, h.max_in_flight FROM lanes l LEFT JOIN heads h ON h.run = ? AND h.lane = l.id WHERE l.name = ?",
            (run, name),
        ).fetchone()
        if row is None:
            lane = int(db.execute("INSERT INTO lanes (name) VALUES (?) RETURNING id", (name,)).fetchone()[0])
            row = (lane, None, None)
        ids[name] = row[0]
        if row[1] is None or (pace is not None and (micros(pace.spacing), pace.max_in_flight) != row[1:]):
            _ask(db, run, row[0], pace or DEFAULT_PACE)
    return ids


def _ask(db: sqlite3.Connection, run: int, lane: int, pace: Pace) -> None:
    # A newcomer to a lane starts level with the run that was served least, so that it catches up with nobody.
    db.execute(
        """INSERT INTO heads (run, lane, spacing, max_in_flight, picks)
           VALUES (?1, ?2, ?3, ?4, ifnull((SELECT min(h.picks) FROM heads h JOIN runs r ON r.id = h.run WHERE h.lane = ?2 AND r.state = 'running'), 0))
           ON CONFLICT (run, lane) DO UPDATE SET spacing = ?3, max_in_flight = ?4""",
        (run, lane, micros(pace.spacing), pace.max_in_flight),
    )
    settle_pace(db, [lane])


_SETTLE_PACE = """
UPDATE lanes SET (asked, max_in_flight) = (
  SELECT ifnull(max(h.spacing), 0), iif(lanes.most < 0, ifnull(min(nullif(h.max_in_flight, 0)), 0), lanes.most)
  FROM heads h JOIN runs r ON r.id = h.run WHERE h.lane = lanes.id AND r.state IN ('running', 'paused'))
WHERE id = ?
"""


def settle_pace(db: sqlite3.Connection, lanes: Sequence[int]) -> None:
    """Apply the slowest pace that any unfinished run asks of the lane."""
    db.executemany(_SETTLE_PACE, [(lane,) for lane in lanes])
    db.executemany(
        "UPDATE lanes SET spacing = iif(rule < 0, max(learned, asked), rule) WHERE id = ?",
        [(lane,) for lane in lanes],
    )


def reconsider(db: sqlite3.Connection, run: int) -> None:
    """The lanes of a run that ended, or began again: what it asks of them stops or starts to count."""
    ids = [row[0] for row in db.execute("SELECT lane FROM heads WHERE run = ?", (run,)).fetchall()]
    settle_pace(db, ids)
    wake(db, ids)


def drop_heads(db: sqlite3.Connection, run: int) -> None:
    """A run that is removed leaves no trace in its lanes."""
    ids = [row[0] for row in db.execute("DELETE FROM heads WHERE run = ? RETURNING lane", (run,)).fetchall()]
    settle_pace(db, ids)
    wake(db, ids)


def change(db: sqlite3.Connection, now: int, changes: Iterable[LaneChange]) -> None:
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
        if item.spacing is not None or item.rule is not None:
            learned = None if item.spacing is None else micros(item.spacing)
            rule = None if item.rule is None else micros(item.rule) if item.rule >= 0 else -1
            db.execute(_SPACE, (learned, rule, item.reason, lane))
        if item.limit is not None:
            db.execute(_LIMIT, (max(-1, item.limit), lane))
    wake(db, touched)


# A spacing that has grown counts from the last request on.
_SPACE = """
UPDATE lanes SET (learned, rule, next_at, spacing) = (
  SELECT learned, rule, lanes.next_at + max(0, spacing - lanes.spacing), spacing
  FROM (SELECT learned, rule, iif(rule < 0, max(lanes.asked, learned), rule) AS spacing
        FROM (SELECT ifnull(?1, lanes.learned) AS learned, ifnull(?2, lanes.rule) AS rule))),
  reason = iif(?3 = '', reason, ?3)
WHERE id = ?4
"""
_LIMIT = """
UPDATE lanes SET most = ?1, max_in_flight = iif(?1 >= 0, ?1, (
  SELECT ifnull(min(nullif(h.max_in_flight, 0)), 0)
  FROM heads h JOIN runs r ON r.id = h.run WHERE h.lane = lanes.id AND r.state IN ('running', 'paused')))
WHERE id = ?2
"""


def reserve(db: sqlite3.Connection, now: int, name: str, pace: Pace | None, within: float | None) -> Slot:
    row = db.execute(
        "SELECT id, next_at, spacing, held_until, parked, reason, rule FROM lanes WHERE name = ?", (name,)
    ).fetchone()
    if row is None:
        wanted = pace or DEFAULT_PACE
        # No run asks anything of this lane yet; this is in force until one does.
        row = db.execute(
            "INSERT INTO lanes (name, asked, spacing, max_in_flight) VALUES (?1, ?2, ?2, ?3) RETURNING id, 0, spacing, 0, 0, '', -1",
            (name, micros(wanted.spacing), wanted.max_in_flight),
        ).fetchone()
    lane, next_at, spacing, held_until, parked, reason, rule = row
    if pace is not None and rule < 0:
        spacing = max(spacing, micros(pace.spacing))
    if parked and held_until > now:
        return Slot((held_until - now) / SECOND, reason or "parked", spacing / SECOND, taken=False)
    at = max(now, next_at, held_until)
    if within is not None and at - now > micros(within):
        return Slot((at - now) / SECOND, spacing=spacing / SECOND, taken=False)
    db.execute("UPDATE lanes SET next_at = ? WHERE id = ?", (at + spacing, lane))
    wake(db, [lane])
    return Slot((at - now) / SECOND, spacing=spacing / SECOND)


def forget_future(db: sqlite3.Connection, now: int) -> None:
    """After the clock stepped back: no slot lies further away than anybody would have waited for one."""
    rows = db.execute(
        """UPDATE lanes SET next_at = CASE spacing WHEN 0 THEN ?1 ELSE ?1 + max(spacing, ?2) END
           WHERE next_at > CASE spacing WHEN 0 THEN ?1 ELSE ?1 + max(spacing, ?2) END RETURNING id""",
        (now, LONGEST_WAIT),
    ).fetchall()
    wake(db, [row[0] for row in rows])
