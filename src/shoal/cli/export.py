"""shoal export."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from shoal.cli.command import Command
from shoal.cli.options import click_options
from shoal.cli.pick import RUN_HELP, pick, run_argument, with_queue
from shoal.cli.show import count, line
from shoal.config import Settings
from shoal.core.run import Run
from shoal.errors import Usage
from shoal.queue.base import Queue
from shoal.store import csv, jsonl
from shoal.store.export import SLICE, Exporter, check_output

LOOK_EVERY = 0.5


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal export -o books.csv                  the newest run as a table
    shoal export 7KQ2 -o - | jq .title         JSON lines to a pipe
    shoal export books -o books.jsonl --follow go on until the run ends
    """,
)
@run_argument
@click.option("-o", "--output", required=True, metavar="FILE", help="A .jsonl or .csv file, or - for stdout.")
@click.option("--format", "kind", type=click.Choice(["jsonl", "csv"]), help="What goes to stdout. [jsonl]")
@click.option("--follow", is_flag=True, help="Go on until the run ends.")
@click.option("--fresh", is_flag=True, help="Begin anew even if FILE holds something else.")
@click_options("look")
def export(
    settings: Settings, run: str | None, output: str, kind: str | None, follow: bool, fresh: bool
) -> None:
    """Write the records of RUN to a file; give the command again to add what is new."""
    if output != "-":
        check_output(Path(output))
    elif kind == "csv" and follow:
        raise Usage(
            "a table on stdout cannot be followed: its columns must be known first", hint="--format jsonl"
        )

    async def job(queue: Queue) -> None:
        chosen = await pick(queue, run)
        if output == "-":
            await _to_stdout(queue, chosen, kind or "jsonl", follow)
            return
        exporter = Exporter(queue, chosen, output, settings.state_folder, fresh=fresh)
        try:
            added = await exporter.drain()
            while follow and not await _ended(queue, chosen):
                await asyncio.sleep(LOOK_EVERY)
                added += await exporter.drain()
            added += await exporter.drain()
        finally:
            exporter.close()
        line(f"{output}: {count(exporter.rows, 'record')}, {count(added)} of them new.")

    with_queue(settings, job)


async def _ended(queue: Queue, run: Run) -> bool:
    """Whether no record can come any more."""
    stats = await queue.stats(run.id)
    now = await queue.runs(name=run.name, limit=1)
    return not now or (now[0].state in ("finished", "cancelled") and not stats.leased)


async def _to_stdout(queue: Queue, run: Run, kind: str, follow: bool) -> None:
    columns: tuple[str, ...] = ()
    if kind == "csv":
        columns = await _columns(queue, run)
        sys.stdout.buffer.write(csv.header(columns))
    after, ended = 0, False
    while True:
        slice_ = await queue.records(run.id, after=after, limit=SLICE)
        data = [record.data for record in slice_]
        sys.stdout.buffer.write(csv.encode(columns, data) if kind == "csv" else jsonl.encode(data))
        sys.stdout.buffer.flush()
        if slice_:
            after = slice_[-1].seq
            continue
        if ended or not follow:
            return
        ended = await _ended(queue, run)  # records of the last moment are still copied once more
        if not ended:
            await asyncio.sleep(LOOK_EVERY)


async def _columns(queue: Queue, run: Run) -> tuple[str, ...]:
    columns: tuple[str, ...] = ()
    after = 0
    while slice_ := await queue.records(run.id, after=after, limit=SLICE):
        columns += csv.new_columns(columns, [record.data for record in slice_])
        after = slice_[-1].seq
    return columns
