"""Failing: how often URLs failed for good, over runs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from shoal.core import failing
from shoal.core.task import RequestOptions, digest
from shoal.queue.cells import UNREADABLE
from shoal.queue.sqlite.lanes import micros
from shoal.queue.values import UrlFailures

PER_QUERY = 64
SLICE = 1000  # of the oldest, looked at in one step
_COUNT = """INSERT INTO failing (key, number, count, last_at, causes)
            SELECT ?1, coalesce(max(number), 0) + 1, 1, ?2, ?3 FROM failing WHERE true
            ON CONFLICT (key) DO UPDATE SET number = excluded.number, count = count + 1, last_at = ?2, causes = ?3"""
_REMEMBERED = f"SELECT key FROM failing WHERE key IN ({', '.join('?' * PER_QUERY)})"
_FORGET_OLD = """DELETE FROM failing WHERE number IN (SELECT number FROM failing ORDER BY number LIMIT ?1)
                 AND (last_at <= ?2 OR number <= (SELECT max(number) FROM failing) - ?3)"""
_encode = msgspec.json.Encoder().encode
_decode_causes = msgspec.json.Decoder(dict[str, int]).decode
_decode_options = msgspec.json.Decoder(RequestOptions).decode


def count(db: sqlite3.Connection, now: int, task: int, cause: str) -> None:
    """A task becomes a dead letter: one more failure of its URL."""
    url, options = db.execute("SELECT url, request_options FROM tasks WHERE id = ?", (task,)).fetchone()
    if failing.is_counted(url, _read_options(options)):
        key = digest(url)
        row = db.execute("SELECT causes FROM failing WHERE key = ?", (key,)).fetchone()
        causes = failing.with_failure(_decode_causes(row[0]) if row else {}, cause)
        db.execute(_COUNT, (key, now, _encode(causes).decode()))


def forget_done(db: sqlite3.Connection, tasks: Iterable[tuple[int, str]], table: str = "tasks") -> None:
    """These tasks went well, or start over: (task, URL), still in that table. Costs nothing where nothing failed."""
    if db.execute("SELECT 1 FROM failing LIMIT 1").fetchone() is None:
        return
    keyed = [(digest(url), task, url) for task, url in tasks]
    found = set(_remembered(db, [key for key, _, _ in keyed]))
    for key, task, url in keyed if found else ():
        if key not in found:
            continue
        (options,) = db.execute(f"SELECT request_options FROM {table} WHERE id = ?", (task,)).fetchone()
        if failing.is_counted(url, _read_options(options)):
            db.execute("DELETE FROM failing WHERE key = ?", (key,))


def _read_options(cell: str | None) -> RequestOptions | None:
    """Somebody else may have written it: what cannot be read asks for nothing."""
    try:
        return _decode_options(cell) if cell else None
    except UNREADABLE:
        return None


def _remembered(db: sqlite3.Connection, keys: list[bytes]) -> list[bytes]:
    """Which of these have failed; always asked in the same words, so that they are parsed once."""
    found: list[bytes] = []
    for first in range(0, len(keys), PER_QUERY):
        some = keys[first : first + PER_QUERY]
        found += [row[0] for row in db.execute(_REMEMBERED, some + some[:1] * (PER_QUERY - len(some))).fetchall()]
    return found


def forget_old(db: sqlite3.Connection, now: int) -> None:
    db.execute(_FORGET_OLD, (SLICE, now - micros(failing.KEPT_SECONDS), failing.MAX_REMEMBERED))


def failures(db: sqlite3.Connection, now: int, urls: Sequence[str]) -> list[UrlFailures]:
    sql = "SELECT count, causes, last_at FROM failing WHERE key = ?"
    rows = [db.execute(sql, (digest(url),)).fetchone() for url in urls]
    return [UrlFailures(row[0], _decode_causes(row[1]), row[2]) if row else UrlFailures() for row in rows]


def forget(db: sqlite3.Connection, now: int, urls: Sequence[str] | None = None) -> int:
    if urls is None:
        return db.execute("DELETE FROM failing").rowcount
    sql = "DELETE FROM failing WHERE key = ?"
    return sum(db.execute(sql, (digest(url),)).rowcount for url in urls)
