"""Inspection: tasks, dead letters and records as people see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from shoal.core.run import TASK_BITS, run_of
from shoal.core.task import SHORT_DIGEST, State
from shoal.queue.base import DeadLetterGroup, StoredRecord, TaskFilter, TaskView
from shoal.queue.cells import read_attempts, read_object
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul
from shoal.queue.remains import cancelled_view, discarded_view

_NAMES = """(SELECT array_to_string(n.names, '+') FROM {s}.run_needs n WHERE n.run = (t.id >> 32)::integer AND n.needs = t.needs)"""


def _waiting(table: str, name: str) -> tuple[str, str]:
    return (
        f"t.id, t.url, l.name, CASE WHEN r.leftovers THEN 'cancelled' ELSE '{name}' END, t.kind, t.priority, t.depth, t.parent,"
        " t.attempts, t.lost, t.added_at, t.due, 0::bigint, 0::bigint, '', 0::bigint, '', 0, t.history, NULL::text,"
        " CASE WHEN r.leftovers THEN NULL ELSE t.meta END,"
        f" CASE WHEN t.needs > 0 AND NOT r.leftovers THEN {_NAMES} END, false, 0::bigint",
        f"{{s}}.{table} t JOIN {{s}}.runs r ON r.id = t.run LEFT JOIN {{s}}.lanes l ON l.id = t.lane",
    )


_SHAPES: dict[str, tuple[str, str]] = {
    "ready": _waiting("ready", "ready"),
    "delayed": _waiting("delayed", "delayed"),
    "leased": (
        "t.id, t.url, l.name, CASE WHEN t.cancelled THEN 'cancelled' ELSE 'leased' END, t.kind, t.priority, t.depth, t.parent,"
        " t.attempts, t.lost, t.added_at, t.due, 0::bigint, t.lease, coalesce(x.worker, ''), coalesce(x.expires_at, 0), '', 0, t.history, NULL::text,"
        " CASE WHEN t.cancelled THEN NULL ELSE t.meta END,"
        f" CASE WHEN t.needs > 0 AND NOT t.cancelled THEN {_NAMES} END, t.auto_ack AND NOT t.cancelled, CASE WHEN t.cancelled THEN 0 ELSE coalesce(t.expires_at, 0) END",
        "{s}.leased t LEFT JOIN {s}.lanes l ON l.id = t.lane LEFT JOIN {s}.leases x ON NOT t.cancelled AND x.number = t.lease",
    ),
    "ended": (
        "t.id, t.url, l.name, t.state, t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, 0::bigint, t.ended_at,"
        " t.lease, '', 0::bigint, t.cause, t.records, t.history, NULL::text, NULL::text, NULL::text, false, 0::bigint",
        "{s}.ended t LEFT JOIN {s}.lanes l ON l.id = t.lane",
    ),
    "dead": (
        "t.id, t.url, l.name, 'dead', t.kind, t.priority, t.depth, t.parent, t.attempts, t.lost, t.added_at, 0::bigint, t.ended_at,"
        " t.lease, '', 0::bigint, t.cause, 0, t.history, t.evidence, t.meta,"
        f" CASE WHEN t.needs > 0 THEN {_NAMES} END, false, 0::bigint",
        "{s}.dead t LEFT JOIN {s}.lanes l ON l.id = t.lane",
    ),
}
# Asked once, not of each row: there may be many.
_OPEN = "EXISTS (SELECT 1 FROM {s}.runs WHERE id = $4 AND NOT leftovers)"
_LEFT = "EXISTS (SELECT 1 FROM {s}.runs WHERE id = $4 AND leftovers)"
_TABLES: dict[str | None, list[tuple[str, str]]] = {
    "ready": [("ready", _OPEN)],
    "delayed": [("delayed", _OPEN)],
    "leased": [("leased", "NOT t.cancelled")],
    "done": [("ended", "t.state = 'done'")],
    "cancelled": [("ended", "t.state = 'cancelled'"), ("leased", "t.cancelled"), ("ready", _LEFT), ("delayed", _LEFT)],
    "dead": [("dead", "true")],
    None: [(table, "true") for table in _SHAPES],
}  # fmt: skip
_GROUPS = """
SELECT g.name, g.cause, g.count, f.url, f.history, f.ended_at, n.ended_at
FROM (SELECT l.name, d.* FROM {s}.dead_groups d JOIN {s}.lanes l ON l.id = d.lane WHERE d.run = $1
      ORDER BY d.count DESC, l.name, d.cause LIMIT $2) g
CROSS JOIN LATERAL (SELECT url, history, ended_at FROM {s}.dead WHERE id >> 32 = $1 AND lane = g.lane AND md5(cause) = md5(g.cause)
                    ORDER BY ended_at LIMIT 1) f
CROSS JOIN LATERAL (SELECT ended_at FROM {s}.dead WHERE id >> 32 = $1 AND lane = g.lane AND md5(cause) = md5(g.cause)
                    ORDER BY ended_at DESC LIMIT 1) n
ORDER BY g.count DESC, g.name, g.cause"""


def like(pattern: str) -> str:
    """Only * is special to people; LIKE also knows % and _, which URLs are full of."""
    escaped = escape_nul(pattern).replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return escaped.replace("*", "%")


def condition(where: TaskFilter, first: int, table: str, run: int) -> tuple[str, list[Any]]:
    """A condition over t, which is of this table and run, with its values bound from $first on."""
    terms: list[str] = []
    values: list[Any] = []

    def term(sql: str, value: Any) -> None:
        terms.append(sql.replace("?", f"${first + len(values)}"))
        values.append(value)

    if where.lane:
        term("t.lane = (SELECT id FROM {s}.lanes WHERE name = ?)", escape_nul(where.lane))
        if table == "dead":  # as the index of groups has it
            term("t.id >> 32 = ?::bigint", run)
    if where.cause and table in ("ended", "dead"):
        term("t.cause LIKE ?", like(where.cause))
        if "*" not in where.cause:
            term("md5(t.cause) = md5(?)", escape_nul(where.cause))
    elif where.cause:
        terms.append("false")
    if where.url:
        term("t.url LIKE ?", like(where.url))
    if where.ids:
        term("t.id = ANY (?::bigint[])", list(where.ids))
    return " AND ".join(terms) or "true", values


def _view(row: Any) -> TaskView:
    return TaskView(
        id=row[0], run=run_of(row[0]), url=unescape_nul(row[1]), lane=unescape_nul(row[2] or ""), state=row[3], kind=unescape_nul(row[4]), priority=row[5],
        depth=row[6], parent=row[7], attempts=row[8], lost=row[9], added_at=row[10], due_at=row[11], finished_at=row[12],
        lease=row[13], worker=unescape_nul(row[14]), leased_until=row[15], cause=unescape_nul(row[16]), records=row[17],
        history=tuple(read_attempts(row[18])),
        evidence=read_object(row[19]),
        meta=read_object(row[20]), needs=tuple(row[21].split("+")) if row[21] else (),
        ack="auto" if row[22] else "manual",
        expires_at=row[23],
    )  # fmt: skip


async def list_tasks(
    engine: Engine,
    run: int,
    *,
    state: State | None = None,
    where: TaskFilter = TaskFilter(),
    after: int = 0,
    upto: int = 0,
    limit: int = 100,
) -> list[TaskView]:
    first, last = max(after + 1, run << TASK_BITS), (run + 1) << TASK_BITS
    if upto:
        last = min(last, upto + 1)
    parts: list[str] = []
    values: list[Any] = [first, last, limit, run]
    for table, which in _TABLES[state]:
        columns, source = _SHAPES[table]
        extra, more = condition(where, len(values) + 1, table, run)
        values += more
        parts.append(
            f"(SELECT {columns} FROM {source} WHERE t.id >= $1 AND t.id < $2 AND {which} AND {extra} AND EXISTS (SELECT 1 FROM {{s}}.runs WHERE id = $4) ORDER BY t.id LIMIT $3)"
        )
    rows = await engine.rows(f"SELECT * FROM ({' UNION ALL '.join(parts)}) x ORDER BY 1 LIMIT $3", *values)
    return [_view(row) for row in rows]


async def find(engine: Engine, run: int, digest: bytes) -> TaskView | None:
    parts = [
        f"(SELECT {columns} FROM {source} WHERE t.id = (SELECT id FROM it))" for columns, source in _SHAPES.values()
    ]
    # The last row says that it was there, should all else be gone.
    rows = await engine.rows(
        f"""WITH it AS MATERIALIZED (SELECT abs(task) AS id FROM {{s}}.seen WHERE run = $1 AND digest = $2 AND EXISTS (SELECT 1 FROM {{s}}.runs WHERE id = $1))
            {" UNION ALL ".join(parts)}
            UNION ALL SELECT id, '', '', CASE WHEN EXISTS (SELECT 1 FROM {{s}}.discarded d WHERE d.id = it.id) THEN 'discarded' ELSE '' END, '', 0, 0, NULL, 0, 0, 0, 0, 0, 0, '', 0, '', 0, NULL, NULL, NULL, NULL, false, 0 FROM it""",
        run, digest[:SHORT_DIGEST],
    )  # fmt: skip
    if not rows:
        return None
    if rows[0][3] == "discarded":
        return discarded_view(run, rows[0][0])
    return _view(rows[0]) if rows[0][3] else cancelled_view(run, rows[0][0])


async def dead_groups(engine: Engine, run: int, limit: int = 100) -> list[DeadLetterGroup]:
    rows = await engine.rows(_GROUPS, run, limit)
    groups = []
    for lane, cause, count, sample, past, first, last in rows:
        attempts = read_attempts(past)
        message = attempts[-1].message if attempts else ""
        groups.append(
            DeadLetterGroup(unescape_nul(lane), unescape_nul(cause), count, unescape_nul(sample), message, first, last)
        )
    return groups


async def skipped(engine: Engine, run: int, limit: int = 100) -> list[tuple[str, str]]:
    rows = await engine.rows(
        'SELECT reason, url FROM {s}.skip_samples WHERE run = $1 ORDER BY reason COLLATE "C", url COLLATE "C" LIMIT $2',
        run,
        limit,
    )
    return [(unescape_nul(reason), unescape_nul(url)) for reason, url in rows]


async def ids(engine: Engine, run: int, digests: Sequence[bytes]) -> list[int]:
    found = await engine.value("SELECT {s}.ids_of($1, $2)", run, [digest[:SHORT_DIGEST] for digest in digests])
    return list(found) or [0] * len(digests)


async def records(
    engine: Engine, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
) -> list[StoredRecord]:
    if tasks:
        mine = list({task for task in tasks if run_of(task) == run})
        rows = await engine.rows(
            "SELECT o_seq, o_task, o_data FROM {s}.read_records_of($1, $2, $3, $4)", run, mine, after, limit
        )
    else:
        rows = await engine.rows("SELECT o_seq, o_task, o_data FROM {s}.read_records($1, $2, $3)", run, after, limit)
    return [StoredRecord(seq, task, data.encode()) for seq, task, data in rows]


async def trim(engine: Engine, run: int, upto: int) -> int:
    return int(await engine.value("SELECT {s}.trim_records($1, $2)", run, upto))
