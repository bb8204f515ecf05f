"""The state file's schema: created, checked, and migrated after a backup."""

from __future__ import annotations

import sqlite3
from importlib.resources import files
from pathlib import Path

from shoal.errors import QueueRefused
from shoal.files.sqlite import statements

APPLICATION_ID = 0x73686F61  # "shoa", so that a foreign database is never written to


def scripts() -> list[str]:
    folder = files(__package__).joinpath("schema")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [folder.joinpath(name).read_text("utf-8") for name in names]


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _refuse_foreign(db: sqlite3.Connection, path: str) -> None:
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    if owner == APPLICATION_ID:
        return
    if owner or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        raise QueueRefused(
            f"{path} is a database of another program", hint="name another file: --queue sqlite:///path/to/shoal.db"
        )


def prepare(db: sqlite3.Connection, path: str) -> None:
    """Bring the schema to this version; newer is refused, older is migrated after a backup."""
    steps = scripts()
    if version(db) == len(steps):
        return
    db.execute("BEGIN EXCLUSIVE")
    try:
        _refuse_foreign(db, path)
        have = version(db)  # again, under the lock: another process may have been first
        if have > len(steps):
            raise QueueRefused(
                f"{path} was written by a newer shoal (schema {have}, this one knows {len(steps)})",
                hint="upgrade this installation, or name another file with --queue",
            )
        if 0 < have < len(steps):
            _backup(db, path, have)
        for step in steps[have:]:
            for statement in statements(step):
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {len(steps)}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")


def _backup(db: sqlite3.Connection, path: str, have: int) -> None:
    if path == ":memory:":
        return
    target = Path(f"{path}.v{have}.backup")
    # A reader sees the last commit, which is what the exclusive transaction started from.
    source = sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)
    copy = sqlite3.connect(target)
    try:
        source.backup(copy)
    finally:
        copy.close()
        source.close()
