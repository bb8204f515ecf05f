"""CSV as in RFC 4180, one column per key; nested values are written as JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shoal.store.base import Mark
from shoal.store.rows import Rows


class CsvFile:
    """Columns stand in order of first appearance; a new one means the file is written anew, wider."""

    def __init__(self, path: Path, mark: Mark) -> None:
        self.columns = mark.columns
        self._rows = Rows(path, mark.size)

    def wider(self, records: Sequence[bytes]) -> tuple[str, ...]:
        return new_columns(self.columns, records)

    def write(self, records: Sequence[bytes]) -> None:
        head = header(self.columns) if self._rows.size == 0 else b""
        self._rows.append(head + encode(self.columns, records))

    def flush(self) -> int:
        return self._rows.sync()

    def close(self) -> None:
        self._rows.close()


def new_columns(columns: Iterable[str], records: Sequence[bytes]) -> tuple[str, ...]:
    known = dict.fromkeys(columns)
    before = len(known)
    for record in records:
        known |= dict.fromkeys(_object(record))
    return tuple(known)[before:]


def header(columns: Sequence[str]) -> bytes:
    return _lines([columns])


def encode(columns: Sequence[str], records: Sequence[bytes]) -> bytes:
    return _lines([_cell(record.get(name)) for name in columns] for record in map(_object, records))


def _object(record: bytes) -> dict[str, Any]:
    value = json.loads(record)
    return value if isinstance(value, dict) else {"value": value}


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def _lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8", "replace")
