"""Outbox: what settled tasks want done elsewhere, until whoever drains it says that it was done."""

from __future__ import annotations

from collections.abc import Collection

from shoal.queue.base import StoredEntry
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul


async def listing(engine: Engine, kind: str, *, after: int = 0, limit: int = 1000) -> list[StoredEntry]:
    rows = await engine.rows(
        "SELECT seq, run, key, data FROM {s}.outbox WHERE kind = $1 AND seq > $2 ORDER BY seq LIMIT $3",
        escape_nul(kind), after, limit,
    )  # fmt: skip
    if rows:
        await engine.flush()
    return [StoredEntry(seq, run, kind, unescape_nul(key), data) for seq, run, key, data in rows]


async def acknowledge(engine: Engine, seqs: Collection[int]) -> int:
    return int(await engine.value("SELECT {s}.acknowledge($1)", list(seqs))) if seqs else 0
