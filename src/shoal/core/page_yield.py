"""PageYield: what a handler took from a page, in a form in which two ways of fetching it can be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from shoal.core.run_counters import is_empty

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder(order="sorted").encode


class PageYield(msgspec.Struct, frozen=True):
    records: Mapping[bytes, int]  # normalised, and how often each was yielded
    links: frozenset[str]  # canonical

    @property
    def record_count(self) -> int:
        return sum(self.records.values())


def page_yield(records: Iterable[bytes], links: Iterable[str]) -> PageYield:
    """records: as JSON. Order, space and fields without a value do not count."""
    return PageYield(Counter(map(_normalised, records)), frozenset(links))


def covers(one: PageYield, other: PageYield) -> bool:
    """Whether one has all that the other has."""
    has_records = all(one.records.get(record, 0) >= number for record, number in other.records.items())
    return has_records and one.links >= other.links


def filled_share(records: Sequence[bytes]) -> float:
    """The share of their fields that have a value; 1 where there are none. records: as JSON without spaces."""
    # Of most pages every field has a value, and what has none of these has no empty value.
    if not any(b"null" in one or b'""' in one or b"[]" in one or b"{}" in one for one in records):
        return 1.0
    values = [value for record in records for value in _decode(record).values()]
    return sum(not is_empty(value) for value in values) / len(values) if values else 1.0


def difference(http: PageYield, browser: PageYield) -> str:
    """For people: what HTTP lacks."""
    lacking = Counter(browser.records)
    lacking.subtract(Counter(http.records))
    records, links = sum(number for number in lacking.values() if number > 0), len(browser.links - http.links)
    parts = [f"{records:,} of {browser.record_count:,} records"] if records else []
    if links:
        parts.append(f"{links:,} of {len(browser.links):,} links")
    return " and ".join(parts)


def _normalised(record: bytes) -> bytes:
    return _encode(_plain(_decode(record)))


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if not is_empty(one)}
    return value
