"""XlsxRows: the addresses in one column of the first sheet that holds anything."""

from __future__ import annotations

import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.errors import Usage
from shoal.sources.base import MAX_LINE, TOO_LONG, Entry, Unit
from shoal.sources.columns import Columns, columns_of
from shoal.sources.lines import SHOWN
from shoal.sources.text import unreadable

LOOK = 30


class XlsxRows:
    unit: Unit = "row"

    def __init__(self, path: Path, name: str, column: str) -> None:
        self._file = name
        self._book, self._title = _open(path, name)
        try:
            sample = [row for _, row in islice(self._rows(), LOOK)]
            self._columns: Columns = columns_of(sample, column, name)
        except BaseException:
            self.close()
            raise
        self.name = f"{name}, column {self._columns.name}"

    def __iter__(self) -> Iterator[Entry]:
        rows = self._rows()
        if self._columns.header:
            next(rows)
        for number, row in rows:
            if sum(len(cell) for cell in row if isinstance(cell, str)) > MAX_LINE:
                text = row[self._columns.at] if self._columns.at < len(row) else ""
                yield Entry(number, str(text)[:SHOWN], problem=TOO_LONG)
            elif entry := self._columns.entry(number, row):
                yield entry

    def close(self) -> None:
        self._book.close()

    def _rows(self) -> Iterator[tuple[int, list[Any]]]:
        """Rows that hold anything, with their numbers."""
        with _readable(self._file):
            for number, cells in enumerate(self._book[self._title].iter_rows(values_only=True), 1):
                row = [_plain(cell) for cell in cells]
                while row and row[-1] == "":
                    row.pop()
                if row:
                    yield number, row


@contextmanager
def _readable(name: str) -> Iterator[None]:
    """Sheets are read as they are needed, so damage may come to light at any row."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, SyntaxError) as error:
        # SyntaxError: what each of the XML parsers raises
        raise Usage(f"{name} is not an .xlsx file: {error}", hint="save it as .xlsx or .csv again") from error
    except OSError as error:
        raise unreadable(name, error) from error


def _open(path: Path, name: str) -> tuple[Any, str]:
    if path.suffix.lower() == ".gz":
        raise Usage(f"{name}: an .xlsx file is packed already", hint=f"unpack it first: gunzip {name}")
    try:
        from openpyxl import load_workbook
    except ImportError:
        raise Usage(
            f"{name}: reading .xlsx needs another package",
            hint="pip install 'shoal[xlsx]', or save it as .csv",
        ) from None
    with _readable(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles and validation, which nobody reads here
            book = load_workbook(path, read_only=True, data_only=True)
        try:
            for sheet in book.worksheets:
                rows = sheet.iter_rows(values_only=True)
                if any(any(cell not in (None, "") for cell in row) for row in rows):
                    return book, sheet.title
        except BaseException:
            book.close()
            raise
    book.close()
    raise Usage(f"{name} is empty", hint="a list has one address a row")


def _plain(cell: Any) -> Any:
    if cell is None:
        return ""
    if isinstance(cell, str | bool | int | float):
        return cell
    return cell.isoformat() if hasattr(cell, "isoformat") else str(cell)
