"""XlsxSource: the URLs in one column of the first sheet that holds anything."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.errors import UsageError
from shoal.sources.base import MAX_LINE, TOO_LONG, Unit, UrlEntry
from shoal.sources.columns import Columns, detect_columns
from shoal.sources.lines import PREVIEW_CHARS
from shoal.sources.text import read_error
from shoal.version import install_hint

SAMPLE_LINES = 30


class XlsxSource:
    unit: Unit = "row"

    def __init__(self, path: Path, name: str, column: str) -> None:
        self._file = name
        self._workbook, self._sheet_title = _open_workbook(path, name)
        try:
            sample = [row for _, row in islice(self._rows(), SAMPLE_LINES)]
            self._columns: Columns = detect_columns(sample, column, name)
        except BaseException:
            self.close()
            raise
        self.name = f"{name}, column {self._columns.name}"
        self.columns = self._columns.others

    def __iter__(self) -> Iterator[UrlEntry]:
        rows = self._rows()
        if self._columns.has_header:
            next(rows)
        for number, row in rows:
            if sum(len(cell) for cell in row if isinstance(cell, str)) > MAX_LINE:
                text = row[self._columns.url_index] if self._columns.url_index < len(row) else ""
                yield UrlEntry(number, str(text)[:PREVIEW_CHARS], problem=TOO_LONG)
            else:
                yield self._columns.entry(number, row)

    def close(self) -> None:
        self._workbook.close()

    def _rows(self) -> Iterator[tuple[int, list[Any]]]:
        """Rows that hold anything, with their numbers."""
        with _translate_errors(self._file):
            for number, cells in enumerate(self._workbook[self._sheet_title].iter_rows(values_only=True), 1):
                row = [_cell_value(cell) for cell in cells]
                while row and row[-1] == "":
                    row.pop()
                if row:
                    yield number, row


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Sheets are read as they are needed, so damage may come to light at any row."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, SyntaxError) as error:
        # SyntaxError: what each of the XML parsers raises
        raise UsageError(f"{name} is not an .xlsx file: {error}", hint="save it as .xlsx or .csv again") from error
    except OSError as error:
        raise read_error(name, error) from error


def _open_workbook(path: Path, name: str) -> tuple[Any, str]:
    if path.suffix.lower() == ".gz":
        raise UsageError(f"{name}: an .xlsx file is already compressed", hint=f"decompress it first: gunzip {name}")
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise UsageError(
            f"{name}: reading .xlsx needs another package", hint=f"save it as .csv, or {install_hint('xlsx')}"
        ) from None
    with _translate_errors(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and validation, which nobody reads here
            workbook = load_workbook(path, read_only=True, data_only=True)
        try:
            for sheet in workbook.worksheets:
                rows = sheet.iter_rows(values_only=True)
                if any(any(cell not in (None, "") for cell in row) for row in rows):
                    return workbook, sheet.title
        except BaseException:
            workbook.close()
            raise
    workbook.close()
    raise UsageError(f"{name} is empty", hint="a list has one URL per row")


def _cell_value(cell: Any) -> Any:
    if cell is None:
        return ""
    if isinstance(cell, str | bool | int | float):
        return cell
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
