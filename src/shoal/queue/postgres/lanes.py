"""Lanes: slots, changes and what people see of hosts."""

from __future__ import annotations

from typing import Any

from shoal.core.lane import LaneState, Pace, Slot
from shoal.core.task import LaneChange
from shoal.queue.postgres.columns import DEFAULT_PACE, SECOND, micros, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.settle import change
from shoal.queue.postgres.words import given, kept
from shoal.queue.wanted import Wanted

_COLUMNS = (
    "l.name, l.next_at, l.spacing, l.asked, l.learned, l.max_in_flight, l.in_flight, coalesce(h.ready, 0) AS waiting,"
    " l.held_until, l.parked, l.reason, {s}.tick($1) AS now, l.rule, l.cap"
)
# The busiest are chosen before anything else is read of them; where they are few, some without work follow.
_BUSIEST = """WITH busy AS MATERIALIZED (SELECT o_lane AS lane, o_ready AS ready FROM {s}.busiest($2)), chosen AS (
  SELECT lane, ready FROM busy UNION ALL (SELECT id, 0 FROM {s}.lanes WHERE (SELECT count(*) < $2 FROM busy)
    AND id NOT IN (SELECT lane FROM busy) ORDER BY id LIMIT $2))"""
_BUSIEST_OF_RUN = """WITH chosen AS (
  SELECT lane, ready FROM {s}.heads WHERE run = $3::integer ORDER BY ready DESC, lane LIMIT $2)"""
_BUSY_EACH = (
    """LEFT JOIN LATERAL (SELECT sum(ready)::bigint AS ready FROM {s}.heads WHERE lane = l.id) h ON true"""
)
_OF_RUN = "JOIN {s}.heads h ON h.lane = l.id AND h.run = $2::integer"
_ONLY = {
    "parked": "l.parked > 0 AND l.held_until > {s}.tick($1)",
    "held": "l.held_until > {s}.tick($1)",
    "ruled": "(l.rule >= 0 OR l.cap >= 0)",
}


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


async def listing(engine: Engine, run: int | None, limit: int, wanted: Wanted) -> list[LaneState]:
    if wanted.order == "ready" and not (wanted.like or wanted.only or wanted.names):
        return await _busiest(engine, run, limit)
    values: list[Any] = [engine.now()] if run is None else [engine.now(), run]
    terms = [_ONLY[wanted.only]] if wanted.only else []

    def term(sql: str, value: Any) -> None:
        values.append(value)
        terms.append(sql.replace("?", f"${len(values)}"))

    if wanted.like:
        term("strpos(l.name, ?) > 0", kept(wanted.like))
    if wanted.names:
        term("l.name = ANY (?::text[])", [kept(name) for name in wanted.names])
    if wanted.order == "name" and wanted.after:
        term("l.name > ?", kept(wanted.after))
    ready = _OF_RUN if run is not None else _BUSY_EACH
    order = "l.name" if wanted.order == "name" else "waiting DESC, l.id"
    values.append(limit)
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.lanes l {ready} WHERE {' AND '.join(terms) or 'true'}"
        f" ORDER BY {order} LIMIT ${len(values)}",
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
        name=given(row[0]), next_at=row[1], spacing=row[2] / SECOND, asked=row[3] / SECOND, learned=row[4] / SECOND,
        max_in_flight=row[5], in_flight=row[6], ready=row[7],
        held_until=row[8] if held else 0, parked=bool(row[9]) and held,
        reason=given(row[10]) if held or row[4] else "",
        rule=-1.0 if row[12] < 0 else row[12] / SECOND, limit=row[13],
    )  # fmt: skip
