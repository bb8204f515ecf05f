"""Closing: what is written and counted when nobody works on a run any more."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import msgspec

from shoal.config import Settings
from shoal.control.report import failed_words
from shoal.core.run import Run
from shoal.extract.template import Fill
from shoal.queue.base import DeadGroup, Queue
from shoal.store.beside import names, write_failed
from shoal.store.export import Exporter

FILL = "fill"  # the kind under which the queue keeps what was filled in a template's last run
SLICE = 1000
SHOWN = 3

File = tuple[str, int, str]  # name, rows, what is in it


class Closing(msgspec.Struct, frozen=True):
    files: tuple[File, ...] = ()
    fill: tuple[tuple[str, int, int], ...] = ()
    warnings: tuple[str, ...] = ()


async def write_files(
    queue: Queue, run: Run, exporter: Exporter, settings: Settings, dead: tuple[DeadGroup, ...]
) -> list[File]:
    """The output and, beside it, what failed."""
    await exporter.finish()
    failed, _ = names(exporter.path)
    files = [(str(exporter.path), exporter.rows, ", ".join(exporter.columns))]
    if count := await write_failed(queue, run, failed, csv_safe=settings.csv_safe):
        files.append((str(failed), count, failed_words(dead)))
    return files


def rejected_file(run: Run, output: str, settings: Settings) -> Path:
    """Where the lines of a list go that lead to no request."""
    if output:
        return names(output)[1]
    return settings.state_folder / "inputs" / f"{run.name}.rejected.csv"


async def filled(queue: Queue, run: Run, names: Collection[str], *, final: bool) -> Closing:
    """How many records have each of these fields, against the last run of that name; kept for the next."""
    fill, after = Fill(), 0
    while slice_ := await queue.records(run.id, after=after, limit=SLICE):
        for record in slice_:
            fill.count(record.data)
        after = slice_[-1].seq
    known = await queue.paper(FILL, run.scraper)
    before = msgspec.json.decode(known.text, type=Kept) if known else None
    if before is not None and before.run == run.name:
        before = None  # it ended before, and is only looked at again
    elif final and fill.records:
        kept = Kept(run.name, fill)
        await queue.keep_paper(FILL, run.scraper, msgspec.json.encode(kept).decode())
    rates = tuple((name, filled, total) for name, (filled, total) in fill.rates().items() if name in names)
    return Closing(fill=rates, warnings=tuple(fill.suddenly_empty(_same(before, names))))


def _same(before: Kept | None, names: Collection[str]) -> Fill | None:
    """The last run's counts, of the fields that are asked for this time as well."""
    if before is None:
        return None
    fields = {name: count for name, count in before.fill.fields.items() if name in names}
    return Fill(before.fill.records, fields)


class Kept(msgspec.Struct, frozen=True):
    run: str
    fill: Fill
