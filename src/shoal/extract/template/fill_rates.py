"""FillRates: how many records have a value in each field, and which fields have suddenly none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from shoal.core.run_counters import is_empty

MIN_RECORDS = 10  # records from which nothing is concluded
MIN_EMPTY_STREAK = 20  # empty ones in a row that may be a sign
_UNLIKELY = 1e-6  # that they are empty by chance


class FieldCount(msgspec.Struct):
    total: int = 0  # records that have the field at all, empty or not
    filled: int = 0
    tail: int = 0  # empty ones since the last that was filled


class FillRates(msgspec.Struct):
    """Counts of one run; records are counted in their order, and parts of a run can be merged in theirs."""

    records: int = 0
    fields: dict[str, FieldCount] = msgspec.field(default_factory=dict)

    def count(self, record: Mapping[str, Any] | bytes) -> None:
        """Take one record into account, as a mapping or as the JSON it is stored as."""
        values = msgspec.json.decode(record) if isinstance(record, bytes) else record
        self.records += 1
        for name, value in values.items():
            known = self.fields.get(name)
            if known is None:
                known = self.fields[name] = FieldCount()
            known.total += 1
            if is_empty(value):
                known.tail += 1
            else:
                known.filled += 1
                known.tail = 0

    def merge(self, later: FillRates) -> None:
        """Add the counts of what came after."""
        self.records += later.records
        for name, more in later.fields.items():
            known = self.fields.setdefault(name, FieldCount())
            known.tail = more.tail if more.filled else known.tail + more.total
            known.total += more.total
            known.filled += more.filled

    def rates(self) -> dict[str, tuple[int, int]]:
        """For each field how many are filled, of how many records."""
        return {name: (one.filled, one.total) for name, one in self.fields.items()}

    def suddenly_empty(self, before: FillRates | None = None) -> list[str]:
        """A sentence for each field that stopped having values, in this run or since the one before."""
        sentences = []
        for name, one in self.fields.items():
            if sentence := _emptied_within(name, one):
                sentences.append(sentence)
            elif before is not None and name in before.fields:
                sentences += _emptied_since(name, one, before.fields[name])
        for name, one in (before.fields if before and self.records >= MIN_RECORDS else {}).items():
            if name not in self.fields and _is_usually_filled(one):
                sentences.append(f"{name} is no longer in any record, last time it was filled in {_percent(one)}")
        return sentences


def _emptied_within(name: str, one: FieldCount) -> str:
    earlier = one.total - one.tail
    if one.tail < MIN_EMPTY_STREAK or earlier < MIN_RECORDS:
        return ""
    rate = one.filled / earlier
    if rate < 0.5 or (1 - rate) ** one.tail > _UNLIKELY:
        return ""
    return (
        f"{name} is empty in the last {one.tail:,} of {one.total:,} records"
        f" (it was filled in {_percent(FieldCount(earlier, one.filled))} before)"
    )


def _emptied_since(name: str, one: FieldCount, before: FieldCount) -> list[str]:
    if one.total < MIN_RECORDS or not _is_usually_filled(before):
        return []
    if one.filled / one.total > before.filled / before.total / 2:
        return []
    return [f"{name} is filled in {_percent(one)} of records, last time {_percent(before)}"]


def _is_usually_filled(one: FieldCount) -> bool:
    return one.total >= MIN_RECORDS and one.filled * 2 >= one.total


def _percent(one: FieldCount) -> str:
    """Whole percents, but neither 0 for some nor 100 for all but a few."""
    percent = round(100 * one.filled / one.total)
    if percent == 100 and one.filled < one.total:
        percent = 99
    return f"{percent or int(one.filled > 0)} %"
