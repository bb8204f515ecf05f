"""What every SQLite file of ours needs: its log, its script statement by statement, the plain code of an error."""

from __future__ import annotations

import contextlib
import os
import random
import sqlite3
import time
from collections.abc import Iterator


def make_private(path: str | os.PathLike[str]) -> None:
    """Make a file that only its owner can read, before SQLite makes one that everybody can."""
    with contextlib.suppress(OSError):  # it is there, or what is wrong is said when it is opened
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def use_wal(db: sqlite3.Connection, seconds: float) -> None:
    """Have a file written through a log, whoever else is about to say so for the next so many seconds.

    SQLite does not wait here, whatever its timeout: of two who ask at once, one is told "locked" at once.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            if db.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                db.execute("PRAGMA journal_mode = wal")
            return
        except sqlite3.OperationalError as error:
            if error_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > end:
                raise
        time.sleep(random.uniform(0.001, 0.02))


def statements(script: str) -> Iterator[str]:
    """One by one, so that they run inside the caller's transaction: executescript would end it."""
    part = ""
    for line in script.splitlines(keepends=True):
        part += line
        if sqlite3.complete_statement(part):
            yield part
            part = ""


def error_code(error: BaseException) -> int:
    """The primary code; 0 where there is none."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF
