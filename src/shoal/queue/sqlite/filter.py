"""Filter: what people ask for, as SQL conditions with bound values."""

from __future__ import annotations

import msgspec

from shoal.queue.base import TaskFilter


def condition(where: TaskFilter, table: str, *, dead: bool = False) -> tuple[str, list[object]]:
    """A condition over `table`, which has lane, url and, if dead, cause."""
    terms, values = ["1"], list[object]()
    if where.lane:
        terms.append(f"{table}.lane = (SELECT id FROM lanes WHERE name = ?)")
        values.append(where.lane)
    if where.cause:
        if dead:
            terms.append(f"{table}.cause GLOB ?")
            values.append(_glob(where.cause))
        else:
            terms.append("0")
    if where.url:
        terms.append(f"{table}.url GLOB ?")
        values.append(_glob(where.url))
    if where.ids:
        terms.append(f"{table}.id IN (SELECT value FROM json_each(?))")
        values.append(msgspec.json.encode(list(where.ids)).decode())
    return " AND ".join(terms), values


def dead_letters(where: TaskFilter) -> str:
    """Dead letters `t` of a run (to be bound): along the index if a lane is given, else by their numbers."""
    return "dead t INDEXED BY dead_by_group WHERE t.run = ?" if where.lane else "dead t WHERE +t.run = ?"


def _glob(pattern: str) -> str:
    """Only * is special to people; SQLite's GLOB also knows ? and [, which URLs are full of."""
    return "".join(f"[{c}]" if c in "?[" else c for c in pattern)
