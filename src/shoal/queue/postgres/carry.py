"""Carry: a run on its way from one queue to another, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS
from shoal.core.stats import Stats
from shoal.core.task import SHORT_DIGEST, Ask, Attempt, Carried, Task
from shoal.errors import Usage
from shoal.queue.base import StoredRecord
from shoal.queue.postgres import columns, runs
from shoal.queue.postgres.columns import SECOND, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.words import given, kept

NUMBER = (1 << TASK_BITS) - 1
STATES = {"ready": 0, "done": 1, "dead": 2, "cancelled": 3, "seen": 4}

_COLUMNS = "t.id, t.digest, t.url, l.name, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, t.history"
_WAITING = "t.meta, t.ask, t.due, t.expires_at, 0::bigint, '', NULL::text, 0, 0::bigint"
_ENDED = "NULL, NULL, 0::bigint, NULL::bigint, t.ended_at, t.cause, NULL, t.records"
# A task's records follow one another in its batch; where it begins is said by the run's numbers.
_FIRST = """coalesce(t.first_record, (SELECT b.first + b.size - cardinality(b.tasks) + array_position(b.tasks, t.id) - 1
  FROM {s}.batches b WHERE b.run = $1 AND b.id = t.batch), 0)"""
_PARTS = {
    "ready": ("CASE WHEN r.leftovers THEN 'cancelled' ELSE 'ready' END", _WAITING, "t.id"),
    "delayed": ("CASE WHEN r.leftovers THEN 'cancelled' ELSE 'ready' END", _WAITING, "t.id"),
    "leased": ("CASE WHEN t.cancelled THEN 'cancelled' ELSE 'ready' END", _WAITING.replace("t.due", "0"), "t.id"),
    "ended": ("t.state", f"{_ENDED}, {_FIRST}", "t.id"),
    "dead": ("'dead'", "t.meta, t.ask, 0, t.expires_at, t.ended_at, t.cause, t.evidence, 0, 0", "t.id"),
}  # fmt: skip
_OUT = " UNION ALL ".join(
    f"(SELECT {_COLUMNS}, {state}, {rest} FROM {{s}}.{table} t JOIN {{s}}.runs r ON r.id = $1 LEFT JOIN {{s}}.lanes l ON l.id = t.lane"
    f" WHERE t.id > $2 AND t.id < $3 ORDER BY {order} LIMIT $4)"
    for table, (state, rest, order) in _PARTS.items()
)
_BARE = """(SELECT s.task, s.digest, '', '', '', 0, 0, NULL, 0, 0, 0, NULL, 'seen', NULL, NULL, 0, NULL, 0, '', NULL, 0, 0
  FROM {s}.seen s WHERE s.run = $1 AND s.task > $2 AND s.task < $3
  AND NOT EXISTS (SELECT 1 FROM {s}.ready WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM {s}.delayed WHERE id = s.task)
  AND NOT EXISTS (SELECT 1 FROM {s}.leased WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM {s}.ended WHERE id = s.task)
  AND NOT EXISTS (SELECT 1 FROM {s}.dead WHERE id = s.task) ORDER BY s.task LIMIT $4)"""
_decode_attempts = msgspec.json.Decoder(tuple[Attempt, ...]).decode
_decode_ask = msgspec.json.Decoder(Ask).decode


async def out(engine: Engine, run: int, after: int, limit: int) -> list[Carried]:
    about = await runs.get(engine, run)
    if about.state == "running":
        raise Usage(f"run {about.name} is running: it cannot be moved", hint=f"shoal pause {about.name}")
    await engine.value("SELECT {s}.number_batches($1)", run)
    base = run << TASK_BITS
    bare = await engine.value("SELECT bare FROM {s}.runs WHERE id = $1", run)
    sql = f"SELECT * FROM ({_OUT} UNION ALL {_BARE}) x" if bare else f"SELECT * FROM ({_OUT}) x"
    rows = await engine.rows(f"{sql} ORDER BY 1 LIMIT $4", run, base + after, base + NUMBER + 1, limit)
    if not rows:
        return []
    also: dict[int, list[bytes]] = {}
    for task, digest in await engine.rows(
        "SELECT -task, digest FROM {s}.seen WHERE run = $1 AND task < 0 AND task >= $2 AND task <= $3",
        run, -rows[-1][0], -rows[0][0],
    ):  # fmt: skip
        also.setdefault(task, []).append(digest)
    now = int(await engine.value("SELECT {s}.tick($1)", engine.now()))
    return [_carried(row, now, tuple(also.get(row[0], ()))) for row in rows]


def _carried(row: Any, now: int, also: tuple[bytes, ...]) -> Carried:
    (id, digest, url, lane, kind, priority, depth, parent, attempts, lost, added_at, history, state,
     meta, ask, due, expires_at, ended_at, cause, evidence, records, first) = row  # fmt: skip
    if state == "cancelled":
        meta = ask = expires_at = None
        due = 0
    task = Task(
        url=given(url), lane=given(lane or ""), digest=digest, kind=given(kind) or "page", priority=priority, depth=depth,
        parent=None if parent is None else parent & NUMBER,
        meta=None if meta is None else msgspec.json.decode(meta), ask=None if ask is None else _decode_ask(ask),
        delay=max(0, due - now) / SECOND, ttl=None if expires_at is None else (expires_at - now) / SECOND,
    )  # fmt: skip
    return Carried(
        id & NUMBER, task, state, attempts, lost, added_at, ended_at, given(cause),
        _decode_attempts(history) if history else (), msgspec.json.decode(evidence) if evidence else None,
        first if records else 0, records, also,
    )  # fmt: skip


_IN = f"SELECT {{s}}.carry_in({', '.join(f'${n}' for n in range(1, 37))})"


async def into(
    engine: Engine,
    run: int,
    tasks: Sequence[Carried],
    records: Sequence[StoredRecord],
    paces: Mapping[str, Pace],
    counts: Stats | None,
) -> None:
    lanes = columns.asked((it.task.lane for it in tasks if it.state != "seen"), paces)
    taken = await engine.value(
        _IN, engine.now(), run, *lanes, *columns.DEFAULTS, *_tasks(tasks),
        [it.seq for it in records], [it.task & NUMBER for it in records], [it.data.decode() for it in records],
        None if counts is None else text(_counts(counts)),
    )  # fmt: skip
    if not taken:
        about = await runs.get(engine, run)
        raise Usage(
            f"run {about.name} is {about.state}: only a paused run takes over what was moved",
            hint=f"shoal pause {about.name}",
        )


def _counts(counts: Stats) -> list[Any]:
    skipped = {kept(reason): count for reason, count in counts.skipped.items()}
    return [counts.retries, counts.lost, counts.stale, counts.bytes, counts.trimmed, skipped]


def _tasks(tasks: Sequence[Carried]) -> list[Any]:
    also = [(n, digest[:SHORT_DIGEST]) for n, it in enumerate(tasks, 1) for digest in it.also]
    return [
        [it.number for it in tasks],
        [STATES[it.state] for it in tasks],
        *columns.of([it.task for it in tasks]),
        [it.attempts for it in tasks],
        [it.lost for it in tasks],
        [it.added_at for it in tasks],
        [it.finished_at for it in tasks],
        [kept(it.cause) for it in tasks],
        [text(it.history) if it.history else None for it in tasks],
        [text(it.evidence) for it in tasks],
        [it.first_record for it in tasks],
        [it.records for it in tasks],
        [n for n, _ in also],
        [digest for _, digest in also],
    ]
