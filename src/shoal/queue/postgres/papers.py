"""Papers: documents that workers share, each with its versions."""

from __future__ import annotations

from typing import Any

from shoal.queue.base import Paper
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.words import given, kept

_COLUMNS = "kind, name, version, text, made_at"


def _paper(row: Any) -> Paper:
    return Paper(given(row[0]), given(row[1]), row[2], given(row[3]), row[4])


async def keep(engine: Engine, kind: str, name: str, text: str) -> Paper:
    (row,) = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.keep_paper($1, $2, $3, $4)",
        engine.now(), kept(kind), kept(name), kept(text),
    )  # fmt: skip
    return _paper(row)


async def swap(engine: Engine, kind: str, name: str, text: str | None, expected: int) -> Paper | None:
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.swap_paper($1, $2, $3, $4, $5)",
        engine.now(), kept(kind), kept(name), None if text is None else kept(text), expected,
    )  # fmt: skip
    return _paper(rows[0]) if rows else None


async def find(engine: Engine, kind: str, name: str, version: int) -> Paper | None:
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.papers WHERE kind = $1 AND name = $2 AND $3::bigint IN (0, version) ORDER BY version DESC LIMIT 1",
        kept(kind), kept(name), version,
    )  # fmt: skip
    return _paper(rows[0]) if rows else None


async def listing(engine: Engine, kind: str) -> list[Paper]:
    rows = await engine.rows(
        f"SELECT DISTINCT ON (name) {_COLUMNS} FROM {{s}}.papers WHERE kind = $1 ORDER BY name, version DESC",
        kept(kind),
    )
    return [_paper(row) for row in rows]
