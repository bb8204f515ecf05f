"""Seen-sets: what runs of one name have had between them, kept when the runs are gone."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.core.seen_set import CLEAR_STEPS
from shoal.core.task import SHORT_DIGEST
from shoal.queue.postgres.columns import SECOND
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul
from shoal.queue.values import SeenSet

ENTRY_BYTES = 93  # of one with its index, measured with a million of them
SLICE = 10_000  # entries looked at in one step
_LISTING = """
SELECT s.name, coalesce(c.entries, 0), s.seen_for, s.created_at, greatest(s.created_at, c.changed_at)
FROM {s}.seen_sets s
LEFT JOIN (SELECT seen_set, sum(entries)::bigint AS entries, max(changed_at) AS changed_at FROM {s}.seen_set_counters GROUP BY 1) c ON c.seen_set = s.id
WHERE s.name IS NOT NULL ORDER BY s.name"""
_CLEAR = """
UPDATE {s}.seen_sets s SET name = NULL WHERE name = $1
RETURNING s.id, (SELECT coalesce(sum(entries), 0)::bigint FROM {s}.seen_set_counters WHERE seen_set = s.id)"""


async def listing(engine: Engine) -> list[SeenSet]:
    return [
        SeenSet(unescape_nul(name), entries, entries * ENTRY_BYTES, seen_for / SECOND, created_at, changed_at)
        for name, entries, seen_for, created_at, changed_at in await engine.rows(_LISTING)
    ]


async def forget(engine: Engine, name: str, digests: Sequence[bytes]) -> int:
    cut = [digest[:SHORT_DIGEST] for digest in digests]
    return int(await engine.value("SELECT {s}.forget_seen($1, $2)", escape_nul(name), cut))


async def clear(engine: Engine, name: str) -> int:
    rows = await engine.rows(_CLEAR, escape_nul(name))
    if not rows:
        return 0
    number, count = rows[0]
    for _ in range(CLEAR_STEPS):  # what is left is removed with maintenance
        if not await engine.value("SELECT {s}.clear_seen_slice($1, $2)", number, SLICE):
            break
    return int(count)


async def sweep(engine: Engine) -> None:
    """Remove a slice of what is remembered no more, and of what a clearing that died has left."""
    await engine.value("SELECT {s}.sweep_seen($1, $2)", engine.now(), SLICE)
    await engine.value("SELECT {s}.clear_seen_slice(NULL, $1)", SLICE)
