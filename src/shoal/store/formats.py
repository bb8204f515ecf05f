"""Formats: how records are written, by the ending of a file's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from shoal.errors import Usage
from shoal.store.base import Draft, Ledger, Mark, Sink, Writing
from shoal.store.place import Place


class Format(msgspec.Struct, frozen=True):
    kind: str
    words: str
    live: bool = True  # grows while the run goes on; others are written when it has ended
    needs: str = ""  # a package that must be there
    packed: bool = False

    @property
    def extra(self) -> str:
        """The name of the extra that brings what is needed."""
        return self.kind if self.needs else ""


_JSONL = Format("jsonl", "JSON lines")
_SQLITE = Format("sqlite", "a SQLite database")
FORMATS: dict[str, Format] = {
    ".jsonl": _JSONL,
    ".ndjson": _JSONL,
    ".jsonl.gz": Format("jsonl", "JSON lines, packed", packed=True),
    ".json": Format("json", "one JSON array", live=False),
    ".csv": Format("csv", "a table"),
    ".csv.gz": Format("csv", "a table, packed", packed=True),
    ".tsv": Format("tsv", "a table with tabs"),
    ".parquet": Format("parquet", "typed columns", live=False, needs="pyarrow"),
    ".xlsx": Format("xlsx", "a spreadsheet", live=False),
    ".sqlite": _SQLITE,
    ".sqlite3": _SQLITE,
    ".db": _SQLITE,
}


def ending_of(path: Path) -> str:
    """The ending by which a file's form is known; "" if it is none of ours."""
    name = path.name.lower()
    found = [ending for ending in FORMATS if name.endswith(ending) and len(name) > len(ending)]
    return max(found, key=len, default="")


def check_output(path: Path) -> Format:
    """The form of an output. Refuses what cannot be written, before any work is done for it."""
    if path.is_dir():
        raise Usage(f"{path} is a folder", hint="give the name of a file")
    ending = ending_of(path)
    if not ending:
        known = ", ".join(FORMATS)
        kind = f"as {path.suffix}" if path.suffix else "to a name without an ending"
        raise Usage(f"{path.name}: records cannot be written {kind}", hint=f"a name that ends in {known}")
    form = FORMATS[ending]
    if form.needs:
        require(form.needs, form.extra, f"writing {ending}")
    if not path.parent.is_dir():
        raise Usage(f"{path}: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")
    return form


def require(package: str, extra: str, what: str) -> None:
    """Refuse to begin what needs a package that is not installed."""
    if find_spec(package) is None:
        raise Usage(f"{what} needs {package}, which is not installed", hint=f"pip install 'shoal[{extra}]'")


def open_output(
    form: Format, queue: Ledger, run: int, place: Place, *, fresh: bool, replace: bool, csv_safe: bool
) -> Writing:
    """Begin with an output, or go on with it."""
    if form.kind == "sqlite":
        from shoal.store.database import Database

        return Database(queue, run, place, fresh=fresh, replace=replace)
    mark = place.recover(fresh=fresh, replace=replace, appended=form.live)
    if not form.live:
        from shoal.store.built import Built

        return Built(queue, run, place, _draft(form.kind), mark=mark)
    from shoal.store.appended import Appended

    return Appended(queue, run, place, _sink(form), mark=mark, safe=csv_safe and form.kind != "jsonl")


def _sink(form: Format) -> Callable[[Path, Mark], Sink]:
    if form.kind == "jsonl":
        from shoal.store.jsonl import JsonLines

        return partial(JsonLines, packed=form.packed)
    from shoal.store.csv import CsvFile

    return partial(CsvFile, separator="\t" if form.kind == "tsv" else ",", packed=form.packed)


def _draft(kind: str) -> Callable[[], Draft]:
    if kind == "json":
        from shoal.store.json_array import JsonArray

        return JsonArray
    if kind == "parquet":
        from shoal.store.parquet import Parquet

        return Parquet
    from shoal.store.xlsx import Xlsx

    return Xlsx
