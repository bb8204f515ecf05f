"""Formats: how records are written, by the ending of a file's name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec

from shoal.errors import UsageError
from shoal.store.base import AppendFormat, Checkpoint, OutputWriter, RecordReader, RewriteFormat
from shoal.store.output_state import OutputState
from shoal.store.split_writer import split_field
from shoal.version import install_hint


class OutputFormat(msgspec.Struct, frozen=True):
    kind: str
    description: str
    is_incremental: bool = True  # grows while the run goes on; others are written when it has ended
    package: str = ""  # a package that must be there
    is_compressed: bool = False

    @property
    def extra(self) -> str:
        """The name of the extra that brings what is needed."""
        return self.kind if self.package else ""


_JSONL = OutputFormat("jsonl", "JSON lines")
_SQLITE = OutputFormat("sqlite", "a SQLite database")
FORMATS: dict[str, OutputFormat] = {
    ".jsonl": _JSONL,
    ".ndjson": _JSONL,
    ".jsonl.gz": OutputFormat("jsonl", "JSON lines, packed", is_compressed=True),
    ".json": OutputFormat("json", "one JSON array", is_incremental=False),
    ".csv": OutputFormat("csv", "a table"),
    ".csv.gz": OutputFormat("csv", "a table, packed", is_compressed=True),
    ".tsv": OutputFormat("tsv", "a table with tabs"),
    ".parquet": OutputFormat("parquet", "typed columns", is_incremental=False, package="pyarrow"),
    ".xlsx": OutputFormat("xlsx", "a spreadsheet", is_incremental=False),
    ".sqlite": _SQLITE,
    ".sqlite3": _SQLITE,
    ".db": _SQLITE,
}


def output_suffix(path: Path) -> str:
    """The ending by which a file's form is known; "" if it is none of ours."""
    name = path.name.lower()
    found = [suffix for suffix in FORMATS if name.endswith(suffix) and len(name) > len(suffix)]
    return max(found, key=len, default="")


def check_output(path: Path) -> OutputFormat:
    """The form of an output. Refuses what cannot be written, before any work is done for it."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder", hint="give the name of a file")
    suffix = output_suffix(path)
    if not suffix:
        known = ", ".join(FORMATS)
        kind = f"as {path.suffix}" if path.suffix else "to a name without an extension"
        raise UsageError(f"{path.name}: records cannot be written {kind}", hint=f"a name that ends in {known}")
    output_format = FORMATS[suffix]
    if output_format.package:
        require_package(output_format.package, output_format.extra, f"writing {suffix}")
    split_field(path)
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")
    return output_format


def require_package(package: str, extra: str, what: str) -> None:
    """Refuse to begin what needs a package that is not installed."""
    if find_spec(package) is None:
        raise UsageError(f"{what} needs {package}, which is not installed", hint=install_hint(extra))


def open_output(
    output_format: OutputFormat,
    queue: RecordReader,
    run: int,
    state: OutputState,
    *,
    fresh: bool,
    replace: bool,
    form: Checkpoint,
    columns: tuple[str, ...] = (),
) -> OutputWriter:
    """Begin with an output, or go on with it. form: how its rows are written, as far as its kind knows that."""
    if output_format.kind == "sqlite":
        if form.in_order:
            raise UsageError(
                "rows of a database have no order of their own",
                hint="leave --in-order out; with -f line=@line they can be sorted: ORDER BY line",
            )
        from shoal.store.sqlite_writer import SqliteWriter

        return SqliteWriter(queue, run, state, fresh=fresh, replace=replace, header=columns)
    is_text_table = output_format.kind in ("csv", "tsv")
    form = Checkpoint(safe=form.safe and is_text_table, bom=form.bom and is_text_table, in_order=form.in_order)
    checkpoint = state.recover(
        fresh=fresh, replace=replace, incremental=output_format.is_incremental and not form.in_order
    )
    make_whole = _whole_format(output_format, form)
    if form.in_order:
        from shoal.store.ordered_writer import OrderedWriter

        return OrderedWriter(queue, run, state, make_whole, checkpoint=checkpoint, form=form)
    if not output_format.is_incremental:
        from shoal.store.rewrite_writer import RewriteWriter

        return RewriteWriter(queue, run, state, make_whole, checkpoint=checkpoint, header=columns)
    from shoal.store.append_writer import AppendWriter

    header = columns if output_format.kind != "jsonl" else ()
    make_format = _append_format(output_format)
    return AppendWriter(queue, run, state, make_format, checkpoint=checkpoint, form=form, header=header)


def _whole_format(output_format: OutputFormat, form: Checkpoint) -> Callable[[], RewriteFormat]:
    if not output_format.is_incremental:
        return _rewrite_format(output_format.kind)
    from shoal.store.whole_file import WholeFile

    make_format, is_table = _append_format(output_format), output_format.kind != "jsonl"
    return lambda: WholeFile(make_format, form, has_columns=is_table)


def _append_format(output_format: OutputFormat) -> Callable[[Path, Checkpoint], AppendFormat]:
    if output_format.kind == "jsonl":
        from shoal.store.jsonl import JsonlFile

        return partial(JsonlFile, is_compressed=output_format.is_compressed)
    from shoal.store.csv import CsvFile

    return partial(
        CsvFile, separator="\t" if output_format.kind == "tsv" else ",", is_compressed=output_format.is_compressed
    )


def _rewrite_format(kind: str) -> Callable[[], RewriteFormat]:
    if kind == "json":
        from shoal.store.json_array import JsonArrayFile

        return JsonArrayFile
    if kind == "parquet":
        from shoal.store.parquet import ParquetFile

        return ParquetFile
    from shoal.store.xlsx import XlsxFile

    return XlsxFile
