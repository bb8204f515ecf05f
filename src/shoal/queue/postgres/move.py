"""Export and import: a run is moved from one queue to another, a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.core.capability import Needs
from shoal.core.lane import Pace
from shoal.core.run import TASK_BITS
from shoal.core.stats import Stats
from shoal.core.task import SHORT_DIGEST, ExportedTask, Task
from shoal.errors import UsageError
from shoal.queue.base import StoredRecord
from shoal.queue.cells import read_attempts, read_moved, read_object
from shoal.queue.outbox_limits import outbox_pending
from shoal.queue.postgres import columns, needs, runs
from shoal.queue.postgres.columns import SECOND, text
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul

NUMBER = (1 << TASK_BITS) - 1
STATES = {"ready": 0, "done": 1, "dead": 2, "cancelled": 3, "seen": 4, "discarded": 5}

_COLUMNS = (
    "t.id, t.digest, t.url, l.name, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, t.history"
)
_WAITING = (
    "t.meta, t.request_options, t.auto_ack, t.needs, t.due, t.expires_at, 0::bigint, '', NULL::text, 0, 0::bigint"
)
_ENDED = "NULL, NULL, false, 0::smallint, 0::bigint, NULL::bigint, t.ended_at, t.cause, NULL, t.records"
# A task's records follow one another in its batch; where it begins is said by the run's numbers.
_FIRST = """coalesce(t.first_record, (SELECT b.first + b.size - cardinality(b.tasks) + array_position(b.tasks, t.id) - 1
  FROM {s}.batches b WHERE b.run = $1 AND b.id = t.batch), 0)"""
_PARTS = {
    "ready": ("CASE WHEN r.leftovers THEN 'cancelled' ELSE 'ready' END", _WAITING, "t.id"),
    "delayed": ("CASE WHEN r.leftovers THEN 'cancelled' ELSE 'ready' END", _WAITING, "t.id"),
    "leased": ("CASE WHEN t.cancelled THEN 'cancelled' ELSE 'ready' END", _WAITING.replace("t.due", "0"), "t.id"),
    "ended": ("t.state", f"{_ENDED}, {_FIRST}", "t.id"),
    "dead": ("'dead'", "t.meta, t.request_options, t.auto_ack, t.needs, 0, t.expires_at, t.ended_at, t.cause, t.evidence, 0, 0", "t.id"),
}  # fmt: skip
_EXPORT = " UNION ALL ".join(
    f"(SELECT {_COLUMNS}, {state}, {rest} FROM {{s}}.{table} t JOIN {{s}}.runs r ON r.id = $1 LEFT JOIN {{s}}.lanes l ON l.id = t.lane"
    f" WHERE t.id > $2 AND t.id < $3 ORDER BY {order} LIMIT $4)"
    for table, (state, rest, order) in _PARTS.items()
)
_IDENTITY_ONLY = """(SELECT s.task, s.digest, '', '', '', 0, 0, NULL, 0, 0, 0, NULL, CASE WHEN EXISTS (SELECT 1 FROM {s}.discarded WHERE id = s.task) THEN 'discarded' ELSE 'seen' END, NULL, NULL, false, 0::smallint, 0, NULL, 0, '', NULL, 0, 0
  FROM {s}.seen s WHERE s.run = $1 AND s.task > $2 AND s.task < $3
  AND NOT EXISTS (SELECT 1 FROM {s}.ready WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM {s}.delayed WHERE id = s.task)
  AND NOT EXISTS (SELECT 1 FROM {s}.leased WHERE id = s.task) AND NOT EXISTS (SELECT 1 FROM {s}.ended WHERE id = s.task)
  AND NOT EXISTS (SELECT 1 FROM {s}.dead WHERE id = s.task) ORDER BY s.task LIMIT $4)"""


async def export_run(engine: Engine, run: int, *, after: int = 0, limit: int = 500) -> list[ExportedTask]:
    about = await runs.get(engine, run)
    if about.state == "running":
        raise UsageError(f"run {about.name} is running: it cannot be moved", hint=f"shoal pause {about.name}")
    entries = await engine.value("SELECT coalesce(sum(outbox), 0)::bigint FROM {s}.counters WHERE run = $1", run)
    if entries:
        raise outbox_pending(about.name, entries, "it cannot be moved")
    await engine.value("SELECT {s}.number_batches($1)", run)
    base = run << TASK_BITS
    identity_only = await engine.value(
        "SELECT identity_only OR EXISTS (SELECT 1 FROM {s}.discarded WHERE id > $2 AND id < $3) FROM {s}.runs WHERE id = $1",
        run, base, base + NUMBER + 1,
    )  # fmt: skip
    sql = f"SELECT * FROM ({_EXPORT} UNION ALL {_IDENTITY_ONLY}) x" if identity_only else f"SELECT * FROM ({_EXPORT}) x"
    rows = await engine.rows(f"{sql} ORDER BY 1 LIMIT $4", run, base + after, base + NUMBER + 1, limit)
    if not rows:
        return []
    aliases: dict[int, list[bytes]] = {}
    for task, digest in await engine.rows(
        "SELECT -task, digest FROM {s}.seen WHERE run = $1 AND task < 0 AND task >= $2 AND task <= $3",
        run, -rows[-1][0], -rows[0][0],
    ):  # fmt: skip
        aliases.setdefault(task, []).append(digest)
    now = int(await engine.value("SELECT {s}.clock_micros($1)", engine.now()))
    names = await needs.names(engine, [run])
    return [_exported_task(row, now, tuple(aliases.get(row[0], ())), names) for row in rows]


def _exported_task(
    row: Any, now: int, aliases: tuple[bytes, ...], names: Mapping[tuple[int, int], Needs]
) -> ExportedTask:
    (id, digest, url, lane, kind, priority, depth, parent, attempts, lost, added_at, history, state,
     meta, request_options, auto_ack, needed, due, expires_at, ended_at, cause, evidence, records, first) = row  # fmt: skip
    if state == "cancelled":
        meta = request_options = expires_at = None
        due = needed = 0
    read_meta, options = read_moved(unescape_nul(url), meta, request_options)
    task = Task(
        url=unescape_nul(url), lane=unescape_nul(lane or ""), digest=digest, kind=unescape_nul(kind) or "page", priority=priority, depth=depth,
        parent=None if parent is None else parent & NUMBER,
        meta=read_meta, request_options=options,
        delay=max(0, due - now) / SECOND, ttl=None if expires_at is None else (expires_at - now) / SECOND,
        ack="auto" if auto_ack else "manual", needs=names.get((id >> TASK_BITS, needed), ()),
    )  # fmt: skip
    return ExportedTask(
        id & NUMBER, task, state, attempts, lost, added_at, ended_at, unescape_nul(cause),
        tuple(read_attempts(history)), read_object(evidence),
        first if records else 0, records, aliases,
    )  # fmt: skip


_IMPORT = f"SELECT {{s}}.import_run({', '.join(f'${n}' for n in range(1, 40))})"


async def import_run(
    engine: Engine,
    run: int,
    tasks: Sequence[ExportedTask],
    records: Sequence[StoredRecord] = (),
    *,
    paces: Mapping[str, Pace] | None = None,
    counts: Stats | None = None,
    counters: Mapping[str, int] | None = None,
) -> None:
    lanes = columns.pace_columns((it.task.lane for it in tasks if it.state not in ("seen", "discarded")), paces or {})
    numbers = await needs.numbers_for(engine, run, (it.task for it in tasks))
    taken = await engine.value(
        _IMPORT, engine.now(), run, *lanes, *columns.DEFAULTS, *_tasks(tasks, numbers),
        [it.seq for it in records], [it.task & NUMBER for it in records], [it.data.decode() for it in records],
        None if counts is None else text(_counts(counts)),
        None if counters is None else text({escape_nul(name): number for name, number in counters.items()}),
    )  # fmt: skip
    if not taken:
        about = await runs.get(engine, run)
        raise UsageError(
            f"run {about.name} is {about.state}: only a paused run can receive what was moved",
            hint=f"shoal pause {about.name}",
        )


def _counts(counts: Stats) -> list[Any]:
    skipped = {escape_nul(reason): count for reason, count in counts.skipped.items()}
    return [counts.retries, counts.lost, counts.stale, counts.bytes, counts.trimmed, skipped]


def _tasks(tasks: Sequence[ExportedTask], numbers: needs.Numbers) -> list[Any]:
    aliases = [(n, digest[:SHORT_DIGEST]) for n, it in enumerate(tasks, 1) for digest in it.aliases]
    return [
        [it.number for it in tasks],
        [STATES[it.state] for it in tasks],
        *columns.task_columns([it.task for it in tasks], [needs.number_of(it.task, numbers) for it in tasks]),
        [it.attempts for it in tasks],
        [it.lost for it in tasks],
        [it.added_at for it in tasks],
        [it.finished_at for it in tasks],
        [escape_nul(it.cause) for it in tasks],
        [text(it.history) if it.history else None for it in tasks],
        [text(it.evidence) for it in tasks],
        [it.first_record for it in tasks],
        [it.records for it in tasks],
        [n for n, _ in aliases],
        [digest for _, digest in aliases],
    ]
