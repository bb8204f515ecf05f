"""CsvRows: the addresses in one column of a CSV or TSV file."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterator, Sequence

from shoal.errors import Usage
from shoal.sources.base import MAX_LINE, TOO_LONG, Entry, Unit
from shoal.sources.columns import Columns, columns_of
from shoal.sources.lines import SHOWN
from shoal.sources.text import Line, TextFile

LOOK = 30  # lines by which a file is judged
MAX_LINES = 200  # of one row, where a quoted cell holds line breaks
NOT_CLOSED = "a quote that is opened here is never closed"
DELIMITERS = ",;\t|"
_excel_hint = re.compile(r"sep=(.)\s*", re.IGNORECASE).fullmatch


class CsvRows:
    unit: Unit = "row"

    def __init__(self, file: TextFile, column: str, delimiter: str = "") -> None:
        self._file = file
        sample = file.peek(LOOK)
        self._excel = _excel_hint(sample[0].text) if sample else None
        texts = [line.text for line in sample if line.text.strip()][1 if self._excel else 0 :]
        self._delimiter = self._excel[1] if self._excel else delimiter or sniff(texts)
        try:
            self._columns: Columns = columns_of(
                list(csv.reader(texts, delimiter=self._delimiter)), column, file.name
            )
        except csv.Error as error:
            raise Usage(
                f"{file.name} cannot be read as a table: {error}", hint="save it as .csv again"
            ) from error
        self.name = f"{file.name}, column {self._columns.name}"

    def __iter__(self) -> Iterator[Entry]:
        lines = self._file.lines()
        if self._excel:
            next(lines)
        skip = self._columns.header
        for line, row in Records(lines, self._delimiter):
            if isinstance(row, str):
                yield Entry(line.number, line.text[:SHOWN], problem=row)
            elif skip and any(cell.strip() for cell in row):
                skip = False
            elif entry := self._columns.entry(line.number, row):
                yield entry

    def close(self) -> None:
        self._file.close()


class Records:
    """Rows with the line each begins at; a row that cannot be read has words in its place.

    A quote that nobody closes would make one row of the rest of the file: then its line is given up, and
    reading goes on with the line after it.
    """

    def __init__(self, lines: Iterator[Line], delimiter: str) -> None:
        self._lines = lines
        self._delimiter = delimiter
        self._again: deque[Line] = deque()  # lines to be read once more
        self._taken: list[Line] = []  # lines of the row under way
        self._astray = False

    def __iter__(self) -> Iterator[tuple[Line, Sequence[str] | str]]:
        more = True
        while more:
            more = False
            for row in csv.reader(self._feed(), delimiter=self._delimiter):
                first = self._taken[0]
                if self._astray:
                    self._again.extendleft(reversed(self._taken[1:]))
                    self._taken.clear()
                    yield first, NOT_CLOSED
                    more = True
                    break
                self._taken.clear()
                yield first, row if first.whole else TOO_LONG

    def _feed(self) -> Iterator[str]:
        """Lines for the parser; it asks for another in the middle of a row only inside quotes."""
        self._astray = False
        while line := self._again.popleft() if self._again else next(self._lines, None):
            self._taken.append(line)
            size = sum(len(taken.text) for taken in self._taken)
            if len(self._taken) > 1 and (size > MAX_LINE or len(self._taken) > MAX_LINES or not line.whole):
                break
            yield f"{line.text}\n" if line.whole else line.text[:SHOWN].replace('"', "")
        self._astray = bool(self._taken)


def sniff(lines: Sequence[str]) -> str:
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
