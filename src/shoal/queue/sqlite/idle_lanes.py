"""Idle lanes: those that nothing refers to any more go, a few at a time."""

from __future__ import annotations

import random
import sqlite3

from shoal.queue.base import LANE_KEPT_SECONDS
from shoal.queue.sqlite.lanes import micros

LOOKED_AT = 200  # lanes per call, and as many from the first on

_REMOVE = f"""DELETE FROM lanes WHERE id IN (
  SELECT l.id FROM (
    SELECT * FROM (SELECT * FROM lanes WHERE id >= ?1 ORDER BY id LIMIT {LOOKED_AT})
    UNION SELECT * FROM (SELECT * FROM lanes ORDER BY id LIMIT {LOOKED_AT})) l
  WHERE l.in_flight = 0 AND l.learned = 0 AND l.parked = 0 AND l.spacing_override < 0 AND l.limit_override < 0
    AND max(l.next_at, l.held_until) <= ?2 AND NOT EXISTS (SELECT 1 FROM run_lanes h WHERE h.lane = l.id))"""


def remove(db: sqlite3.Connection, now: int) -> None:
    """A run that has a row of history in a lane has a run_lane there, until it is removed itself."""
    (last,) = db.execute("SELECT ifnull(max(id), 0) FROM lanes").fetchone()
    db.execute(_REMOVE, (random.randint(0, last), now - micros(LANE_KEPT_SECONDS)))
