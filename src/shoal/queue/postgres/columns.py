"""Columns: tasks as the arrays that one call carries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.task import SHORT_DIGEST, Task, band
from shoal.queue.postgres.text import escape_nul

SECOND = 1_000_000
MAX_PRIORITY = 2**31  # priorities beyond are as good as this
DEFAULT_PACE = Pace()
_encode = msgspec.json.Encoder().encode


def micros(seconds: float) -> int:
    return round(seconds * SECOND)


def text(value: object) -> str | None:
    """A value as JSON text, which has its own way of writing NUL."""
    return None if value is None else _encode(value).decode()


def task_columns(tasks: Sequence[Task], needs: Sequence[int] = ()) -> tuple[list[Any], ...]:
    """digest, lane, url, kind, priority, band, depth, parent, meta, request_options, auto_ack, needs, delay, ttl."""
    return (
        [task.digest[:SHORT_DIGEST] for task in tasks],
        [escape_nul(task.lane) for task in tasks],
        [escape_nul(task.url) for task in tasks],
        [escape_nul(task.kind) for task in tasks],
        [max(-MAX_PRIORITY, min(task.priority, MAX_PRIORITY)) for task in tasks],
        [band(task.priority) for task in tasks],
        [task.depth for task in tasks],
        [task.parent for task in tasks],
        [text(task.meta) for task in tasks],
        [text(task.request_options) for task in tasks],
        [task.ack == "auto" for task in tasks],
        list(needs) or [0] * len(tasks),
        [micros(task.delay) for task in tasks],
        [None if task.ttl is None else micros(task.ttl) for task in tasks],
    )


def short_task_columns(tasks: Sequence[Task], needs: Sequence[int] = ()) -> tuple[list[Any], ...]:
    """The same, but columns that say nothing unusual of any task are empty: to carry them is work."""
    digests, lanes, urls, kinds, priorities, bands, *rest, ttls = task_columns(tasks, needs)
    short = (column if any(column) else [] for column in rest)
    ttls = [] if all(ttl is None for ttl in ttls) else ttls
    return (digests, lanes, urls, kinds, priorities if any(priorities) else [], bands, *short, ttls)


def pace_columns(lanes: Iterable[str], paces: Mapping[str, Pace]) -> tuple[list[Any], ...]:
    """name, spacing, max_in_flight of lanes, each once; NULL where nothing is asked."""
    names = list(dict.fromkeys(lanes))
    given = [paces.get(name) for name in names]
    return (
        [escape_nul(name) for name in names],
        [None if pace is None else micros(pace.spacing) for pace in given],
        [None if pace is None else pace.max_in_flight for pace in given],
    )


DEFAULTS = (micros(DEFAULT_PACE.spacing), DEFAULT_PACE.max_in_flight)
EMPTY = task_columns(())
EMPTY_PACES = pace_columns((), {})
