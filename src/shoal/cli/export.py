"""shoal export."""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options
from shoal.cli.pick import RUN_HELP, pick, run_argument, standing, with_queue
from shoal.cli.show import clean, count, line
from shoal.config import Settings
from shoal.core.run import Run
from shoal.errors import Usage
from shoal.outlet import Outlet
from shoal.queue.base import Queue
from shoal.store.base import Ledger
from shoal.store.beside import names, write_failed
from shoal.store.export import FORMATS, Exporter, check_output
from shoal.store.formats import require
from shoal.store.pipe import KINDS, Pipe

LOOK_EVERY = 0.5
INTERRUPTED = 4
_BY_KIND = {form.kind: form for form in FORMATS.values() if not form.packed}


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal export -o books.csv                   the newest run as a table
    shoal export k3f -o books.parquet           typed columns
    shoal export k3f -o - | jq .title           JSON lines to a pipe
    shoal export books -o books.jsonl --follow  go on until the run ends
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
@click.option("--format", "kind", type=click.Choice(list(_BY_KIND)), help="What goes to stdout. [jsonl]")
@click.option("--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--failed", is_flag=True, help="Also write the pages that failed, to FILE's name.failed.csv.")
@click.option("--fresh", is_flag=True, help="Begin anew even if FILE holds something else.")
@click.option(
    "--csv-safe/--no-csv-safe", "csv_safe", default=None, help="Keep spreadsheets from running cells."
)
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
) -> int:
    """Write the records of RUN to a file; give the command again to add what is new.

    Exit status: 0 complete, 4 --follow was interrupted and the same command goes on.
    """
    piped = output == "-"
    _check(output, kind, follow, failed)
    safe = settings.csv_safe if csv_safe is None else csv_safe

    async def job(queue: Queue) -> None:
        outlet = await Outlet.open(queue, settings)
        try:
            await export_from(queue, outlet.records)
        finally:
            await outlet.close()

    async def export_from(queue: Queue, records: Ledger) -> None:
        chosen = await pick(queue, run)
        if piped and kind not in (None, *KINDS):
            await _whole(records, chosen, kind or "")
            return
        out: Pipe | Exporter
        if piped:
            out = Pipe(records, chosen, kind or "jsonl", _emit, csv_safe=safe)
        else:
            out = Exporter(records, chosen, output, settings.state_folder, fresh=fresh, csv_safe=safe)
        try:
            added = await _copy(queue, chosen, out, settings, follow=follow)
        finally:
            out.close()
        if isinstance(out, Exporter):
            line(f"{output}: {count(out.rows, 'record')}, {count(added)} of them new.")
            for note in out.notes:
                line(f"  {note}")
            if failed:
                await _failed(queue, chosen, output, safe)

    try:
        with_queue(settings, job)
    except KeyboardInterrupt:
        if not follow:
            raise
        again = "" if piped else "; the same command goes on"
        line(f"Stopped. What was copied is whole{again}.", sys.stderr)
        return INTERRUPTED
    return 0


def _check(output: str, kind: str | None, follow: bool, failed: bool) -> None:
    """Refuse what cannot be done, before anything is read."""
    if output != "-":
        form = check_output(Path(output).absolute())
        if kind is not None:
            raise Usage("--format is for stdout: a file's form is in its name", hint="leave --format out")
    else:
        form = _BY_KIND[kind or "jsonl"]
        if form.needs:
            require(form.needs, form.extra, f"--format {kind}")
        if failed:
            raise Usage("--failed needs a file to stand beside", hint="-o pages.csv --failed")
        if kind not in (None, *KINDS) and sys.stdout.isatty():
            raise Usage(f"{form.words} is nothing for a terminal", hint=f"-o out.{kind}")
    if follow and (not form.live or (output == "-" and kind not in (None, *KINDS))):
        live = ", ".join(ending for ending, form in FORMATS.items() if form.live)
        raise Usage(
            f"{form.words} cannot grow while the run goes on: it is written as a whole",
            hint=f"leave --follow out, or use one of {live}",
        )


async def _copy(queue: Queue, run: Run, out: Pipe | Exporter, settings: Settings, *, follow: bool) -> int:
    added = 0
    watch = Watch()
    while follow and not await _ended(queue, run):
        added += await out.drain()
        watch.show(run, out, gone=await standing(queue, settings, run) in ("stopped", "waiting"))
        await asyncio.sleep(LOOK_EVERY)
    watch.clear()
    added += await out.finish()
    watch.warn(out)
    return added


async def _ended(queue: Queue, run: Run) -> bool:
    """Whether no record can come any more."""
    stats = await queue.stats(run.id)
    now = await queue.runs(name=run.name, limit=1)
    return not now or (now[0].state in ("finished", "cancelled") and not stats.leased)


async def _whole(records: Ledger, run: Run, kind: str) -> None:
    """A file that needs its end before its beginning: made elsewhere, then sent down the pipe."""
    with tempfile.TemporaryDirectory(prefix="shoal-") as folder:
        place = Path(folder, f"records.{kind}")
        exporter = Exporter(records, run, place, Path(folder))
        try:
            await exporter.finish()
        finally:
            exporter.close()
        _send(place)


async def _failed(queue: Queue, run: Run, output: str, safe: bool) -> None:
    path, _ = names(output)
    number = await write_failed(queue, run, path, csv_safe=safe)
    line(f"{path}: {count(number, 'page')}." if number else "No page failed.")


def _send(place: Path) -> None:
    with place.open("rb") as file:
        shutil.copyfileobj(file, sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _emit(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


class Watch:
    """What people see of --follow: one line on a terminal, and a word when something is amiss."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = 0
        self._left = False
        self._told = 0

    def show(self, run: Run, out: Pipe | Exporter, *, gone: bool) -> None:
        self.warn(out)
        if gone and not self._left:
            self.clear()
            line(f"Nobody works on run {run.name} now; waiting. Ctrl-C stops.", sys.stderr)
        self._left = gone
        if self._terminal:
            text = f"{count(out.rows, 'record')} so far"
            sys.stderr.write("\r" + text.ljust(self._shown))
            sys.stderr.flush()
            self._shown = len(text)

    def warn(self, out: Pipe | Exporter) -> None:
        late = out.late[self._told :] if isinstance(out, Pipe) else ()
        for name in late:
            self.clear()
            line(
                f"Column {clean(name)} came after the first row and is not in this table;"
                " a file would have it, and so would --format jsonl.",
                sys.stderr,
            )
        self._told += len(late)

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r" + " " * self._shown + "\r")
            sys.stderr.flush()
            self._shown = 0
