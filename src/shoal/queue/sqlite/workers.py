"""Workers: who is there, what they say of themselves, and what people asked of them."""

from __future__ import annotations

import sqlite3
from typing import Any

import msgspec

from shoal.core.lane import Mark
from shoal.queue.base import FIGURES_CAP
from shoal.queue.sqlite.lanes import micros


class About(msgspec.Struct, frozen=True, omit_defaults=True):
    """What nobody searches for."""

    serves: tuple[str, ...] = ()
    code: str = ""
    done: int = 0
    failed: int = 0
    memory: int = 0


_decode = msgspec.json.Decoder(About).decode


def register(db: sqlite3.Connection, now: int, mark: Mark) -> str:
    about = About(mark.serves, mark.code, mark.done, mark.failed, mark.memory)
    figures = mark.figures if len(mark.figures) <= FIGURES_CAP else b""
    row = db.execute(
        """INSERT INTO workers (id, name, host, pid, version, started_at, seen_at, state, doing, about, figures)
           VALUES (?1, ?2, ?3, ?4, ?5, iif(?6, ?6, ?7), ?7, ?8, ?9, ?10, ?11)
           ON CONFLICT DO UPDATE SET name = ?2, host = ?3, pid = ?4, version = ?5, started_at = iif(?6, ?6, started_at),
             seen_at = ?7, state = ?8, doing = ?9, about = ?10, figures = ?11
           RETURNING asked""",
        (
            mark.id, mark.name, mark.host, mark.pid, mark.version, mark.started_at, now,
            mark.state, mark.doing, msgspec.json.encode(about).decode(), figures,
        ),
    ).fetchone()  # fmt: skip
    return str(row[0])


def ask(db: sqlite3.Connection, now: int, worker: str, wanted: str) -> bool:
    return bool(db.execute("UPDATE workers SET asked = ? WHERE id = ?", (wanted, worker)).rowcount)


def listing(db: sqlite3.Connection, now: int) -> list[Mark]:
    rows = db.execute(
        """SELECT w.id, w.name, w.host, w.pid, w.version, w.started_at, w.seen_at, w.state, w.doing,
                  ifnull(x.held, 0), w.about, w.asked, w.figures
           FROM workers w LEFT JOIN (SELECT worker, sum(open) AS held FROM leases GROUP BY worker) x ON x.worker = w.id
           ORDER BY w.started_at, w.id"""
    ).fetchall()
    return [_mark(row) for row in rows]


def _mark(row: tuple[Any, ...]) -> Mark:
    about = _decode(row[10])
    mark = Mark(*row[:10])
    return msgspec.structs.replace(mark, **msgspec.structs.asdict(about), asked=row[11], figures=row[12])


def forget(db: sqlite3.Connection, now: int, worker: str) -> None:
    db.execute("DELETE FROM workers WHERE id = ?", (worker,))


def forget_silent(db: sqlite3.Connection, now: int, seconds: float) -> None:
    db.execute("DELETE FROM workers WHERE seen_at < ?", (now - micros(seconds),))
