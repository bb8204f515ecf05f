"""Fill: how many records have a value in each field, and which fields have suddenly none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

FEW = 10  # records from which nothing is concluded
RUN = 20  # empty ones in a row that may be a sign
_UNLIKELY = 1e-6  # that they are empty by chance


class Count(msgspec.Struct):
    total: int = 0  # records that have the field at all, empty or not
    filled: int = 0
    tail: int = 0  # empty ones since the last that was filled


class Fill(msgspec.Struct):
    """Counts of one run; records are counted in their order, and parts of a run can be merged in theirs."""

    records: int = 0
    fields: dict[str, Count] = msgspec.field(default_factory=dict)

    def count(self, record: Mapping[str, Any] | bytes) -> None:
        """Take one record into account, as a mapping or as the JSON it is stored as."""
        values = msgspec.json.decode(record) if isinstance(record, bytes) else record
        self.records += 1
        for name, value in values.items():
            known = self.fields.get(name)
            if known is None:
                known = self.fields[name] = Count()
            known.total += 1
            if _is_empty(value):
                known.tail += 1
            else:
                known.filled += 1
                known.tail = 0

    def merge(self, later: Fill) -> None:
        """Add the counts of what came after."""
        self.records += later.records
        for name, more in later.fields.items():
            known = self.fields.setdefault(name, Count())
            known.tail = more.tail if more.filled else known.tail + more.total
            known.total += more.total
            known.filled += more.filled

    def rates(self) -> dict[str, tuple[int, int]]:
        """For each field how many are filled, of how many records."""
        return {name: (one.filled, one.total) for name, one in self.fields.items()}

    def suddenly_empty(self, before: Fill | None = None) -> list[str]:
        """A sentence for each field that stopped having values, in this run or since the one before."""
        said = []
        for name, one in self.fields.items():
            if sentence := _within(name, one):
                said.append(sentence)
            elif before is not None and name in before.fields:
                said += _since(name, one, before.fields[name])
        for name, one in (before.fields if before and self.records >= FEW else {}).items():
            if name not in self.fields and _usually(one):
                said.append(f"{name} is in no record any more, last time it was filled in {_percent(one)}")
        return said


def _is_empty(value: Any) -> bool:
    if value is None or value == "":
        return True
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return isinstance(value, list) and all(map(_is_empty, value))


def _within(name: str, one: Count) -> str:
    earlier = one.total - one.tail
    if one.tail < RUN or earlier < FEW:
        return ""
    rate = one.filled / earlier
    if rate < 0.5 or (1 - rate) ** one.tail > _UNLIKELY:
        return ""
    return (
        f"{name} is empty in the last {one.tail:,} of {one.total:,} records"
        f" (it was filled in {_percent(Count(earlier, one.filled))} before)"
    )


def _since(name: str, one: Count, before: Count) -> list[str]:
    if one.total < FEW or not _usually(before):
        return []
    if one.filled / one.total > before.filled / before.total / 2:
        return []
    return [f"{name} is filled in {_percent(one)} of records, last time {_percent(before)}"]


def _usually(one: Count) -> bool:
    return one.total >= FEW and one.filled * 2 >= one.total


def _percent(one: Count) -> str:
    """Whole percents, but neither 0 for some nor 100 for all but a few."""
    percent = round(100 * one.filled / one.total)
    if percent == 100 and one.filled < one.total:
        percent = 99
    return f"{percent or int(one.filled > 0)} %"
