"""Papers: documents that workers share, each with its versions."""

from __future__ import annotations

import sqlite3

from shoal.queue.base import Paper

_COLUMNS = "kind, name, version, text, made_at"


def keep(db: sqlite3.Connection, now: int, kind: str, name: str, text: str) -> Paper:
    known = find(db, now, kind, name, 0)
    if known is not None and known.text == text:
        return known
    paper = Paper(kind, name, known.version + 1 if known else 1, text, now)
    db.execute(
        f"INSERT INTO papers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)",
        (kind, name, paper.version, text, now),
    )
    return paper


def find(db: sqlite3.Connection, now: int, kind: str, name: str, version: int) -> Paper | None:
    row = db.execute(
        f"SELECT {_COLUMNS} FROM papers WHERE kind = ? AND name = ? AND (version = ? OR ? = 0) ORDER BY version DESC LIMIT 1",
        (kind, name, version, version),
    ).fetchone()
    return None if row is None else Paper(*row)


def swap(
    db: sqlite3.Connection, now: int, kind: str, name: str, text: str | None, expected: int
) -> Paper | None:
    known = find(db, now, kind, name, 0)
    if expected != (known.version if known else 0):
        return None
    db.execute("DELETE FROM papers WHERE kind = ? AND name = ?", (kind, name))
    if text is None:
        return known
    paper = Paper(kind, name, known.version + 1 if known else now, text, now)
    db.execute(
        f"INSERT INTO papers ({_COLUMNS}) VALUES (?, ?, ?, ?, ?)", (kind, name, paper.version, text, now)
    )
    return paper


def listing(db: sqlite3.Connection, now: int, kind: str) -> list[Paper]:
    rows = db.execute(
        f"""SELECT {_COLUMNS} FROM papers p WHERE kind = ?1
            AND version = (SELECT max(version) FROM papers WHERE kind = ?1 AND name = p.name) ORDER BY name""",
        (kind,),
    )
    return [Paper(*row) for row in rows]
