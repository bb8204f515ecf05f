"""Fill rates: how many records have each field, at the end of a run and compared with the run before."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from shoal.core.run import Run
from shoal.core.run_counters import FIELD_PREFIX, MAX_FIELD_NAME, OTHER, field_fill
from shoal.extract.template import FillRates
from shoal.extract.template.fill_rates import FieldCount
from shoal.queue import document_kinds as kinds
from shoal.queue.base import Document, Queue
from shoal.store.base import RecordReader

SLICE = 1000
LAST_RECORDS = 1000  # that are looked at for fields that went empty

FieldRates = tuple[tuple[str, int, int], ...]  # field, records that have it, records


async def read_fill_rates(
    queue: Queue, records: RecordReader, run: Run, names: Collection[str], *, final: bool
) -> tuple[FieldRates, tuple[str, ...]]:
    """How many records have each of these fields, against the last run of that name; kept for the next."""
    counters = await queue.run_counters(run.id)
    if _is_counted(counters, names):
        fill = await _counted(queue, records, run, counters)
    else:
        fill = await _scanned(records, run, after=0)
    known = await queue.document(kinds.FILL_RATES, run.scraper)
    before = _read_last(known)
    if before is not None and before.run == run.name:
        before = None  # it ended before, and is only looked at again
    elif final and fill.records:
        kept = LastFill(run.name, fill)
        await queue.save_document(kinds.FILL_RATES, run.scraper, msgspec.json.encode(kept).decode())
    rates = tuple((name, filled, total) for name, (filled, total) in fill.rates().items() if name in names)
    return rates, tuple(fill.suddenly_empty(_common_fields(before, names)))


def _is_counted(counters: Mapping[str, int], names: Collection[str]) -> bool:
    """Whether the run had room for the names of all its fields, each as a whole."""
    is_whole = OTHER not in counters and f"{FIELD_PREFIX}{OTHER}" not in counters
    return bool(field_fill(counters)) and is_whole and all(len(name) <= MAX_FIELD_NAME for name in names)


async def _counted(queue: Queue, records: RecordReader, run: Run, counters: Mapping[str, int]) -> FillRates:
    """What outcomes have counted; of the records themselves only the last are looked at, for what went empty."""
    total = (await queue.stats(run.id)).records
    last = await _scanned(records, run, after=max(0, total - LAST_RECORDS))
    fields = {
        name: FieldCount(one.total, one.filled, last.fields[name].tail if name in last.fields else 0)
        for name, one in field_fill(counters).items()
    }
    return FillRates(total, fields)


async def _scanned(records: RecordReader, run: Run, *, after: int) -> FillRates:
    fill = FillRates()
    while slice_ := await records.records(run.id, after=after, limit=SLICE):
        for record in slice_:
            fill.count(record.data)
        after = slice_[-1].seq
    return fill


def _read_last(document: Document | None) -> LastFill | None:
    try:
        return msgspec.json.decode(document.text, type=LastFill) if document else None
    except msgspec.DecodeError:
        return None  # it is written anew


def _common_fields(before: LastFill | None, names: Collection[str]) -> FillRates | None:
    """The last run's counts, of the fields that are asked for this time as well."""
    if before is None:
        return None
    fields = {name: count for name, count in before.fill.fields.items() if name in names}
    return FillRates(before.fill.records, fields)


class LastFill(msgspec.Struct, frozen=True):
    run: str
    fill: FillRates
