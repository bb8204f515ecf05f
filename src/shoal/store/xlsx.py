"""Spreadsheets: texts, numbers and truth values; what Excel cannot hold is made to fit, and said.

Written straight into the file, sheet after sheet: nothing waits in memory or in a temporary folder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any
from xml.sax.saxutils import escape
from zipfile import ZIP_DEFLATED, ZipFile

from shoal.errors import UsageError
from shoal.store import cells

MAX_ROWS = 1_048_576  # of a sheet, the header included
MAX_COLUMNS = 16_384
MAX_CELL = 32_767  # UTF-16 units
MAX_SHEET = 1_500_000_000  # bytes, unpacked: beyond 2 GB a file needs a zip that Excel wants to repair
MAX_NUMBER = 999_999_999_999_999  # fifteen digits: of longer numbers Excel loses the end
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_BREAKS = re.compile("\r\n?")

_XML = '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n'
_MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
_LINKS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006"
_KIND = "application/vnd.openxmlformats-officedocument.spreadsheetml"
_HEAD = (
    f'{_XML}<worksheet xmlns="{_MAIN}"><sheetViews><sheetView workbookViewId="0">'
    '<pane ySplit="1" topLeftCell="A2" activePane="bottomLeft" state="frozen"/>'
    "</sheetView></sheetViews>"
)
_MEASURED = 1_000  # records from which the widths of columns are taken
_MIN_WIDTH, _MAX_WIDTH = 8, 60  # characters; a longer text is read in its cell
_ARROW = 3  # characters that the filter's button takes of a header


class XlsxFile:
    needs_scan = True

    def __init__(self) -> None:
        self._columns: tuple[str, ...] = ()
        self._widths: dict[str, int] = {}
        self._measured = 0
        self._last_rows: list[int] = []  # of the sheets that are complete
        self._book: ZipFile | None = None
        self._sheet: IO[bytes] | None = None
        self._rows = 0  # in this sheet
        self._bytes = 0
        self._sheets = 0
        self._truncated = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return self._columns

    @property
    def notes(self) -> tuple[str, ...]:
        notes = []
        if self._sheets > 1:
            notes.append(f"a sheet was full: the records continue in {self._sheets - 1} more")
        if self._truncated:
            notes.append(f"truncated texts: {self._truncated:,} (a cell holds {MAX_CELL:,} characters)")
        return tuple(notes)

    def scan(self, records: Sequence[bytes]) -> None:
        self._columns += cells.new_columns(self._columns, records)
        self._measure(records[: max(0, _MEASURED - self._measured)])
        if len(self._columns) > MAX_COLUMNS:
            raise UsageError(
                f"the records have more than {MAX_COLUMNS:,} different keys, too many for a sheet",
                hint="write them as .jsonl",
            )

    def begin(self, path: Path) -> None:
        self._column_letters = [column_letters(at) for at in range(len(self._columns))]
        self._book = ZipFile(path, "w", ZIP_DEFLATED, compresslevel=4)
        self._start_sheet()

    def write(self, records: Sequence[bytes]) -> None:
        for record in records:
            if self._rows >= MAX_ROWS or self._bytes >= MAX_SHEET:
                self._start_sheet()
            found = cells.decode(record)
            self._append([found.get(name) for name in self._columns])

    def end(self) -> None:
        self._close_sheet()
        if self._book is not None:
            for name, content in _parts(self._last_rows, self._last_column).items():
                self._book.writestr(name, _XML + content)
        self.close()

    def close(self) -> None:
        sheet, self._sheet = self._sheet, None
        book, self._book = self._book, None
        if sheet is not None:
            sheet.close()
        if book is not None:
            book.close()

    def _start_sheet(self) -> None:
        """Go on with a new sheet, under the same header."""
        self._close_sheet()
        self._sheets += 1
        self._rows = self._bytes = 0
        if self._book is not None:
            self._sheet = self._book.open(f"xl/worksheets/sheet{self._sheets}.xml", "w")
        self._put(f"{_HEAD}{self._column_widths()}<sheetData>")
        self._append(self._columns)

    def _close_sheet(self) -> None:
        if self._sheet is not None:
            covered = f'<autoFilter ref="A1:{self._last_column}{self._rows}"/>' if self._columns else ""
            self._put(f"</sheetData>{covered}</worksheet>")
            self._last_rows.append(self._rows)
            self._sheet.close()
            self._sheet = None

    @property
    def _last_column(self) -> str:
        return self._column_letters[-1] if self._columns else ""

    def _measure(self, records: Sequence[bytes]) -> None:
        self._measured += len(records)
        for record in records:
            for name, value in cells.decode(record).items():
                longest = max(map(len, cells.to_text(value).split("\n")))
                self._widths[name] = max(self._widths.get(name, 0), longest)

    def _column_widths(self) -> str:
        """As wide as what is in them, within reason."""
        widths = [max(self._widths.get(name, 0), len(name) + _ARROW) + 1 for name in self._columns]
        columns = (
            f'<col min="{at}" max="{at}" width="{max(_MIN_WIDTH, min(width, _MAX_WIDTH))}" customWidth="1"/>'
            for at, width in enumerate(widths, 1)
        )
        return f"<cols>{''.join(columns)}</cols>" if self._columns else ""

    def _append(self, values: Sequence[Any]) -> None:
        self._rows += 1
        row = self._rows
        filled = (
            self._cell(f"{letter}{row}", value)
            for letter, value in zip(self._column_letters, values, strict=True)
            if value is not None
        )
        self._put(f'<row r="{row}">{"".join(filled)}</row>')

    def _put(self, xml: str) -> None:
        data = xml.encode()
        self._bytes += len(data)
        if self._sheet is not None:
            self._sheet.write(data)

    def _cell(self, place: str, value: Any) -> str:
        if isinstance(value, bool):
            return f'<c r="{place}" t="b"><v>{value:d}</v></c>'
        if isinstance(value, float) and math.isfinite(value):
            return f'<c r="{place}"><v>{value!r}</v></c>'
        if isinstance(value, int) and -MAX_NUMBER <= value <= MAX_NUMBER:
            return f'<c r="{place}"><v>{value}</v></c>'
        # Always a text, whatever it begins with: what was scraped is never a formula.
        text = escape(self._text(cells.to_text(value)))
        return f'<c r="{place}" t="inlineStr"><is><t xml:space="preserve">{text}</t></is></c>'

    def _text(self, text: str) -> str:
        text = _BREAKS.sub("\n", _ILLEGAL.sub("", text))
        if len(text) * 2 > MAX_CELL and len(units := text.encode("utf-16-le")) > 2 * MAX_CELL:
            self._truncated += 1
            text = units[: 2 * (MAX_CELL - 1)].decode("utf-16-le", "ignore") + "…"
        return text


def column_letters(column: int) -> str:
    """The name of a column: A, B, … Z, AA."""
    name = ""
    column += 1
    while column:
        column, rest = divmod(column - 1, 26)
        name = chr(ord("A") + rest) + name
    return name


def _sheet_name(number: int) -> str:
    return f"records {number}" if number > 1 else "records"


def _filters(last_rows: Sequence[int], last_column: str) -> str:
    """What each sheet's filter covers, in the words of the workbook."""
    names = (
        f'<definedName name="_xlnm._FilterDatabase" localSheetId="{at}" hidden="1">'
        f"'{_sheet_name(at + 1)}'!$A$1:${last_column}${rows}</definedName>"
        for at, rows in enumerate(last_rows)
    )
    return f"<definedNames>{''.join(names)}</definedNames>" if last_column else ""


def _parts(last_rows: Sequence[int], last_column: str) -> dict[str, str]:
    """What makes sheets, with so many rows each, a workbook."""
    numbers = range(1, len(last_rows) + 1)
    names = "".join(f'<sheet name="{_sheet_name(n)}" sheetId="{n}" r:id="rId{n}"/>' for n in numbers)
    links = "".join(
        f'<Relationship Id="rId{n}" Type="{_LINKS}/worksheet" Target="worksheets/sheet{n}.xml"/>' for n in numbers
    )
    kinds = "".join(
        f'<Override PartName="/xl/worksheets/sheet{n}.xml" ContentType="{_KIND}.worksheet+xml"/>' for n in numbers
    )
    return {
        "xl/workbook.xml": f'<workbook xmlns="{_MAIN}" xmlns:r="{_LINKS}">'
        f"<bookViews><workbookView/></bookViews><sheets>{names}</sheets>{_filters(last_rows, last_column)}</workbook>",
        "xl/_rels/workbook.xml.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">{links}</Relationships>',
        "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}/relationships">'
        f'<Relationship Id="rId1" Type="{_LINKS}/officeDocument" Target="xl/workbook.xml"/></Relationships>',
        "[Content_Types].xml": f'<Types xmlns="{_PACKAGE}/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        '<Default Extension="xml" ContentType="application/xml"/>'
        f'<Override PartName="/xl/workbook.xml" ContentType="{_KIND}.sheet.main+xml"/>{kinds}</Types>',
    }
