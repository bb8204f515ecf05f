"""Lanes: slots, changes and what people see of hosts."""

from __future__ import annotations

from shoal.core.lane import LaneState, Pace, Slot
from shoal.core.task import LaneChange
from shoal.queue.postgres.columns import DEFAULT_PACE, SECOND, micros, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.settle import change
from shoal.queue.postgres.words import given, kept

_LISTING = """
SELECT l.name, l.next_at, l.spacing, l.asked, l.learned, l.max_in_flight, l.in_flight,
       coalesce(sum(h.ready), 0)::bigint AS waiting, l.held_until, l.parked, l.reason, {s}.tick($1) AS now, l.rule, l.cap
FROM {s}.lanes l LEFT JOIN {s}.heads h ON h.lane = l.id AND ($2::integer IS NULL OR h.run = $2)
WHERE $2 IS NULL OR l.id IN (SELECT lane FROM {s}.heads WHERE run = $2)
GROUP BY l.id ORDER BY waiting DESC, l.id LIMIT $3"""


async def reserve(engine: Engine, lane: str, pace: Pace | None, within: float | None) -> Slot:
    wanted = pace or DEFAULT_PACE
    (row,) = await engine.rows(
        "SELECT o_wait, o_spacing, o_parked, o_taken FROM {s}.reserve($1, $2, $3, $4, $5, $6)",
        engine.now(), kept(lane), None if pace is None else micros(pace.spacing), micros(wanted.spacing), wanted.max_in_flight,
        None if within is None else micros(within),
    )  # fmt: skip
    wait, spacing, reason, taken = row
    parked = "" if reason is None else given(reason) or "parked"
    return Slot(wait / SECOND, parked, spacing / SECOND, taken)


async def set_lane(engine: Engine, item: LaneChange) -> None:
    await engine.value("SELECT {s}.set_lanes($1, $2)", engine.now(), text([change(item)]))


async def listing(engine: Engine, run: int | None, limit: int) -> list[LaneState]:
    rows = await engine.rows(_LISTING, engine.now(), run, limit)
    return [
        LaneState(
            name=given(row[0]), next_at=row[1], spacing=row[2] / SECOND, asked=row[3] / SECOND, learned=row[4] / SECOND,
            max_in_flight=row[5], in_flight=row[6], ready=row[7],
            held_until=row[8] if row[8] > row[11] else 0, parked=bool(row[9]) and row[8] > row[11],
            reason=given(row[10]) if row[8] > row[11] or row[4] else "",
            rule=-1.0 if row[12] < 0 else row[12] / SECOND, limit=row[13],
        )
        for row in rows
    ]  # fmt: skip
