"""shoal export."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from shoal.cli.command import Command
from shoal.cli.console import StatusLine, clean, count, print_line
from shoal.cli.find_run import RUN_HELP, display_state, find_run, run_argument, with_queue
from shoal.cli.options import click_options
from shoal.config.load import Settings
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.runs.outputs import RunOutputs
from shoal.runs.spec import list_columns
from shoal.store.base import RecordReader
from shoal.store.export import FORMATS, Exporter, check_output
from shoal.store.formats import require_package
from shoal.store.ordered_records import OrderedRecords
from shoal.store.sidecars import sidecar_paths, write_failed
from shoal.store.stream_exporter import STREAM_KINDS, StreamExporter
from shoal.view.formatting import relative_path

SHOWN_FILES = 5  # of an output that is split
POLL_INTERVAL = 0.5
INTERRUPTED = 4
_FORMAT_BY_KIND = {
    output_format.kind: output_format for output_format in FORMATS.values() if not output_format.is_compressed
}


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal export -o books.csv                   the newest run as a table
    shoal export k3f -o books.parquet           typed columns
    shoal export k3f -o - | jq .title           JSON lines to a pipe
    shoal export books -o books.jsonl --follow  follow it until the run ends
    """,
)
@run_argument
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="A .jsonl, .json, .csv, .tsv, .parquet, .xlsx or .sqlite file, or - for stdout.",
)
@click.option("--format", "kind", type=click.Choice(list(_FORMAT_BY_KIND)), help="What goes to stdout. [jsonl]")
@click.option("--follow", is_flag=True, help="Keep writing until the run ends.")
@click.option("--failed", is_flag=True, help="Also write the pages that failed, to FILE's name.failed.csv.")
@click.option("--fresh", is_flag=True, help="Overwrite FILE even if it holds something else.")
@click.option("--csv-safe/--no-csv-safe", "csv_safe", default=None, help="Neutralise formulas for spreadsheets.")
@click.option("--csv-bom/--no-csv-bom", "csv_bom", default=None, help="Begin CSV with a byte order mark, for Excel.")
@click.option("--in-order/--no-in-order", "in_order", default=None, help="Records in the order of the run's list.")
@click_options("look")
def export(
    settings: Settings,
    run: str | None,
    output: str,
    kind: str | None,
    follow: bool,
    failed: bool,
    fresh: bool,
    csv_safe: bool | None,
    csv_bom: bool | None,
    in_order: bool | None,
) -> int:
    """Write the records of RUN to a file; run it again to add new ones.

    Exit status: 0 complete, 4 --follow was interrupted; run it again to resume.
    """
    piped = output == "-"
    given: dict[str, Any] = {"csv_safe": csv_safe, "csv_bom": csv_bom, "in_order": in_order}
    settings = replace(settings, **{name: value for name, value in given.items() if value is not None})
    _check(output, kind, follow, failed, settings)

    async def job(queue: Queue) -> None:
        async with await RunOutputs.open(queue, settings) as outputs:
            await export_from(queue, outputs.records, outputs.restored)

    async def export_from(queue: Queue, records: RecordReader, restored: str) -> None:
        chosen = await find_run(queue, run)
        if piped and kind not in (None, *STREAM_KINDS):
            await _export_to_pipe(records, chosen, kind or "", settings)
            return
        async with contextlib.AsyncExitStack() as stack:
            if piped and settings.in_order:
                records = await stack.enter_async_context(_in_order(records, chosen))
            out = _open_output(records, chosen, output, kind, settings, fresh, restored)
            stack.callback(out.close)
            added = await _copy(queue, chosen, out, settings, follow=follow)
        if isinstance(out, Exporter):
            shown = output if len(out.files) == 1 and out.files[0][0] == out.path else _split_files(out)
            print_line(f"{shown}: {count(out.rows, 'record')}, {count(added)} of them new.")
            for note in out.notes:
                print_line(f"  {note}")
            if failed:
                await _write_failed(queue, chosen, output, settings)

    try:
        with_queue(settings, job)
    except KeyboardInterrupt:
        if not follow:
            raise
        again = "" if piped else "; run it again to resume"
        print_line(f"Stopped. What was written is complete{again}.", sys.stderr)
        return INTERRUPTED
    return 0


def _split_files(out: Exporter) -> str:
    """The files that an output was split into, by name; of many, the first."""
    names = [relative_path(str(path)) for path, _, _ in out.files]
    if not names:
        return f"no file of the form {out.path.name}"
    more = f" and {count(len(names) - SHOWN_FILES, 'more file')}" if len(names) > SHOWN_FILES else ""
    return f"{', '.join(names[:SHOWN_FILES])}{more}"


def _open_output(
    records: RecordReader, run: Run, output: str, kind: str | None, settings: Settings, fresh: bool, restored: str
) -> StreamExporter | Exporter:
    safe, bom = settings.csv_safe, settings.csv_bom
    if output == "-":
        return StreamExporter(records, run, kind or "jsonl", _emit, csv_safe=safe, csv_bom=bom)
    folder, ordered = settings.state_folder, settings.in_order
    return Exporter(
        records, run, output, folder, fresh=fresh, csv_safe=safe, csv_bom=bom, in_order=ordered, restored=restored
    )


@contextlib.asynccontextmanager
async def _in_order(records: RecordReader, run: Run) -> AsyncIterator[RecordReader]:
    """The same records in the order of a list, as long as they are needed."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        ordered = OrderedRecords(records, run.id, Path(folder, "records.order"))
        try:
            await ordered.refill()
            yield ordered
        finally:
            ordered.close()


def _check(output: str, kind: str | None, follow: bool, failed: bool, settings: Settings) -> None:
    """Refuse what cannot be done, before anything is read."""
    if follow and settings.in_order:
        raise UsageError(
            "the order of the list is known when the run has ended, not during it",
            hint="leave --follow or --in-order out",
        )
    if output != "-":
        output_format = check_output(Path(output).absolute())
        if kind is not None:
            raise UsageError("--format is for stdout; a file's format comes from its name", hint="leave --format out")
    else:
        output_format = _FORMAT_BY_KIND[kind or "jsonl"]
        if output_format.package:
            require_package(output_format.package, output_format.extra, f"--format {kind}")
        if failed:
            raise UsageError("--failed needs an output file", hint="-o pages.csv --failed")
        if kind not in (None, *STREAM_KINDS) and sys.stdout.isatty():
            raise UsageError(f"{output_format.description} cannot go to a terminal", hint=f"-o out.{kind}")
    if follow and (not output_format.is_incremental or (output == "-" and kind not in (None, *STREAM_KINDS))):
        live = ", ".join(ending for ending, output_format in FORMATS.items() if output_format.is_incremental)
        raise UsageError(
            f"{output_format.description} cannot grow during the run: it is written as a whole",
            hint=f"leave --follow out, or use one of {live}",
        )


async def _copy(queue: Queue, run: Run, out: StreamExporter | Exporter, settings: Settings, *, follow: bool) -> int:
    added = 0
    watch = FollowDisplay()
    while follow and not await _ended(queue, run):
        added += await out.drain()
        watch.show(run, out, gone=await display_state(queue, settings, run) in ("stopped", "waiting"))
        await asyncio.sleep(POLL_INTERVAL)
    watch.clear()
    added += await out.finish()
    watch.warn(out)
    return added


async def _ended(queue: Queue, run: Run) -> bool:
    """Whether no record can come any more."""
    stats = await queue.stats(run.id)
    now = await queue.runs(name=run.name, limit=1)
    return not now or (now[0].state in ("finished", "cancelled") and not stats.leased)


async def _export_to_pipe(records: RecordReader, run: Run, kind: str, settings: Settings) -> None:
    """A file that needs its end before its beginning: made elsewhere, then sent down the pipe."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        place = Path(folder, f"records.{kind}")
        exporter = Exporter(records, run, place, Path(folder), in_order=settings.in_order)
        try:
            await exporter.finish()
        finally:
            exporter.close()
        _send(place)


async def _write_failed(queue: Queue, run: Run, output: str, settings: Settings) -> None:
    path, _ = sidecar_paths(output)
    columns, safe, bom = list_columns(run), settings.csv_safe, settings.csv_bom
    number = await write_failed(queue, run, path, csv_safe=safe, csv_bom=bom, columns=columns)
    print_line(f"{path}: {count(number, 'page')}." if number else "No page failed.")


def _send(place: Path) -> None:
    with place.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _emit(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class FollowDisplay(StatusLine):
    """What people see of --follow: one line on a terminal, and a word when something is amiss."""

    def __init__(self) -> None:
        super().__init__()
        self._left = False
        self._warned = 0

    def show(self, run: Run, out: StreamExporter | Exporter, *, gone: bool) -> None:
        self.warn(out)
        if gone and not self._left:
            self.clear()
            print_line(f"No worker serves run {run.name} right now; waiting. Ctrl-C stops.", sys.stderr)
        self._left = gone
        if self.on_terminal:
            self.draw(f"{count(out.rows, 'record')} so far")

    def warn(self, out: StreamExporter | Exporter) -> None:
        late = out.late_columns[self._warned :] if isinstance(out, StreamExporter) else ()
        for name in late:
            self.clear()
            print_line(
                f"Column {clean(name)} came after the first row and is not in this table;"
                " a file would have it, and so would --format jsonl.",
                sys.stderr,
            )
        self._warned += len(late)
