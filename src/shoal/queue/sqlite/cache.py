"""The response cache of an embedded queue: a file of its own, so that bodies never hold the queue's write lock.

It can be done without: a file that is damaged, or of another version, is removed and begun anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from shoal.errors import QueueUnavailable
from shoal.files.sqlite import error_code, make_private, statements, use_wal
from shoal.queue.base import CACHE_KEPT_SECONDS, CacheEntry, CacheStats, NewCacheEntry
from shoal.queue.cache_limits import PUSHED_OUT, check_cache_keys, entry_size, is_too_large
from shoal.queue.sqlite.lanes import SECOND, micros

T = TypeVar("T")
Step = Callable[[sqlite3.Connection, int], T]
VERSION = 1
LOCK_TIMEOUT = 2.0  # seconds; nobody waits longer for what can be done without
CHECKPOINT = 1_000  # pages of the log
_FIELDS = "seq, key, host, url, stored_at, fresh_for, size"


class CacheFile:
    def __init__(self, queue_path: str, clock: Callable[[], int]) -> None:
        self._path = queue_path if queue_path == ":memory:" else f"{queue_path}-cache"
        self._clock = clock
        self._db: sqlite3.Connection | None = None

    async def get(self, keys: Sequence[bytes], *, bodies: bool) -> list[CacheEntry | None]:
        check_cache_keys(keys, bodies)

        def step(db: sqlite3.Connection, now: int) -> list[CacheEntry | None]:
            column = "data" if bodies else "x''"
            sql = f"SELECT {_FIELDS}, {column} FROM entries WHERE key = ? AND stored_at > ?"
            rows = (db.execute(sql, (key, _oldest(now))).fetchone() for key in keys)
            return [_entry(row, now) if row else None for row in rows]

        return await self._read(step, [None] * len(keys))

    async def put(self, entry: NewCacheEntry, max_bytes: int) -> bool:
        def step(db: sqlite3.Connection, now: int) -> bool:
            _remove(db, "key = ?", entry.key)
            if is_too_large(entry, max_bytes):
                return False
            size = entry_size(entry)
            db.execute(
                "INSERT INTO entries (key, host, url, stored_at, fresh_for, size, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (entry.key, entry.host, entry.url, now, entry.fresh_for, size, entry.data),
            )
            db.execute("UPDATE totals SET entries = entries + 1, bytes = bytes + ?", (size,))
            _push_out(db, now, max_bytes)
            return True

        return await self._write(step)

    async def listing(self, host: str, before: int, limit: int) -> list[CacheEntry]:
        def step(db: sqlite3.Connection, now: int) -> list[CacheEntry]:
            terms = "stored_at > ?" + (" AND host = ?" if host else "") + (" AND seq < ?" if before else "")
            values = [_oldest(now), *([host] if host else []), *([before] if before else []), limit]
            sql = f"SELECT {_FIELDS}, x'' FROM entries WHERE {terms} ORDER BY seq DESC LIMIT ?"
            return [_entry(row, now) for row in db.execute(sql, values)]

        return await self._read(step, [])

    async def clear(self, host: str, keys: Sequence[bytes], limit: int) -> int:
        def step(db: sqlite3.Connection, now: int) -> int:
            if keys:
                found = [_remove(db, "key = ? AND ? IN ('', host)", key, host) for key in keys[:limit]]
                return sum(found)
            term = "host = ? ORDER BY seq LIMIT ?" if host else "? = '' ORDER BY seq LIMIT ?"
            return _remove(db, f"seq IN (SELECT seq FROM entries WHERE {term})", host, limit)

        return await self._write(step) if self._exists else 0

    async def stats(self) -> CacheStats:
        def step(db: sqlite3.Connection, now: int) -> CacheStats:
            entries, size = db.execute("SELECT entries, bytes FROM totals").fetchone()
            oldest = db.execute("SELECT stored_at FROM entries ORDER BY seq LIMIT 1").fetchone()
            return CacheStats(entries, size, max(0, now - oldest[0]) / SECOND if oldest else 0.0)

        return await self._read(step, CacheStats(0, 0))

    async def sweep(self) -> None:
        """Remove what is too old; a cache that is out of order does not keep anybody from reaping."""
        with contextlib.suppress(QueueUnavailable):
            if await self._read(_has_aged, False):
                await self._write(lambda db, now: _push_out(db, now, None))

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @property
    def _exists(self) -> bool:
        return self._db is not None or (self._path != ":memory:" and Path(self._path).exists())

    async def _read(self, step: Step[T], empty: T) -> T:
        """Looking makes no file."""
        return await self._safely(step) if self._exists else empty

    async def _write(self, step: Step[T]) -> T:
        def transact(db: sqlite3.Connection, now: int) -> T:
            db.execute("BEGIN IMMEDIATE")
            try:
                answer = step(db, now)
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            return answer

        return await self._safely(transact)

    async def _safely(self, step: Step[T]) -> T:
        end, is_new = time.monotonic() + LOCK_TIMEOUT, False
        while True:
            try:
                if self._db is None:
                    self._db = self._open()
                return step(self._db, self._clock())
            except (sqlite3.Error, OSError) as error:
                code = error_code(error)
                if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR) and not is_new:
                    is_new = True
                    self._remove_file()
                elif code != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                    raise QueueUnavailable(f"the cache {self._path} cannot be used: {error}") from error
            await asyncio.sleep(0.002)

    def _open(self) -> sqlite3.Connection:
        if self._path != ":memory:":
            make_private(self._path)
        db = sqlite3.connect(self._path, timeout=0, isolation_level=None, check_same_thread=False)
        try:
            if self._path != ":memory:":
                use_wal(db, LOCK_TIMEOUT)
            db.execute("PRAGMA synchronous = off")  # after a power loss it may be begun anew
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}")
            db.execute("PRAGMA journal_size_limit = 33554432")
            db.execute("PRAGMA cache_size = -2000")
            _prepare(db)
        except BaseException:
            db.close()
            raise
        return db

    def _remove_file(self) -> None:
        self.close()
        if self._path != ":memory:":
            for end in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    Path(self._path + end).unlink()


def _prepare(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        have = db.execute("PRAGMA user_version").fetchone()[0]  # another process may have been first
        if have not in (0, VERSION):
            raise sqlite3.DatabaseError(f"it is of version {have}")
        if have == 0:
            for statement in statements(files(__package__).joinpath("cache.sql").read_text("utf-8")):
                db.execute(statement)
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _remove(db: sqlite3.Connection, term: str, *values: object) -> int:
    gone = db.execute(f"DELETE FROM entries WHERE {term} RETURNING size", values).fetchall()
    if gone:
        sizes = sum(size for (size,) in gone)
        db.execute("UPDATE totals SET entries = entries - ?, bytes = bytes - ?", (len(gone), sizes))
    return len(gone)


def _push_out(db: sqlite3.Connection, now: int, max_bytes: int | None) -> None:
    """Remove the oldest, as far as there is no room for them, or they are too old."""
    excess = db.execute("SELECT bytes FROM totals").fetchone()[0] - max_bytes if max_bytes is not None else 0
    upto = 0
    for seq, size, stored_at in db.execute(
        "SELECT seq, size, stored_at FROM entries ORDER BY seq LIMIT ?", (PUSHED_OUT,)
    ):
        if excess <= 0 and stored_at > _oldest(now):
            break
        upto, excess = seq, excess - size
    if upto:
        _remove(db, "seq <= ?", upto)


def _has_aged(db: sqlite3.Connection, now: int) -> bool:
    oldest = db.execute("SELECT stored_at FROM entries ORDER BY seq LIMIT 1").fetchone()
    return oldest is not None and oldest[0] <= _oldest(now)


def _oldest(now: int) -> int:
    return now - micros(CACHE_KEPT_SECONDS)


def _entry(row: tuple[int, bytes, str, str, int, float, int, bytes], now: int) -> CacheEntry:
    seq, key, host, url, stored_at, fresh_for, size, data = row
    return CacheEntry(seq, key, host, url, max(0, now - stored_at) / SECOND, fresh_for, size, data)
