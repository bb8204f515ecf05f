"""OrderedRecords: a run's records in the order in which its tasks were added, which is that of a list.

They wait in a file of their own, next to the output: memory does not grow with them, and the queue, which
gives records in the order in which pages were finished, is read once.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import msgspec

from shoal.store.append_file import write_error
from shoal.store.base import RecordReader, TaskRecord, run_in_thread
from shoal.store.record_batches import RecordBatches

CACHE_KB = 8_000
# Rows are appended as they come; what is sorted, by merging on disk, is only their numbers.
_TABLES = (
    "CREATE TABLE record (seq INTEGER PRIMARY KEY, task INTEGER NOT NULL, data BLOB NOT NULL)",
    "CREATE TABLE place (number INTEGER PRIMARY KEY, seq INTEGER NOT NULL)",
)
_SORT = "INSERT INTO place (seq) SELECT seq FROM record ORDER BY task, seq"
_NEXT = """
    SELECT place.number, record.data FROM place JOIN record ON record.seq = place.seq
    WHERE place.number > ? ORDER BY place.number LIMIT ?
"""


class OrderedRecord(msgspec.Struct, frozen=True, gc=False):
    seq: int  # its place in this order, from 1
    data: bytes


class OrderedRecords:
    """`refill` takes in what the queue has; until the next one the order stays as it is."""

    def __init__(self, queue: RecordReader, run: int, path: Path) -> None:
        self._queue = queue
        self._run = run
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._seq = 0  # up to which the queue was read

    async def refill(self) -> None:
        async for batch in RecordBatches(self._queue, self._run).all(after=self._seq):
            records = cast("Sequence[TaskRecord]", batch)
            rows = [(it.seq, it.task, it.data) for it in records]
            await run_in_thread(self._write, "INSERT INTO record VALUES (?, ?, ?)", rows)
            self._seq = batch[-1].seq
        await run_in_thread(self._write, "DELETE FROM place", [()])
        await run_in_thread(self._write, _SORT, [()])

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> Sequence[OrderedRecord]:
        return await run_in_thread(self._select, after, limit)

    def close(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None
            with suppress(OSError):
                self._path.unlink()

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            try:
                self._path.unlink(missing_ok=True)  # of a process that was killed
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            except OSError as error:
                raise write_error(self._path, error) from error
            self._db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            # Nobody needs it after a crash.
            self._db.execute("PRAGMA journal_mode = off")
            self._db.execute("PRAGMA synchronous = off")
            self._db.execute(f"PRAGMA cache_size = -{CACHE_KB}")
            for table in _TABLES:
                self._db.execute(table)
        return self._db

    def _write(self, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
        db = self._open()
        try:
            db.execute("BEGIN")
            db.executemany(statement, rows)
            db.execute("COMMIT")
        except sqlite3.Error as error:  # without a journal nothing can be taken back: it is begun anew
            self.close()
            self._seq = 0
            raise write_error(self._path, OSError(errno.ENOSPC, str(error))) from error

    def _select(self, after: int, limit: int) -> list[OrderedRecord]:
        return [OrderedRecord(number, data) for number, data in self._open().execute(_NEXT, (after, limit))]
