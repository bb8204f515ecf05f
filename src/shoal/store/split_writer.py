"""SplitWriter: one output file for each value of a field, such as "{type}.csv" for products and reviews.

Values come from pages: they become names only as letters, digits, - and _, and there may be only so many.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from shoal.errors import UsageError
from shoal.store import cells
from shoal.store.base import RecordLike, RecordReader, WrittenOutput
from shoal.store.record_batches import RecordBatches

MAX_FILES = 50
MAX_NAME = 60
NO_VALUE = "other"  # for records without the field
_placeholder = re.compile(r"\{([^{}]*)\}")
_not_in_names = re.compile(r"[^a-z0-9_-]+")


class FileExporter(Protocol):
    """What keeps one of the files in step."""

    @property
    def rows(self) -> int: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    @property
    def path(self) -> Path: ...

    async def drain(self) -> int: ...

    async def finish(self) -> int: ...

    def close(self) -> None: ...


OpenFile = Callable[[RecordReader, Path], FileExporter]


def split_field(path: Path) -> str:
    """The field that an output is split by, as in "{type}.csv"; empty if it is one file."""
    names = _placeholder.findall(path.name)
    if not names:
        return ""
    if len(names) > 1 or not names[0].strip():
        raise UsageError(
            f"{path.name}: an output is split by one field", hint="-o '{type}.csv' makes a file for each type"
        )
    return str(names[0])


def without_field(name: str) -> str:
    """The name of what belongs to all files of a split output."""
    return _placeholder.sub("", name).strip("-_.") or "all" if _placeholder.search(name) else name


class RecordsWithValue:
    """A run's records of one file; it remembers how far it has looked in vain."""

    def __init__(self, queue: RecordReader, field: str, value: str) -> None:
        self._queue = queue
        self._field = field
        self._value = value
        self._looked = (0, 0)  # between these numbers there is none

    async def records(self, run: int, *, after: int = 0, limit: int = 1000) -> Sequence[RecordLike]:
        begin, end = self._looked
        at = end if begin <= after <= end else after
        while found := await self._queue.records(run, after=at, limit=limit):
            mine = [record for record in found if file_value(record.data, self._field) == self._value]
            if mine:
                return mine
            at = found[-1].seq
            self._looked = (after, at)
        return []


class SplitWriter:
    def __init__(self, queue: RecordReader, run: int, path: Path, field: str, open_file: OpenFile) -> None:
        self._queue = queue
        self._path = path
        self._field = field
        self._open_file = open_file
        self._files: dict[str, FileExporter] = {}
        self._batches = RecordBatches(queue, run)
        self._seq = 0  # up to which all values are known
        self._has_field = False  # whether any record has it

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self._files.values())

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for file in self._files.values() for name in file.columns))

    @property
    def notes(self) -> tuple[str, ...]:
        notes = tuple(note for file in self._files.values() for note in file.notes)
        if self._has_field or NO_VALUE not in self._files:
            return notes
        where = self._files[NO_VALUE].path.name
        return (f"no record has a field {self._field}, so all of them are in {where}", *notes)

    @property
    def files(self) -> list[WrittenOutput]:
        return [(file.path, file.rows, file.columns) for file in self._files.values()]

    async def drain(self) -> int:
        await self._find_values()
        return sum([await file.drain() for file in self._files.values()])

    async def finish(self) -> int:
        await self._find_values()
        return sum([await file.finish() for file in self._files.values()])

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    async def _find_values(self) -> None:
        while batch := await self._batches.next_after(self._seq):
            if not self._has_field:
                self._has_field = any(cells.decode(record.data).get(self._field) is not None for record in batch)
            for value in dict.fromkeys(file_value(record.data, self._field) for record in batch):
                if value not in self._files:
                    self._files[value] = self._open(value)
            self._seq = batch[-1].seq

    def _open(self, value: str) -> FileExporter:
        if len(self._files) >= MAX_FILES:
            raise UsageError(
                f"{self._path.name}: the records have more than {MAX_FILES} values of {self._field}",
                hint="split by a field with few values; the records are safe: shoal export writes them",
            )
        path = self._path.with_name(_placeholder.sub(value, self._path.name))
        return self._open_file(RecordsWithValue(self._queue, self._field, value), path)


def file_value(data: bytes, field: str) -> str:
    """The part of a file's name that a record belongs to."""
    value = cells.decode(data).get(field)
    text = "" if value is None else cells.to_text(value)
    return _not_in_names.sub("-", text.lower()).strip("-")[:MAX_NAME] or NO_VALUE
