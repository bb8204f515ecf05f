"""CsvSource: the URLs in one column of a CSV or TSV file."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence

from shoal.errors import UsageError
from shoal.sources.base import MAX_LINE, TOO_LONG, Unit, UrlEntry
from shoal.sources.columns import Columns, detect_columns
from shoal.sources.lines import PREVIEW_CHARS
from shoal.sources.text import TextFile, TextLine

SAMPLE_LINES = 30  # lines by which a file is judged
MAX_ROW_LINES = 200  # of one row, where a quoted cell holds line breaks
UNCLOSED_QUOTE = "this quote is never closed"
DELIMITERS = ",;\t|"
_excel_separator = re.compile(r"sep=(.)\s*", re.IGNORECASE).fullmatch


class CsvSource:
    unit: Unit = "row"

    def __init__(self, file: TextFile, column: str, delimiter: str = "") -> None:
        self._file = file
        sample = file.peek(SAMPLE_LINES)
        self._excel_match = _excel_separator(sample[0].text) if sample else None
        texts = [line.text for line in sample if line.text.strip()][1 if self._excel_match else 0 :]
        self._delimiter = self._excel_match[1] if self._excel_match else delimiter or sniff_delimiter(texts)
        try:
            self._columns: Columns = detect_columns(
                list(csv.reader(texts, delimiter=self._delimiter)), column, file.name
            )
        except csv.Error as error:
            raise UsageError(f"{file.name} cannot be read as a table: {error}", hint="save it as .csv again") from error
        self.name = f"{file.name}, column {self._columns.name}"
        self.columns = self._columns.others

    def __iter__(self) -> Iterator[UrlEntry]:
        lines = self._file.lines()
        if self._excel_match:
            next(lines)
        skip = self._columns.has_header
        for line, row in CsvRowReader(lines, self._delimiter):
            if isinstance(row, str):
                yield UrlEntry(line.number, line.text[:PREVIEW_CHARS], problem=row)
            elif skip and any(cell.strip() for cell in row):
                skip = False
            else:
                yield self._columns.entry(line.number, row)

    def close(self) -> None:
        self._file.close()


class CsvRowReader:
    """Rows with the line each begins at; a row that cannot be read has words in its place.

    A quote that nobody closes would make one row of the rest of the file: then its line is given up, and
    reading goes on with the line after it.
    """

    def __init__(self, lines: Iterator[TextLine], delimiter: str) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._pushed_back: deque[TextLine] = deque()  # lines to be read once more
        self._row_lines: list[TextLine] = []  # lines of the row in progress
        self._quote_unclosed = False

    def __iter__(self) -> Iterator[tuple[TextLine, Sequence[str] | str]]:
        more = True
        while more:
            more = False
            for row in csv.reader(self._parser_lines(), delimiter=self._delimiter):
                first = self._row_lines[0]
                if self._quote_unclosed:
                    self._pushed_back.extendleft(reversed(self._row_lines[1:]))
                    self._row_lines.clear()
                    yield first, UNCLOSED_QUOTE
                    more = True
                    break
                self._row_lines.clear()
                yield first, row if first.is_complete else TOO_LONG

    def _parser_lines(self) -> Iterator[str]:
        """Lines for the parser; it asks for another in the middle of a row only inside quotes."""
        self._quote_unclosed = False
        while line := self._pushed_back.popleft() if self._pushed_back else next(self._lines, None):
            self._row_lines.append(line)
            size = sum(len(taken.text) for taken in self._row_lines)
            if len(self._row_lines) > 1 and (
                size > MAX_LINE or len(self._row_lines) > MAX_ROW_LINES or not line.is_complete
            ):
                break
            yield f"{line.text}\n" if line.is_complete else line.text[:PREVIEW_CHARS].replace('"', "")
        self._quote_unclosed = bool(self._row_lines)


def sniff_delimiter(lines: Sequence[str]) -> str:
    """The delimiter that cuts the lines most evenly into more than one cell; a comma where none does."""
    best, most = ",", (0.0, 0)
    for delimiter in DELIMITERS:
        try:
            widths = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        except csv.Error:
            continue
        usual = max(set(widths), key=widths.count, default=1)
        score = (widths.count(usual) / len(widths), usual) if usual > 1 else (0.0, 0)
        if score > most:
            best, most = delimiter, score
    return best
