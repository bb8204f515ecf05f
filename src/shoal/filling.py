"""Filling: how many records have each field, told at the end of a run and compared with the one before."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from shoal.core.run import Run
from shoal.extract.template import Fill
from shoal.queue.base import Queue
from shoal.store.base import Ledger

FILL = "fill"  # the kind under which the queue keeps what was filled in a template's last run
SLICE = 1000

Rates = tuple[tuple[str, int, int], ...]  # field, records that have it, records


async def filled(
    queue: Queue, records: Ledger, run: Run, names: Collection[str], *, final: bool
) -> tuple[Rates, tuple[str, ...]]:
    """How many records have each of these fields, against the last run of that name; kept for the next."""
    fill, after = Fill(), 0
    while slice_ := await records.records(run.id, after=after, limit=SLICE):
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
    return rates, tuple(fill.suddenly_empty(_same(before, names)))


def _same(before: Kept | None, names: Collection[str]) -> Fill | None:
    """The last run's counts, of the fields that are asked for this time as well."""
    if before is None:
        return None
    fields = {name: count for name, count in before.fill.fields.items() if name in names}
    return Fill(before.fill.records, fields)


class Kept(msgspec.Struct, frozen=True):
    run: str
    fill: Fill
