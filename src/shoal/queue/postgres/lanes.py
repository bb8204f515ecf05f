"""Lanes: slots, changes and what people see of hosts."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal

from shoal.core.lane import LaneState, Pace, Slot
from shoal.core.task import LaneChange
from shoal.queue.lane_filter import LaneFilter
from shoal.queue.postgres import settle
from shoal.queue.postgres.columns import DEFAULT_PACE, SECOND, micros, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul

LANES_PER_STEP = 100  # of a run that ends, so that nobody waits for it long

_COLUMNS = (
    "l.name, l.next_at, l.spacing, l.requested, l.learned, l.max_in_flight, l.in_flight, coalesce(h.ready, 0) AS waiting,"
    " l.held_until, l.parked, l.reason, {s}.clock_micros($1) AS now, l.spacing_override, l.limit_override"
)
# The busiest are chosen before anything else is read of them; where they are few, some without work follow.
_BUSIEST = """WITH busy AS MATERIALIZED (SELECT o_lane AS lane, o_ready AS ready FROM {s}.busiest($2)), chosen AS (
  SELECT lane, ready FROM busy UNION ALL (SELECT id, 0 FROM {s}.lanes WHERE (SELECT count(*) < $2 FROM busy)
    AND id NOT IN (SELECT lane FROM busy) ORDER BY id LIMIT $2))"""
_BUSIEST_OF_RUN = """WITH chosen AS (
  SELECT lane, sum(ready)::bigint AS ready FROM {s}.run_lanes WHERE run + 0 = $3::integer GROUP BY lane ORDER BY 2 DESC, lane LIMIT $2)"""
_BUSY_EACH = """LEFT JOIN LATERAL (SELECT sum(ready)::bigint AS ready FROM {s}.run_lanes WHERE lane = l.id) h ON true"""
_OF_RUN = """JOIN LATERAL (SELECT sum(ready)::bigint AS ready FROM {s}.run_lanes WHERE lane = l.id AND run = $2::integer HAVING count(*) > 0) h ON true"""
_ONLY = {
    "parked": "l.parked > 0 AND l.held_until > {s}.clock_micros($1)",
    "held": "l.held_until > {s}.clock_micros($1)",
    "overridden": "(l.spacing_override >= 0 OR l.limit_override >= 0)",
}


async def reserve(engine: Engine, lane: str, pace: Pace | None = None, *, within: float | None = None) -> Slot:
    lane_filter = pace or DEFAULT_PACE
    (row,) = await engine.rows(
        "SELECT o_wait, o_spacing, o_parked, o_taken FROM {s}.reserve($1, $2, $3, $4, $5, $6)",
        engine.now(), escape_nul(lane), None if pace is None else micros(pace.spacing), micros(lane_filter.spacing), lane_filter.max_in_flight,
        None if within is None else micros(within),
    )  # fmt: skip
    wait, spacing, reason, taken = row
    parked = "" if reason is None else unescape_nul(reason) or "parked"
    return Slot(wait / SECOND, parked, spacing / SECOND, taken)


async def set_lane(engine: Engine, change: LaneChange) -> None:
    await engine.value("SELECT {s}.set_lanes($1, $2)", engine.now(), text([settle.lane_change_values(change)]))


async def listing(
    engine: Engine,
    *,
    run: int | None = None,
    limit: int = 100,
    order: Literal["ready", "name"] = "ready",
    after: str = "",
    like: str = "",
    only: Literal["", "parked", "held", "overridden"] = "",
    names: Collection[str] = (),
) -> list[LaneState]:
    lane_filter = LaneFilter(order, after, like, only, names)
    if lane_filter.order == "ready" and not (lane_filter.like or lane_filter.only or lane_filter.names):
        return await _busiest(engine, run, limit)
    values: list[Any] = [engine.now()] if run is None else [engine.now(), run]
    terms = [_ONLY[lane_filter.only]] if lane_filter.only else []

    def term(sql: str, value: Any) -> None:
        values.append(value)
        terms.append(sql.replace("?", f"${len(values)}"))

    if lane_filter.like:
        term("strpos(l.name, ?) > 0", escape_nul(lane_filter.like))
    if lane_filter.names:
        term("l.name = ANY (?::text[])", [escape_nul(name) for name in lane_filter.names])
    if lane_filter.order == "name" and lane_filter.after:
        term("l.name > ?", escape_nul(lane_filter.after))
    ready = _OF_RUN if run is not None else _BUSY_EACH
    sorting = "l.name" if lane_filter.order == "name" else "waiting DESC, l.id"
    values.append(limit)
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.lanes l {ready} WHERE {' AND '.join(terms) or 'true'}"
        f" ORDER BY {sorting} LIMIT ${len(values)}",
        *values,
    )
    return [_state(row) for row in rows]


async def _busiest(engine: Engine, run: int | None, limit: int) -> list[LaneState]:
    chosen, more = (_BUSIEST, ()) if run is None else (_BUSIEST_OF_RUN, (run,))
    rows = await engine.rows(
        f"{chosen} SELECT {_COLUMNS} FROM chosen h JOIN {{s}}.lanes l ON l.id = h.lane ORDER BY waiting DESC, l.id LIMIT $2",
        engine.now(), limit, *more,
    )  # fmt: skip
    return [_state(row) for row in rows]


def _state(row: Any) -> LaneState:
    held = row[8] > row[11]
    return LaneState(
        name=unescape_nul(row[0]), next_at=row[1], spacing=row[2] / SECOND, requested=row[3] / SECOND, learned=row[4] / SECOND,
        max_in_flight=row[5], in_flight=row[6], ready=row[7],
        held_until=row[8] if held else 0, parked=bool(row[9]) and held,
        reason=unescape_nul(row[10]) if held or row[4] else "",
        spacing_override=-1.0 if row[12] < 0 else row[12] / SECOND, limit=row[13],
    )  # fmt: skip


async def move_lanes(engine: Engine, run: int, steps: int | None = None) -> None:
    """Lanes of a run that ended, or began again, notice it a few at a time; where that is cut short, reap goes on."""
    while rows := await engine.rows("SELECT o_cursor, o_lanes FROM {s}.lanes_to_move($1)", run):
        cursor, lanes = rows[0]
        for at in range(0, max(1, len(lanes)), LANES_PER_STEP):
            some, is_last = lanes[at : at + LANES_PER_STEP], at + LANES_PER_STEP >= len(lanes)
            if steps is not None and at // LANES_PER_STEP >= steps:
                return
            if not await engine.value("SELECT {s}.go_on_moving($1, $2, $3, $4)", run, cursor, some, is_last):
                break  # somebody else did
            cursor = some[-1] if some else cursor
