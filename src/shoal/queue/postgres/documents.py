"""Documents that workers share, each with its versions."""

from __future__ import annotations

from typing import Any

from shoal.queue.base import Document
from shoal.queue.postgres.engine import Engine
from shoal.queue.postgres.text import escape_nul, unescape_nul

_COLUMNS = "kind, name, version, text, made_at"


def _document(row: Any) -> Document:
    return Document(unescape_nul(row[0]), unescape_nul(row[1]), row[2], unescape_nul(row[3]), row[4])


async def save(engine: Engine, kind: str, name: str, text: str) -> Document:
    (row,) = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.save_document($1, $2, $3, $4)",
        engine.now(), escape_nul(kind), escape_nul(name), escape_nul(text),
    )  # fmt: skip
    return _document(row)


async def compare_and_swap(engine: Engine, kind: str, name: str, text: str | None, expected: int) -> Document | None:
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.compare_and_swap_document($1, $2, $3, $4, $5)",
        engine.now(), escape_nul(kind), escape_nul(name), None if text is None else escape_nul(text), expected,
    )  # fmt: skip
    return _document(rows[0]) if rows else None


async def find(engine: Engine, kind: str, name: str, version: int = 0) -> Document | None:
    rows = await engine.rows(
        f"SELECT {_COLUMNS} FROM {{s}}.documents WHERE kind = $1 AND name = $2 AND $3::bigint IN (0, version) ORDER BY version DESC LIMIT 1",
        escape_nul(kind), escape_nul(name), version,
    )  # fmt: skip
    return _document(rows[0]) if rows else None


async def listing(engine: Engine, kind: str) -> list[Document]:
    rows = await engine.rows(
        f"SELECT DISTINCT ON (name) {_COLUMNS} FROM {{s}}.documents WHERE kind = $1 ORDER BY name, version DESC",
        escape_nul(kind),
    )
    return [_document(row) for row in rows]
