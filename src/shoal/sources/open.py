"""open_source: from the name of a list to its entries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from shoal.errors import UsageError
from shoal.sources.base import Source, Unit, UrlEntry
from shoal.sources.columns import URL_COLUMN_NAMES
from shoal.sources.csv import CsvSource, sniff_delimiter
from shoal.sources.jsonl import JsonlSource
from shoal.sources.lines import LineSource
from shoal.sources.spool import spool
from shoal.sources.target_kind import FORMATS_BY_SUFFIX, STDIN, ListFormat, file_not_found, file_suffix
from shoal.sources.text import TextFile
from shoal.sources.xlsx import XlsxSource

SAMPLE_LINES = 30
MAX_BLANKS = 10_000  # blank lines at the beginning of a list that are held


class Input(NamedTuple):
    source: Source
    identity: str  # the same input has the same one, also when it came through a pipe
    # The copy of what came through a pipe; to be removed when the run has ended.
    spool_path: Path | None = None


def open_input(name: str, column: str, folder: Path) -> Input:
    """A list by its name; what can be read only once ("-", a named pipe) is first copied into `folder`."""
    path = Path(name)
    if name == STDIN:
        copy = spool(folder)
        return Input(open_source(copy, column, display_name="stdin"), copy.stem, copy)
    if path.is_fifo():
        with path.open("rb") as stream:
            copy = spool(folder, stream)
        return Input(open_source(copy, column, display_name="the pipe"), copy.stem, copy)
    return Input(open_source(name, column), str(path.resolve()))


def open_source(name: str | Path, column: str = "", *, display_name: str = "") -> Source:
    """The entries of a file; its format follows from its suffix, or from its first lines if it has none.

    column: the name or number of the column, or the key, that holds the URLs. display_name: the name
    for people, where the file's own says nothing to them.
    """
    path = Path(name)
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="name a list in it")
    if not path.exists():
        raise file_not_found(path)
    source = _open_by_format(path, column, display_name or path.name, detect_format=bool(display_name))
    try:
        return PrefetchedSource(source)
    except BaseException:
        source.close()
        raise


def _open_by_format(path: Path, column: str, display_name: str, *, detect_format: bool) -> Source:
    list_format: ListFormat = "any" if detect_format else FORMATS_BY_SUFFIX.get(file_suffix(path), "any")
    if list_format == "xlsx":
        return XlsxSource(path, display_name, column)
    file = TextFile(path, display_name)
    try:
        if list_format == "any":
            list_format = _detect_format(file, column)
        if list_format == "jsonl":
            return JsonlSource(file, column)
        if list_format in ("csv", "tsv"):
            return CsvSource(file, column, "\t" if list_format == "tsv" else "")
        if column:
            raise UsageError(
                f"{display_name} has no columns: it holds one URL per line",
                hint="leave --column out, or give a table the ending .csv or .tsv",
            )
        return LineSource(file)
    except BaseException:
        file.close()
        raise


def _detect_format(file: TextFile, column: str) -> ListFormat:
    """The format of lines whose file name does not tell it."""
    texts = [line.text for line in file.peek(SAMPLE_LINES) if line.text.strip()]
    first = texts[0].strip() if texts else ""
    if first.startswith(("{", '"http', '["')) or first in ("[", "[]"):
        return "jsonl"
    cells = [cell.strip().strip('"').casefold() for cell in first.split(sniff_delimiter(texts))]
    if column or any(cell in URL_COLUMN_NAMES for cell in cells):
        return "csv"
    return "lines"


class PrefetchedSource:
    """A source whose beginning was read already, so that an empty one is refused before any work."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.unit: Unit = source.unit
        self.columns = source.columns
        self._source = source
        rest = iter(source)
        first: list[UrlEntry] = []
        while len(first) < MAX_BLANKS and (not first or first[-1].is_blank) and (entry := next(rest, None)):
            first.append(entry)
        if not first or (first[-1].is_blank and len(first) < MAX_BLANKS):
            raise UsageError(f"there is no URL in {source.name}", hint="a list has one URL per line or row")
        self._entries = chain(first, rest)

    def __iter__(self) -> Iterator[UrlEntry]:
        return self._entries

    def close(self) -> None:
        self._source.close()
