"""Results in a SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from shoal.core.run import TASK_BITS
from shoal.errors import ActionRequired, StoreRefused, StoreUnavailable
from shoal.files.sqlite import error_code, statements, use_wal
from shoal.store.base import run_in_thread
from shoal.store.results.base import (
    BATCH_SIZE,
    TASK_NUMBER_MASK,
    Origin,
    StoredResult,
    StorePosition,
    TaskRecord,
    encode_result,
    manual_origin,
)

P = ParamSpec("P")
T = TypeVar("T")

APPLICATION_ID = 0x73686F73  # "shos"
QUEUE_ID = 0x73686F61  # "shoa", the mark of a state file
VERSION = 1
LOCK_TIMEOUT = 30.0
_COLUMNS = "(r.number << 32) | l.task, r.type, r.name, l.seq, l.data, l.stored_at"
_JOINED = "result_lines l JOIN result_runs r ON r.id = l.run"


class SqliteResultBackend:
    """One connection, used by one thread at a time so that a slow disk stops nobody."""

    def __init__(self, path: str, db: sqlite3.Connection) -> None:
        self.label = path
        self.location = f"sqlite:///{Path(path).resolve()}"
        self._db = db
        self._lock = asyncio.Lock()
        self._closed = False

    @classmethod
    async def open(cls, path: str) -> SqliteResultBackend:
        return cls(path, await run_in_thread(_open, path))

    async def position(self, origin: Origin) -> StorePosition:
        return await self._read(_position, origin)

    async def append(self, origin: Origin, after: int, records: Sequence[TaskRecord]) -> bool:
        return await self._write(_append, origin, after, records)

    async def rebase(self, origin: Origin, at: StorePosition, seq: int) -> bool:
        return await self._write(_rebase, origin, at, seq)

    async def read(
        self, origin: Origin, *, after: int = 0, limit: int = BATCH_SIZE, tasks: Collection[int] = ()
    ) -> list[StoredResult]:
        terms = "r.home = ? AND r.name = ? AND r.type = ? AND l.seq > ?"
        values: list[object] = [origin.home, origin.run, origin.type, after]
        if tasks:
            terms += " AND l.task IN (SELECT value FROM json_each(?))"
            values.append(_numbers(tasks))
        return await self._read(_select, f"{terms} ORDER BY l.seq LIMIT ?", *values, limit)

    async def store(self, task: int, type: str, result: Any, run: str = "") -> None:
        await self._write(_store, manual_origin(task, type, run), task & TASK_NUMBER_MASK, encode_result(result))

    async def get(self, task: int, *, run: str = "") -> list[StoredResult]:
        terms = "l.task = ? AND " + ("r.name = ?" if run else "r.number = ?")
        value = run or task >> TASK_BITS
        return await self._read(_select, f"{terms} ORDER BY l.run, l.seq", task & TASK_NUMBER_MASK, value)

    async def aggregate(self, type: str) -> AsyncIterator[StoredResult]:
        for run in await self._read(_runs, type):
            after = 0
            while batch := await self._read(
                _select, "l.run = ? AND l.seq > ? ORDER BY l.seq LIMIT ?", run, after, BATCH_SIZE
            ):
                for result in batch:
                    yield result
                after = batch[-1].seq

    async def count(self, type: str = "") -> int:
        return await self._read(_count, type)

    async def close(self) -> None:
        async with self._lock:
            if not self._closed:
                self._closed = True
                await run_in_thread(self._db.close)

    async def _read(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._do("BEGIN", step, *args, **kwargs)

    async def _write(
        self, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self._do("BEGIN IMMEDIATE", step, *args, **kwargs)

    async def _do(
        self, begin: str, step: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        def work() -> T:
            with _transaction(self._db, begin):
                return step(self._db, *args, **kwargs)

        async with self._lock:
            if self._closed:
                raise StoreUnavailable("the store of results was closed", hint="open it again")
            try:
                return await run_in_thread(work)
            except sqlite3.Error as error:
                raise _translate_error(self.label, error) from error


def _open(path: str) -> sqlite3.Connection:
    try:
        Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, timeout=LOCK_TIMEOUT, isolation_level=None, check_same_thread=False)
    except OSError as error:
        raise StoreUnavailable(
            f"cannot make the folder of {path}: {error.strerror}", hint="--store with a place to write to"
        ) from error
    except sqlite3.Error as error:
        raise _translate_error(path, error) from error
    try:
        with _transaction(db, "BEGIN"):  # one look at it: another process may be making it
            _refuse_foreign(db, path)
        use_wal(db, LOCK_TIMEOUT)
        db.execute("PRAGMA synchronous = full")  # what is here is no longer in the queue
        with _transaction(db, "BEGIN IMMEDIATE"):
            _prepare(db, path)
    except sqlite3.Error as error:
        db.close()
        raise _translate_error(path, error) from error
    except BaseException:
        db.close()
        raise
    return db


def _refuse_foreign(db: sqlite3.Connection, path: str) -> None:
    owner = db.execute("PRAGMA application_id").fetchone()[0]
    if owner == QUEUE_ID:
        raise StoreRefused(
            f"{path} is the state file of a queue", hint="give results their own file: --store results.db"
        )
    if owner != APPLICATION_ID and (owner or db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]):
        raise StoreRefused(
            f"{path} is a database of another program", hint="name another file: --store sqlite:///results.db"
        )


def _prepare(db: sqlite3.Connection, path: str) -> None:
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreRefused(
            f"{path} was written by a newer shoal (version {version}, this one knows {VERSION})",
            hint="upgrade this installation, or name another file with --store",
        )
    for number in range(version + 1, VERSION + 1):
        script = files(__package__).joinpath("schema", f"results_sqlite_{number}.sql").read_text("utf-8")
        for statement in statements(script):
            db.execute(statement)
    if version < VERSION:
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")


@contextmanager
def _transaction(db: sqlite3.Connection, begin: str) -> Iterator[None]:
    db.execute(begin)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


def _position(db: sqlite3.Connection, origin: Origin) -> StorePosition:
    row = db.execute(
        "SELECT seq - shift, rows, shift, base FROM result_runs WHERE home = ? AND name = ? AND type = ?",
        (origin.home, origin.run, origin.type),
    ).fetchone()
    return StorePosition(*row) if row else StorePosition()


def _run(db: sqlite3.Connection, origin: Origin) -> tuple[int, int, int, int]:
    """The run's own number here, its last line, shift and base; a new run is written down."""
    found: tuple[int, int, int, int] = db.execute(
        """INSERT INTO result_runs (home, name, type, number) VALUES (?, ?, ?, ?)
           ON CONFLICT (home, name, type) DO UPDATE SET number = excluded.number
           RETURNING id, seq, shift, base""",
        (origin.home, origin.run, origin.type, origin.number),
    ).fetchone()
    return found


def _append(db: sqlite3.Connection, origin: Origin, after: int, records: Sequence[TaskRecord]) -> bool:
    run, seq, shift, base = _run(db, origin)
    if seq - shift != after:
        return False
    known = _known(db, run, base, records) if base else frozenset[tuple[int, str]]()
    now = time.time_ns() // 1000
    lines = [
        (run, record.seq + shift, record.task & TASK_NUMBER_MASK, now, record.data.decode())
        for record in records
        if not known or (record.task & TASK_NUMBER_MASK, record.data.decode()) not in known
    ]
    db.executemany("INSERT INTO result_lines (run, seq, task, stored_at, data) VALUES (?, ?, ?, ?, ?)", lines)
    db.execute(
        "UPDATE result_runs SET seq = ?, rows = rows + ?, skipped = skipped + ? WHERE id = ?",
        (records[-1].seq + shift, len(records), len(records) - len(lines), run),
    )
    return True


def _known(db: sqlite3.Connection, run: int, base: int, records: Sequence[TaskRecord]) -> frozenset[tuple[int, str]]:
    """What was here of the tasks of these records before the queue was set back."""
    rows = db.execute(
        """SELECT task, data FROM result_lines
           WHERE run = ? AND seq <= ? AND task IN (SELECT value FROM json_each(?))""",
        (run, base, _numbers([record.task for record in records])),
    )
    return frozenset(rows)


def _rebase(db: sqlite3.Connection, origin: Origin, at: StorePosition, seq: int) -> bool:
    changed = db.execute(
        """UPDATE result_runs SET base = seq, shift = seq - ?
           WHERE home = ? AND name = ? AND type = ? AND seq = ? AND shift = ?""",
        (seq, origin.home, origin.run, origin.type, at.last, at.shift),
    )
    return changed.rowcount == 1


def _store(db: sqlite3.Connection, origin: Origin, task: int, data: bytes) -> None:
    run, seq, _, _ = _run(db, origin)
    gone = db.execute("DELETE FROM result_lines WHERE run = ? AND task = ?", (run, task)).rowcount
    now = time.time_ns() // 1000
    db.execute("INSERT INTO result_lines VALUES (?, ?, ?, ?, ?)", (run, seq + 1, task, now, data.decode()))
    db.execute("UPDATE result_runs SET seq = ?, rows = rows + 1 - ? WHERE id = ?", (seq + 1, gone, run))


def _select(db: sqlite3.Connection, terms: str, *values: object) -> list[StoredResult]:
    rows = db.execute(f"SELECT {_COLUMNS} FROM {_JOINED} WHERE {terms}", values)  # noqa: S608 - ours
    return [
        StoredResult(task, type, run, seq, data.encode(), stored_at) for task, type, run, seq, data, stored_at in rows
    ]


def _runs(db: sqlite3.Connection, type: str) -> list[int]:
    return [run for (run,) in db.execute("SELECT id FROM result_runs WHERE type = ? ORDER BY id", (type,))]


def _count(db: sqlite3.Connection, type: str) -> int:
    (number,) = db.execute(
        "SELECT ifnull(sum(rows - skipped), 0) FROM result_runs WHERE ?1 = '' OR type = ?1", (type,)
    ).fetchone()
    return int(number)


def _numbers(tasks: Collection[int]) -> str:
    return msgspec.json.encode([task & TASK_NUMBER_MASK for task in tasks]).decode()


def _translate_error(path: str, error: sqlite3.Error) -> ActionRequired:
    """The one mapping from SQLite's errors to ours."""
    code = error_code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreUnavailable(
            f"{path} has been locked by another program for {LOCK_TIMEOUT:.0f} s",
            hint="close it there; records wait in the queue meanwhile",
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailable(
            f"no space left on the disk of {path}", hint="free some space; records wait in the queue meanwhile"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return StoreRefused(f"{path} is not a database", hint="name another file with --store")
    return StoreUnavailable(
        f"{path} cannot be used: {error}", hint="check the file, its folder and its disk; nothing is lost"
    )
