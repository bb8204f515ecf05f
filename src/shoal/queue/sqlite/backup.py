"""Backup of a state file: SQLite's own copy of one commit, which holds nobody up."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

from shoal.errors import QueueRefused, RunBusy
from shoal.files.sqlite import error_code, make_private
from shoal.queue.backup import MAX_PAUSE
from shoal.queue.sqlite import schema

LOCK_TIMEOUT = 5.0


class SqliteBackup:
    namespace = ""

    def __init__(self, path: Path) -> None:
        self.edition = len(schema.scripts())
        self._path = path

    async def save(self, file: Path, *, max_pause: float = MAX_PAUSE) -> None:
        await asyncio.to_thread(_copy, self._path, file)

    async def is_empty(self) -> bool:
        return not self._path.exists() or not self._path.stat().st_size

    async def remove(self) -> None:
        await asyncio.to_thread(self._remove)

    def _remove(self) -> None:
        db = sqlite3.connect(self._path, timeout=LOCK_TIMEOUT, isolation_level=None)
        try:
            # Refused while any other process has the file open: it would go on writing to what nobody sees.
            db.execute("PRAGMA journal_mode = delete")
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY:
                raise
            raise RunBusy(
                f"another process has {self._path} open", hint="stop its workers, runs and servers first"
            ) from error
        finally:
            db.close()
        self._path.unlink()

    async def load(self, file: Path) -> None:
        temporary = self._path.with_name(f".{self._path.name}.restored")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)
        await asyncio.to_thread(_copy, file, temporary)
        temporary.replace(self._path)


def _copy(source: Path, target: Path) -> None:
    """In one step: in steps, a busy queue would make it begin again and again."""
    make_private(target)
    read = sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)
    copy = sqlite3.connect(target, isolation_level=None)
    try:
        if read.execute("PRAGMA application_id").fetchone()[0] != schema.APPLICATION_ID:
            raise QueueRefused(f"{source} is not a state file of shoal", hint="name another file")
        read.backup(copy)
        copy.execute("PRAGMA journal_mode = delete")  # one file, without a log beside it
        (said,) = copy.execute("PRAGMA quick_check(1)").fetchone()
        if said != "ok":
            raise QueueRefused(f"{source} is damaged: {said}", hint="use an earlier backup, and check the disk")
    except sqlite3.DatabaseError as error:
        raise QueueRefused(
            f"{source} cannot be copied: {error}", hint="check the file, and space on the disk"
        ) from error
    finally:
        copy.close()
        read.close()
    with target.open("rb") as file:
        os.fsync(file.fileno())
