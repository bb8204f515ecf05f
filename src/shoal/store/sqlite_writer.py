"""SqliteWriter: a SQLite file with a table `records`. Rows and position are one transaction."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.errors import ActionRequired, UsageError
from shoal.files.sqlite import error_code
from shoal.store import cells
from shoal.store.append_file import set_aside, write_error
from shoal.store.base import Checkpoint, RecordReader, run_in_thread
from shoal.store.output_state import OutputState
from shoal.store.record_batches import RecordBatches

MAX_COLUMNS = 2_000  # SQLite's own limit
LOCK_TIMEOUT = 30.0
_SIDE_FILES = ("-journal", "-wal", "-shm")
_QUEUE_APPLICATION_ID = 0x73686F61  # "shoa", the mark of a state file
_MOST, _LEAST = (1 << 63) - 1, -(1 << 63)
_DISK_ERRORS = (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM)
_CREATE_POSITION = """CREATE TABLE IF NOT EXISTS shoal_export (
  run TEXT NOT NULL, started INTEGER NOT NULL, seq INTEGER NOT NULL, rows INTEGER NOT NULL,
  names TEXT NOT NULL -- JSON: the column of each key, in order
)"""


class TablePosition(msgspec.Struct, frozen=True):
    """How far the table is written, and under which name each key has its column."""

    seq: int = 0
    rows: int = 0
    names: dict[str, str] = {}


class SqliteWriter:
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        queue: RecordReader,
        run: int,
        state: OutputState,
        *,
        fresh: bool = False,
        replace: bool = False,
        header: tuple[str, ...] = (),
    ) -> None:
        self._state = state
        self._header = header
        self._batches = RecordBatches(queue, run)
        _claim(state, fresh, replace)
        self._open()
        state.save(Checkpoint())  # its position is in the file; whose it is, and since which restore, here as well

    @property
    def rows(self) -> int:
        return self._position.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self._position.names)

    async def drain(self) -> int:
        return await self._copy(cheap_only=True)

    async def finish(self) -> int:
        new = await self._copy(cheap_only=False)
        if self._header and not self._position.names:
            await run_in_thread(self._write_header)
        return new

    def close(self) -> None:
        self._db.close()

    async def _copy(self, cheap_only: bool) -> int:
        if not self._state.path.exists():  # somebody has removed it: all of it is written again
            self._db.close()
            _remove(self._state.path, ("-journal",))
            self._open()
        before = self._position.rows
        while batch := await self._batches.next_after(self._position.seq):
            data = [record.data for record in batch]
            try:
                await run_in_thread(self._write, data, batch[-1].seq, 0.5 if cheap_only else LOCK_TIMEOUT)
            except sqlite3.Error as error:
                if cheap_only and _is_busy(error):
                    break  # somebody reads it at length: next time
                raise _translate_error(self._state.path, error) from error
        return self._position.rows - before

    def _open(self) -> None:
        path = self._state.path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous = full")
            with self._transaction(LOCK_TIMEOUT):
                self._db.execute(_CREATE_POSITION)
                row = self._db.execute("SELECT seq, rows, names FROM shoal_export").fetchone()
                if row is None:
                    values = (*self._state.owner, 0, 0, "{}")
                    self._db.execute("INSERT INTO shoal_export VALUES (?, ?, ?, ?, ?)", values)
                    self._db.execute('CREATE TABLE IF NOT EXISTS "records" ("value")')
                    row = (0, 0, "{}")
        except sqlite3.Error as error:
            raise _translate_error(path, error) from error
        self._position = TablePosition(row[0], row[1], msgspec.json.decode(row[2], type=dict[str, str]))

    def _write(self, records: Sequence[bytes], seq: int, lock_timeout: float) -> None:
        found = [cells.decode(record) for record in records]
        names = dict(self._position.names)
        with self._transaction(lock_timeout):
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
            at = TablePosition(seq, self._position.rows + len(found), names)
            packed = msgspec.json.encode(names).decode()
            self._db.execute("UPDATE shoal_export SET seq = ?, rows = ?, names = ?", (seq, at.rows, packed))
        self._position = at

    def _write_header(self) -> None:
        """The columns of a table without rows."""
        names = dict(self._position.names)
        with self._transaction(LOCK_TIMEOUT):
            for key in self._header:
                self._add_column(names, key)
            self._db.execute("UPDATE shoal_export SET names = ?", (msgspec.json.encode(names).decode(),))
        self._position = TablePosition(self._position.seq, self._position.rows, names)

    def _add_column(self, names: dict[str, str], key: str) -> None:
        if len(names) >= MAX_COLUMNS:
            raise UsageError(
                f"the records have more than {MAX_COLUMNS:,} different keys, too many for a table",
                hint="write them as .jsonl",
            )
        name = _free_column_name(key, names)
        if not names:  # the table was made before it was known what would be in it
            self._db.execute(f'ALTER TABLE "records" RENAME COLUMN "value" TO {_quoted(name)}')
        else:
            self._db.execute(f'ALTER TABLE "records" ADD COLUMN {_quoted(name)}')
        names[key] = name

    @contextlib.contextmanager
    def _transaction(self, lock_timeout: float) -> Any:
        self._db.execute(f"PRAGMA busy_timeout = {int(lock_timeout * 1000)}")
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._db.execute("ROLLBACK")
            raise


def _claim(state: OutputState, fresh: bool, replace: bool) -> None:
    """Refuse a file that is not this run's; with fresh, put it out of the way."""
    path = state.path
    if state.is_empty():
        _remove(path, ("", "-journal"))
        return
    owner = _owner(path)
    if owner == state.owner:
        return
    if owner is None and fresh:
        state.kept_as = set_aside(path).name
        for end in _SIDE_FILES:
            if (side := Path(f"{path}{end}")).exists():
                set_aside(side)
    elif owner is not None and (fresh or replace):
        _remove(path)
    else:
        raise state.conflict_error(f"holds the records of run {owner[0]}" if owner else "", replaceable=bool(owner))


def _owner(path: Path) -> tuple[str, int] | None:
    """Whose records a file holds, if shoal wrote it."""
    with contextlib.closing(sqlite3.connect(path, timeout=5.0)) as db:
        try:
            # Asked of SQLite, not read from the file: the newest may still be in its log.
            if db.execute("PRAGMA application_id").fetchone()[0] == _QUEUE_APPLICATION_ID:
                raise UsageError(f"{path} is a state file of shoal itself", hint="another name after -o")
            run, started = db.execute("SELECT run, started FROM shoal_export").fetchone()
            return run, started
        except sqlite3.Error as error:
            if _is_busy(error):
                raise _translate_error(path, error) from error
            return None


def _remove(path: Path, ends: Sequence[str] = ("", *_SIDE_FILES)) -> None:
    # The journal as well: rolled back into a new file, it would bring back pieces of the old one.
    for end in ends:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}{end}")  # noqa: PTH108 - a name with something behind it


def _free_column_name(key: str, names: dict[str, str]) -> str:
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
    return cells.to_text(value)


def _is_busy(error: sqlite3.Error) -> bool:
    return error_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _translate_error(path: Path, error: sqlite3.Error) -> ActionRequired:
    """What a person must do about a database that could not be written."""
    if error_code(error) == sqlite3.SQLITE_FULL:
        return write_error(path, OSError(28, ""))
    if _is_busy(error):
        return ActionRequired(
            f"{path} is locked by another program; what was written is complete, and no record is lost",
            hint="close it there, then run the same command again",
        )
    if error_code(error) in _DISK_ERRORS:
        return ActionRequired(f"{path} cannot be written: {error}", hint="check the disk and the folder's permissions")
    return UsageError(f"{path} cannot be written: {error}", hint="another name after -o, or --fresh to start over")
