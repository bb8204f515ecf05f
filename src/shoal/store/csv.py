"""CSV as in RFC 4180 (or with tabs), one column per key; nested values are written as JSON."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from shoal.store import cells
from shoal.store.append_file import AppendFile
from shoal.store.base import Checkpoint


class CsvFile:
    """Columns stand in order of first appearance; a new one means the file is written anew, wider."""

    def __init__(
        self, path: Path, checkpoint: Checkpoint, *, separator: str = ",", is_compressed: bool = False
    ) -> None:
        self.columns = checkpoint.columns
        self._encoder = CsvEncoder(separator, checkpoint.safe, checkpoint.bom)
        self._rows = AppendFile(path, checkpoint.size, is_compressed=is_compressed)

    def missing_columns(self, records: Sequence[bytes]) -> tuple[str, ...]:
        return cells.new_columns(self.columns, records)

    def write(self, records: Sequence[bytes]) -> None:
        head = self._encoder.header(self.columns) if self._rows.size == 0 else b""
        self._rows.append(head + self._encoder.encode(self.columns, records))

    def flush(self) -> int:
        return self._rows.sync()

    def close(self) -> None:
        self._rows.close()


class CsvEncoder:
    """How rows are written: what stands between cells, and whether formulas are made harmless.

    bom: the header begins with a byte order mark, by which Excel knows that it is UTF-8.
    """

    def __init__(self, separator: str = ",", safe: bool = False, bom: bool = False) -> None:
        self._separator = separator
        self._safe = safe
        self._mark = codecs.BOM_UTF8 if bom else b""

    def header(self, columns: Sequence[str]) -> bytes:
        return self._mark + self.lines([columns])

    def encode(self, columns: Sequence[str], records: Sequence[bytes]) -> bytes:
        found = map(cells.decode, records)
        return self.lines([cells.to_text(record.get(name)) for name in columns] for record in found)

    def lines(self, rows: Iterable[Sequence[str]]) -> bytes:
        if self._safe:
            rows = ([cells.escape_formula(cell) for cell in row] for row in rows)
        text = io.StringIO(newline="")
        csv.writer(text, delimiter=self._separator).writerows(rows)
        return text.getvalue().encode("utf-8", "replace")
