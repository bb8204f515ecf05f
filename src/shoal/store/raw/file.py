"""RawFile: the SQLite file of raw pages, its transactions, and its errors in our words."""

from __future__ import annotations

import asyncio
import os
import random
import sqlite3
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from shoal.errors import ActionRequired, QueueFull, QueueReadOnly, QueueRefused, QueueUnavailable
from shoal.files.sqlite import error_code, make_private, statements

P = ParamSpec("P")
T = TypeVar("T")

FILE_NAME = "raw.db"
VERSION = 1
APPLICATION_ID = 0x73686F72  # "shor", so that a foreign database is never written to
LOCK_TIMEOUT = 30.0  # seconds to wait for other processes before saying that the file is locked
OPEN_TIMEOUT = 10.0
CHECKPOINT = 2000  # pages of the log


class RawFile:
    """One connection. SQL runs on the calling thread, for the reasons of the queue's engine."""

    def __init__(self, folder: Path, *, durable: bool = True, lock_timeout: float = LOCK_TIMEOUT) -> None:
        self.path = folder / FILE_NAME
        self._lock_timeout = lock_timeout
        try:
            folder.mkdir(parents=True, exist_ok=True)
            make_private(self.path)  # pages behind a login may be in it
            self.db = sqlite3.connect(
                self.path, timeout=5.0, isolation_level=None, check_same_thread=False, cached_statements=64
            )
        except (OSError, sqlite3.Error) as error:
            raise QueueReadOnly(
                f"{self.path} cannot be opened: {error}",
                hint="check the folder's owner and mode; without --keep-raw it is not needed",
            ) from error
        try:
            self._prepare_with_retries(durable)
        except BaseException:
            self.db.close()
            raise

    def _prepare_with_retries(self, durable: bool) -> None:
        """Several workers may make the file at once, and a change of journal does not wait by itself."""
        until = time.monotonic() + OPEN_TIMEOUT
        while True:
            try:
                self._prepare(durable)
                return
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() > until:
                    raise self._translate_error(error) from error
            time.sleep(0.01)

    def _prepare(self, durable: bool) -> None:
        db = self.db
        known, foreign = self._read_transaction(_format)
        if foreign:
            raise QueueRefused(
                f"{self.path} is a database of another program", hint="move it away, or use another --queue"
            )
        if known > VERSION:
            raise QueueRefused(
                f"{self.path} was written by a newer shoal (format {known}, this one knows {VERSION})",
                hint="upgrade this installation, or move the file away to start a new one",
            )
        if not known:
            # Before the first table: it cannot be changed later, and without it no space is given back.
            db.execute("PRAGMA auto_vacuum = incremental")
            db.execute("PRAGMA journal_mode = wal")
            self._create()
        db.execute("PRAGMA busy_timeout = 0")
        db.execute(f"PRAGMA synchronous = {'full' if durable else 'normal'}")
        db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}").fetchone()
        db.execute("PRAGMA journal_size_limit = 33554432")
        db.execute("PRAGMA cache_size = -4000")

    def _create(self) -> None:
        script = files(__package__).joinpath("raw.sql").read_text("utf-8")
        self.db.execute("BEGIN EXCLUSIVE")
        try:
            if not self.db.execute("PRAGMA user_version").fetchone()[0]:  # nobody else was first
                for statement in statements(script):
                    self.db.execute(statement)
                self.db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self.db.execute(f"PRAGMA user_version = {VERSION}")
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    async def write(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run `step(db, …)` in one transaction that is on disk when this returns."""
        await self._begin()
        # From here to the commit there is no await: two coroutines cannot mix their transactions.
        try:
            answer = step(self.db, *args, **kwargs)
            self.db.execute("COMMIT")
        except sqlite3.Error as error:
            self._rollback()
            raise self._translate_error(error) from error
        except BaseException:
            self._rollback()
            raise
        return answer

    def read(self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `step` on one consistent view, without any lock."""
        try:
            return self._read_transaction(step, *args, **kwargs)
        except sqlite3.Error as error:
            raise self._translate_error(error) from error

    def _read_transaction(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        self.db.execute("BEGIN")
        try:
            return step(self.db, *args, **kwargs)
        finally:
            self._rollback()

    async def _begin(self) -> None:
        began = time.monotonic()
        while True:
            try:
                self.db.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                if not _is_busy(error) or time.monotonic() - began > self._lock_timeout:
                    raise self._translate_error(error) from error
            await asyncio.sleep(0.0003 + 0.001 * random.random())

    def _rollback(self) -> None:
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    def checkpoint_wal(self) -> None:
        """Give back what the log takes, if nobody is in the way."""
        try:
            self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            if not _is_busy(error):
                raise self._translate_error(error) from error

    def disk_bytes(self) -> int:
        """Bytes on disk, log included."""
        places = (self.path, self.path.with_name(f"{FILE_NAME}-wal"))
        return sum(place.stat().st_size for place in places if place.exists())

    def used_bytes(self) -> int:
        """Bytes of the file that hold something; the rest is used again before the file grows."""
        return self.read(_used_bytes)

    def close(self) -> None:
        self.db.close()

    def _translate_error(self, error: sqlite3.Error) -> ActionRequired:
        """The one mapping from SQLite's errors to ours."""
        code = error_code(error)
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and self._disk_full()):
            return QueueFull(
                f"no space left on the disk of {self.path}, where responses are saved",
                hint="free some space, or shoal raw remove RUN; run it again to resume, nothing is lost",
            )
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
            return QueueReadOnly(
                f"{self.path} cannot be written",
                hint="check its owner and mode, and that the disk is not mounted read-only; nothing is lost",
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return QueueRefused(
                f"{self.path} is damaged or not a file of saved responses ({error})",
                hint="move it away; a new one is created",
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return QueueUnavailable(
                f"{self.path} has been locked by another process for {self._lock_timeout:.0f} s",
                hint="look for a suspended shoal process (`shoal doctor`)",
            )
        return QueueUnavailable(f"{self.path}: {error}", hint="see `shoal doctor`")

    def _disk_full(self) -> bool:
        try:
            return os.statvfs(self.path.parent).f_bavail == 0
        except OSError:
            return False


def _is_busy(error: sqlite3.Error) -> bool:
    return error_code(error) == sqlite3.SQLITE_BUSY


def _format(db: sqlite3.Connection) -> tuple[int, bool]:
    """The version of our format, 0 for a new file, and whether the file is somebody else's."""
    known: int = db.execute("PRAGMA user_version").fetchone()[0]
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    used = owner or db.execute("SELECT 1 FROM sqlite_master").fetchone() is not None
    return known, owner != APPLICATION_ID and bool(used)


def _used_bytes(db: sqlite3.Connection) -> int:
    pages, free, size = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * size
