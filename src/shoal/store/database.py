"""Database: a SQLite file with a table `records`. Rows and position are one transaction in the same file."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import Act, Usage
from shoal.store import cells
from shoal.store.base import Ledger, apart
from shoal.store.place import Place
from shoal.store.rows import refused, set_aside
from shoal.store.slices import Slices

MAX_COLUMNS = 2_000  # SQLite's own limit
LOCK_PATIENCE = 30.0
_SIDE = ("-journal", "-wal", "-shm")
_QUEUE = 0x73686F61  # "shoa", the mark of a state file
_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_DISK = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_POSITION = """CREATE TABLE IF NOT EXISTS shoal_export (
  run TEXT NOT NULL, started INTEGER NOT NULL, seq INTEGER NOT NULL, rows INTEGER NOT NULL,
  names TEXT NOT NULL -- JSON: the column of each key, in order
)"""


class Position(msgspec.Struct, frozen=True):
    """How far the table is written, and under which name each key has its column."""

    seq: int = 0
    rows: int = 0
    names: dict[str, str] = {}


class Database:
    notes: tuple[str, ...] = ()

    def __init__(
        self, queue: Ledger, run: int, place: Place, *, fresh: bool = False, replace: bool = False
    ) -> None:
        self._place = place
        self._slices = Slices(queue, run)
        _claim(place, fresh, replace)
        self._open()

    @property
    def rows(self) -> int:
        return self._at.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._at.names)

    async def drain(self) -> int:
        return await self._copy(patient=True)

    async def finish(self) -> int:
        return await self._copy(patient=False)

    def close(self) -> None:
        self._db.close()

    async def _copy(self, patient: bool) -> int:
        if not self._place.path.exists():  # somebody has removed it: all of it is written again
            self._db.close()
            _remove(self._place.path, ("-journal",))
            self._open()
        before = self._at.rows
        while slice_ := await self._slices.after(self._at.seq):
            data = [record.data for record in slice_]
            try:
                await apart(self._write, data, slice_[-1].seq, 0.5 if patient else LOCK_PATIENCE)
            except sqlite3.Error as error:
                if patient and _busy(error):
                    break  # somebody reads it at length: next time
                raise _translated(self._place.path, error) from error
        return self._at.rows - before

    def _open(self) -> None:
        path = self._place.path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous = full")
            with self._transaction(LOCK_PATIENCE):
                self._db.execute(_POSITION)
                row = self._db.execute("SELECT seq, rows, names FROM shoal_export").fetchone()
                if row is None:
                    values = (*self._place.owner, 0, 0, "{}")
                    self._db.execute("INSERT INTO shoal_export VALUES (?, ?, ?, ?, ?)", values)
                    self._db.execute('CREATE TABLE IF NOT EXISTS "records" ("value")')
                    row = (0, 0, "{}")
        except sqlite3.Error as error:
            raise _translated(path, error) from error
        self._at = Position(row[0], row[1], msgspec.json.decode(row[2], type=dict[str, str]))

    def _write(self, records: Sequence[bytes], seq: int, patience: float) -> None:
        found = [cells.decode(record) for record in records]
        names = dict(self._at.names)
        with self._transaction(patience):
            for record in found:
                for key in record:
                    if key not in names:
                        self._add_column(names, key)
            if names:
                columns = ", ".join(map(_quoted, names.values()))
                marks = ", ".join("?" * len(names))
                self._db.executemany(
                    f'INSERT INTO "records" ({columns}) VALUES ({marks})',  # noqa: S608 - quoted names
                    ([_value(record.get(key)) for key in names] for record in found),
                )
            else:
                self._db.executemany('INSERT INTO "records" DEFAULT VALUES', ((),) * len(found))
            at = Position(seq, self._at.rows + len(found), names)
            packed = msgspec.json.encode(names).decode()
            self._db.execute("UPDATE shoal_export SET seq = ?, rows = ?, names = ?", (seq, at.rows, packed))
        self._at = at

    def _add_column(self, names: dict[str, str], key: str) -> None:
        if len(names) >= MAX_COLUMNS:
            raise Usage(
                f"the records have more than {MAX_COLUMNS:,} different keys, too many for a table",
                hint="write them as .jsonl",
            )
        name = _free(key, names)
        if not names:  # the table was made before it was known what would be in it
            self._db.execute(f'ALTER TABLE "records" RENAME COLUMN "value" TO {_quoted(name)}')
        else:
            self._db.execute(f'ALTER TABLE "records" ADD COLUMN {_quoted(name)}')
        names[key] = name

    @contextlib.contextmanager
    def _transaction(self, patience: float) -> Any:
        self._db.execute(f"PRAGMA busy_timeout = {int(patience * 1000)}")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise


def _claim(place: Place, fresh: bool, replace: bool) -> None:
    """Refuse a file that is not this run's; with fresh, put it out of the way."""
    path = place.path
    if place.empty():
        _remove(path, ("", "-journal"))
        return
    owner = _owner(path)
    if owner == place.owner:
        return
    if owner is None and fresh:
        set_aside(path)
        for end in _SIDE:
            if (side := Path(f"{path}{end}")).exists():
                set_aside(side)
    elif owner is not None and (fresh or replace):
        _remove(path)
    else:
        raise place.taken(f"holds the records of run {owner[0]}" if owner else "")


def _owner(path: Path) -> tuple[str, int] | None:
    """Whose records a file holds, if shoal wrote it."""
    with contextlib.closing(sqlite3.connect(path, timeout=5.0)) as db:
        try:
            # Asked of SQLite, not read from the file: the newest may still be in its log.
            if db.execute("PRAGMA application_id").fetchone()[0] == _QUEUE:
                raise Usage(f"{path} is a state file of shoal itself", hint="another name after -o")
            run, started = db.execute("SELECT run, started FROM shoal_export").fetchone()
            return run, started
        except sqlite3.Error as error:
            if _busy(error):
                raise _translated(path, error) from error
            return None


def _remove(path: Path, ends: Sequence[str] = ("", *_SIDE)) -> None:
    # The journal as well: rolled back into a new file, it would bring back pieces of the old one.
    for end in ends:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{end}")  # noqa: PTH108 - a name with something behind it


def _free(key: str, names: dict[str, str]) -> str:
    """A name for a key's column: SQLite's names know no case and no NUL."""
    taken = {name.lower() for name in names.values()}
    plain = key.replace("\0", "") or "column"
    name, number = plain, 2
    while name.lower() in taken:
        name, number = f"{plain}_{number}", number + 1
    return name


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(value: Any) -> Any:
    if value is None or isinstance(value, str | float):
        return value
    if isinstance(value, int):  # truth values too: 0 and 1
        return value if _LEAST <= value <= _MOST else str(value)
    return cells.text(value)


def _busy(error: sqlite3.Error) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _translated(path: Path, error: sqlite3.Error) -> Act:
    """What a person must do about a database that could not be written."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
        return refused(path, OSError(28, ""))
    if _busy(error):
        return Act(
            f"{path} is locked by another program; what is there is whole, and no record is lost",
            hint="close it there, then give the same command again",
        )
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK:
        return Act(f"{path} cannot be written: {error}", hint="look at the disk and the folder's permissions")
    return Usage(f"{path} cannot be written: {error}", hint="another name after -o, or --fresh to begin anew")
