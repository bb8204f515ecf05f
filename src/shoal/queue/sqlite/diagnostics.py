"""Diagnostics: what a person should know of the state file and of the disk it lies on."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from shoal.files.file_system import NETWORK_FILE_SYSTEMS, file_system
from shoal.queue.base import Finding
from shoal.queue.sqlite import schema
from shoal.queue.sqlite.engine import MIN_SQLITE_VERSION

TIMEOUT = 2.0  # seconds the file is read for damage
STEPS = 10_000  # of SQLite's machine, between two looks at the clock
MB = 1_000_000
LITTLE_SPACE, VERY_LITTLE_SPACE = 1_000 * MB, 50 * MB
LONG_LOG = 256 * MB
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def before_opening(folder: Path | None) -> Iterator[Finding]:
    """What can be known without a file: of this Python, and of the folder where a file would be."""
    words = f"SQLite {sqlite3.sqlite_version}"
    if sqlite3.sqlite_version_info < MIN_SQLITE_VERSION:
        needed = ".".join(map(str, MIN_SQLITE_VERSION))
        yield Finding("sqlite", "wrong", words, f"use a Python that carries SQLite {needed} or newer")
    else:
        yield Finding("sqlite", "ok", words)
    if folder is not None and (kind := file_system(folder)) in NETWORK_FILE_SYSTEMS:
        yield Finding(
            "state folder", "wrong", f"{folder} is on a network file system ({kind}), where locks cannot be trusted",
            "--queue with a path on a local disk",
        )  # fmt: skip


def diagnose(path: str, durable: bool) -> list[Finding]:
    """Opens the file once more, read-only, so that it can run beside the event loop."""
    if path == ":memory:":
        return [Finding("file", "note", "the queue is kept in memory and ends with this process")]
    db = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True, timeout=5.0)
    try:
        return [
            _version(db),
            _durability(db, durable),
            _place(Path(path).absolute().parent),
            _space(path),
            _log(path),
            _damage(db, path),
        ]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF not in DAMAGED:
            raise
        return [_damaged(path, str(error))]
    except MemoryError:  # a length in the file that nobody has memory for
        return [_damaged(path, "what it says of its tables cannot be read")]
    finally:
        db.close()


def _version(db: sqlite3.Connection) -> Finding:
    words = f"SQLite {sqlite3.sqlite_version}, schema {schema.version(db)} of {len(schema.scripts())}"
    return Finding("version", "ok", words)


def _durability(db: sqlite3.Connection, durable: bool) -> Finding:
    (mode,) = db.execute("PRAGMA journal_mode").fetchone()
    if mode != "wal":
        return Finding(
            "durability", "wrong", f"the file's journal is {mode}, where a write-ahead log is needed",
            "let one shoal process open it with write access, or move it to a local disk",
        )  # fmt: skip
    if not durable:
        return Finding("durability", "note", "a power loss may undo the last seconds (synchronous=normal)")
    return Finding("durability", "ok", "what was acknowledged survives a power loss")


def _place(folder: Path) -> Finding:
    kind = file_system(folder)
    if kind in NETWORK_FILE_SYSTEMS:
        return Finding(
            "file system", "wrong", f"{folder} is on a network file system ({kind}): its locks cannot be trusted",
            "put the file on a local disk, or use a server for several machines",
        )  # fmt: skip
    if kind in ("tmpfs", "ramfs"):
        return Finding(
            "file system", "warning", f"{folder} is kept in memory ({kind}) and is gone after a restart",
            "put the file on a disk: --queue sqlite:///path/on/disk.db",
        )  # fmt: skip
    return Finding("file system", "ok", f"{folder} is on {kind or 'an unknown file system'}")


def _space(path: str) -> Finding:
    free, size = shutil.disk_usage(Path(path).absolute().parent).free, Path(path).stat().st_size
    words = f"{free // MB:,} MB free, the file has {size // MB:,} MB"
    if free >= max(LITTLE_SPACE, size // 10):
        return Finding("space", "ok", words)
    level: Literal["warning", "wrong"] = "wrong" if free < VERY_LITTLE_SPACE else "warning"
    fix = "free some space, or remove old runs; nothing is lost when it runs out, but work stops"
    return Finding("space", level, words, fix)


def _log(path: str) -> Finding:
    try:
        size = Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        size = 0
    if size > LONG_LOG:
        return Finding(
            "log", "warning", f"the write-ahead log has grown to {size // MB:,} MB: a reader never finishes",
            "look for a suspended shoal process or an open database browser, and end it",
        )  # fmt: skip
    return Finding("log", "ok", f"the write-ahead log has {size // MB:,} MB")


def _damage(db: sqlite3.Connection, path: str) -> Finding:
    end = time.monotonic() + TIMEOUT
    db.set_progress_handler(lambda: time.monotonic() > end, STEPS)
    try:
        (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return Finding("damage", "note", f"no damage found in {TIMEOUT:.0f} s of reading; there is more")
    if found == "ok":
        return Finding("damage", "ok", "no damage found in the file")
    return _damaged(path, str(found))


def _damaged(path: str, how: str) -> Finding:
    fix = "restore a backup, or start over with another --queue"
    return Finding("damage", "wrong", f"{path} is damaged: {how}", fix)
