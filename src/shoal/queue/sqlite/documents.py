"""Documents that workers share, each with its versions."""

from __future__ import annotations

import sqlite3

from shoal.queue.base import Document

_COLUMNS = "kind, name, version, text, made_at"


def save(db: sqlite3.Connection, now: int, kind: str, name: str, text: str) -> Document:
    known = find(db, now, kind, name, 0)
    if known is not None and known.text == text:
        return known
    document = Document(kind, name, known.version + 1 if known else 1, text, now)
    db.execute(f"INSERT INTO documents ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", (kind, name, document.version, text, now))
    return document


def find(db: sqlite3.Connection, now: int, kind: str, name: str, version: int = 0) -> Document | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM documents WHERE kind = ? AND name = ? AND (version = ? OR ? = 0) ORDER BY version DESC LIMIT 1",
        (kind, name, version, version),
    ).fetchone()
    return None if row is None else Document(*row)


def compare_and_swap(
    db: sqlite3.Connection, now: int, kind: str, name: str, text: str | None, expected: int
) -> Document | None:
    known = find(db, now, kind, name, 0)
    if expected != (known.version if known else 0):
        return None
    db.execute("DELETE FROM documents WHERE kind = ? AND name = ?", (kind, name))
    if text is None:
        return known
    document = Document(kind, name, known.version + 1 if known else now, text, now)
    db.execute(f"INSERT INTO documents ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", (kind, name, document.version, text, now))
    return document


def listing(db: sqlite3.Connection, now: int, kind: str) -> list[Document]:
    rows = db.execute(
        f"""SELECT {_COLUMNS} FROM documents p WHERE kind = ?1
            AND version = (SELECT max(version) FROM documents WHERE kind = ?1 AND name = p.name) ORDER BY name""",
        (kind,),
    )
    return [Document(*row) for row in rows]
