"""Lane listing: lanes as people see them, a page at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection
from typing import Any, Literal

import msgspec

from shoal.core.lane import LaneState
from shoal.queue.sqlite.lanes import SECOND

LaneRow = tuple[Any, ...]

_COLUMNS = (
    "l.name, l.next_at, l.spacing, l.requested, l.learned, l.max_in_flight, l.in_flight, l.held_until, l.parked,"
    " l.reason, l.spacing_override, l.limit_override, l.id"
)
_OPEN = "r.state IN ('running', 'paused')"  # the others have nothing ready
_READY = f"""ifnull((SELECT sum(h.ready) FROM runs r CROSS JOIN run_lanes h ON h.run = r.id AND h.lane = l.id
                     WHERE {_OPEN}), 0)"""
_BUSY = f"""SELECT h.lane, sum(h.ready) AS ready FROM runs r CROSS JOIN run_lanes h ON h.run = r.id
            WHERE {_OPEN} AND h.ready > 0 GROUP BY h.lane"""
_ONLY = {
    "parked": "l.parked > 0 AND l.held_until > ?",
    "held": "l.held_until > ?",
    "overridden": "(l.spacing_override >= 0 OR l.limit_override >= 0)",
}


def listing(
    db: sqlite3.Connection,
    now: int,
    *,
    run: int | None = None,
    limit: int = 100,
    order: Literal["ready", "name"] = "ready",
    after: str = "",
    like: str = "",
    only: Literal["", "parked", "held", "overridden"] = "",
    names: Collection[str] = (),
) -> list[LaneState]:
    term, values = _condition(now, after, like, only, names)
    limit = max(0, limit)
    if run is not None:
        rows = _of_run(db, run, order, term, values, limit)
    elif order == "name":
        rows = _select(db, f"{_READY} AS ready", f"lanes l WHERE {term} ORDER BY l.name", values, limit)
    elif only or names:
        source = f"lanes l WHERE {term} ORDER BY ready DESC, l.id"
        rows = _select(db, f"{_READY} AS ready", source, values, limit)
    else:
        rows = _busiest(db, term, values, limit)
    return [_state(now, row) for row in rows]


def _condition(now: int, after: str, like: str, only: str, names: Collection[str]) -> tuple[str, list[object]]:
    terms, values = ["1"], list[object]()
    if after:
        terms.append("l.name > ?")
        values.append(after)
    if names:
        terms.append("l.name IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(list(names)).decode())
    if like:
        terms.append("instr(l.name, ?)")
        values.append(like)
    if only:
        terms.append(_ONLY[only])
        values += [now] * (only != "overridden")
    return " AND ".join(terms), values


def _select(db: sqlite3.Connection, ready: str, source: str, values: list[object], limit: int) -> list[LaneRow]:
    return db.execute(f"SELECT {_COLUMNS}, {ready} FROM {source} LIMIT ?", (*values, limit)).fetchall()


def _of_run(db: sqlite3.Connection, run: int, order: str, term: str, values: list[object], limit: int) -> list[LaneRow]:
    run_lanes = "SELECT lane, sum(ready) AS ready FROM run_lanes WHERE run = ? GROUP BY lane"
    if order == "ready" and term == "1":  # the best are chosen before their lanes are looked at
        run_lanes += f" ORDER BY ready DESC, lane LIMIT {limit:d}"
    by = "l.name" if order == "name" else "h.ready DESC, l.id"
    source = f"({run_lanes}) h CROSS JOIN lanes l ON l.id = h.lane WHERE {term} ORDER BY {by}"
    return _select(db, "h.ready", source, [run, *values], limit)


def _busiest(db: sqlite3.Connection, term: str, values: list[object], limit: int) -> list[LaneRow]:
    """Lanes with ready work, the most first; if there are too few, those that have none."""
    busy = f"{_BUSY} ORDER BY ready DESC, h.lane LIMIT {limit:d}" if term == "1" else _BUSY
    source = f"({busy}) b CROSS JOIN lanes l ON l.id = b.lane WHERE {term} ORDER BY b.ready DESC, l.id"
    rows = _select(db, "b.ready", source, values, limit)
    if len(rows) < limit:
        known = msgspec.json.encode([row[12] for row in rows]).decode()
        idle = f"lanes l WHERE {term} AND l.id NOT IN (SELECT value FROM json_each(?)) ORDER BY l.id"
        rows += _select(db, "0", idle, [*values, known], limit - len(rows))
    return rows


def _state(now: int, row: LaneRow) -> LaneState:
    (
        name,
        next_at,
        spacing,
        requested,
        learned,
        max_in_flight,
        in_flight,
        held_until,
        parked,
        reason,
        spacing_override,
        limit_override,
    ) = row[:12]
    held = held_until > now
    return LaneState(
        name=name, next_at=next_at, spacing=spacing / SECOND, requested=requested / SECOND, learned=learned / SECOND,
        max_in_flight=max_in_flight, in_flight=in_flight, ready=row[13],
        held_until=held_until if held else 0, parked=bool(parked) and held,
        reason=reason if held or learned or spacing_override >= 0 else "",
        spacing_override=spacing_override / SECOND if spacing_override >= 0 else -1.0, limit=limit_override,
    )  # fmt: skip
