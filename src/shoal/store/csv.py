"""CSV as in RFC 4180 (or with tabs), one column per key; nested values are written as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from shoal.store import cells
from shoal.store.base import Mark
from shoal.store.rows import Rows


class CsvFile:
    """Columns stand in order of first appearance; a new one means the file is written anew, wider."""

    def __init__(self, path: Path, mark: Mark, *, separator: str = ",", packed: bool = False) -> None:
        self.columns = mark.columns
        self._form = Form(separator, mark.safe)
        self._rows = Rows(path, mark.size, packed=packed)

    def wider(self, records: Sequence[bytes]) -> tuple[str, ...]:
        return cells.new_columns(self.columns, records)

    def write(self, records: Sequence[bytes]) -> None:
        head = self._form.header(self.columns) if self._rows.size == 0 else b""
        self._rows.append(head + self._form.encode(self.columns, records))

    def flush(self) -> int:
        return self._rows.sync()

    def close(self) -> None:
        self._rows.close()


class Form:
    """How rows are written: what stands between cells, and whether formulas are made harmless."""

    def __init__(self, separator: str = ",", safe: bool = False) -> None:
        self._separator = separator
        self._safe = safe

    def header(self, columns: Sequence[str]) -> bytes:
        return self.lines([columns])

    def encode(self, columns: Sequence[str], records: Sequence[bytes]) -> bytes:
        found = map(cells.decode, records)
        return self.lines([cells.text(record.get(name)) for name in columns] for record in found)

    def lines(self, rows: Iterable[Sequence[str]]) -> bytes:
        if self._safe:
            rows = ([cells.harmless(cell) for cell in row] for row in rows)
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self._separator).writerows(rows)
        return text.getvalue().encode("utf-8", "replace")
