"""open_source: from the name of a list to its entries."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from shoal.errors import Usage
from shoal.sources.base import Entry, Source, Unit
from shoal.sources.columns import USUAL
from shoal.sources.csv import CsvRows, sniff
from shoal.sources.jsonl import JsonLines
from shoal.sources.kind import FORMS, STDIN, Form, ending, missing
from shoal.sources.lines import Lines
from shoal.sources.spool import spool
from shoal.sources.text import TextFile
from shoal.sources.xlsx import XlsxRows

LOOK = 30


class Input(NamedTuple):
    source: Source
    identity: str  # the same input has the same one, also when it came through a pipe
    spooled: Path | None = None  # the copy of what came through a pipe; to be removed when the run has ended


def open_input(name: str, column: str, folder: Path) -> Input:
    """A list by its name; what can be read only once ("-", a named pipe) is first copied into `folder`."""
    path = Path(name)
    if name == STDIN:
        copy = spool(folder)
        return Input(open_source(copy, column, called="stdin"), copy.stem, copy)
    if path.is_fifo():
        with path.open("rb") as stream:
            copy = spool(folder, stream)
        return Input(open_source(copy, column, called="the pipe"), copy.stem, copy)
    return Input(open_source(name, column), str(path.resolve()))


def open_source(name: str | Path, column: str = "", *, called: str = "") -> Source:
    """The entries of a file; its form follows from its ending, or from its first lines if it has none.

    column: the name or number of the column, or the key, that holds the addresses. called: the name
    for people, where the file's own says nothing to them.
    """
    path = Path(name)
    if path.is_dir():
        raise Usage(f"{path} is a folder", hint="name the list in it")
    if not path.exists():
        raise missing(path)
    source = _by_form(path, column, called or path.name, sniffed=bool(called))
    try:
        return Begun(source)
    except BaseException:
        source.close()
        raise


def _by_form(path: Path, column: str, called: str, *, sniffed: bool) -> Source:
    form: Form = "any" if sniffed else FORMS.get(ending(path), "any")
    if form == "xlsx":
        return XlsxRows(path, called, column)
    file = TextFile(path, called)
    try:
        if form == "any":
            form = _form_of(file, column)
        if form == "jsonl":
            return JsonLines(file, column)
        if form in ("csv", "tsv"):
            return CsvRows(file, column, "\t" if form == "tsv" else "")
        if column:
            raise Usage(
                f"{called} has no columns: it holds one address a line",
                hint="leave --column away, or give a table the ending .csv or .tsv",
            )
        return Lines(file)
    except BaseException:
        file.close()
        raise


def _form_of(file: TextFile, column: str) -> Form:
    """The form of lines without a name that says it."""
    texts = [line.text for line in file.peek(LOOK) if line.text.strip()]
    first = texts[0].strip() if texts else ""
    if first.startswith(("{", '"http', '["')) or first in ("[", "[]"):
        return "jsonl"
    cells = [cell.strip().strip('"').casefold() for cell in first.split(sniff(texts))]
    if column or any(cell in USUAL for cell in cells):
        return "csv"
    return "lines"


class Begun:
    """A source whose first entry was read already, so that an empty one is refused before any work."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self.unit: Unit = source.unit
        self._source = source
        rest = iter(source)
        first = next(rest, None)
        if first is None:
            raise Usage(f"there is no address in {source.name}", hint="a list has one address a line or row")
        self._entries = chain((first,), rest)

    def __iter__(self) -> Iterator[Entry]:
        return self._entries

    def close(self) -> None:
        self._source.close()
