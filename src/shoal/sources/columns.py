"""Columns: which column of a table holds the URLs, and what the others are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.errors import UsageError
from shoal.sources.base import BLANK, NOTHING, UrlEntry
from shoal.sources.url_text import is_absolute_url, is_schemeless_url

URL_COLUMN_NAMES = (
    "url", "urls", "link", "links", "href", "address", "uri", "website", "web", "homepage", "page",
)  # fmt: skip


class Columns(msgspec.Struct, frozen=True):
    url_index: int  # the column with the URLs, from 0
    names: tuple[str, ...]
    has_header: bool  # whether the first row holds names

    @property
    def name(self) -> str:
        return self.names[self.url_index] if self.has_header else str(self.url_index + 1)

    @property
    def others(self) -> tuple[str, ...]:
        return self.names[: self.url_index] + self.names[self.url_index + 1 :]

    def entry(self, line: int, row: Sequence[Any]) -> UrlEntry:
        text = str(row[self.url_index]).strip() if self.url_index < len(row) else ""
        extra = {
            self.names[at] if at < len(self.names) else f"column {at + 1}": value
            for at, value in enumerate(row)
            if at != self.url_index and value != ""
        }
        if not text and not extra:
            return UrlEntry(line, "", problem=BLANK)
        return UrlEntry(line, text, extra or None, "" if text else f"{NOTHING}in column {self.name}")


def detect_columns(rows: Sequence[Sequence[str]], requested: str, source: str) -> Columns:
    """Judge by the first rows; `requested` is a name or a number (from 1), "" to find it out."""
    if not rows:
        raise UsageError(f"{source} is empty", hint="a list has one URL per line or row")
    first = [str(cell).strip() for cell in rows[0]]
    folded = [cell.casefold() for cell in first]
    by_name = requested.strip().casefold()
    has_header = by_name in folded or not set(folded).isdisjoint(URL_COLUMN_NAMES) or _is_header(first, rows[1:])
    names = _unique_names(first) if has_header else tuple(f"column {n}" for n in range(1, len(first) + 1))
    if by_name:
        return Columns(
            _requested_column(by_name, folded if has_header else [], len(first), names, source), names, has_header
        )
    if has_header:
        for candidate in URL_COLUMN_NAMES:
            if candidate in folded:
                return Columns(folded.index(candidate), names, has_header)
    if (at := _column_with_most_urls(rows[1:] if has_header else rows)) is not None:
        return Columns(at, names, has_header)
    if len(first) == 1:  # nothing to choose from: every line is judged by itself
        return Columns(0, ("column 1",), False)
    raise UsageError(
        f"no column of {source} contains URLs; its columns: {', '.join(names)}",
        hint=f"name it: --column {names[0] if ' ' not in names[0] else 1}",
    )


def _column_with_most_urls(rows: Sequence[Sequence[str]]) -> int | None:
    for test in (is_absolute_url, is_schemeless_url):
        counts = Counter(at for row in rows for at, cell in enumerate(row) if test(str(cell)))
        if counts:
            return min(counts, key=lambda at: (-counts[at], at))
    return None


def _is_header(first: Sequence[str], body_rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first row holds names; "product.link" is one if absolute URLs stand below it."""
    if any(map(is_absolute_url, first)):
        return False
    return not any(map(is_schemeless_url, first)) or any(
        is_absolute_url(str(cell)) for row in body_rows for cell in row
    )


def _requested_column(requested: str, folded: list[str], width: int, names: tuple[str, ...], source: str) -> int:
    if requested in folded:
        return folded.index(requested)
    if requested.isdecimal() and 1 <= int(requested) <= width:
        return int(requested) - 1
    raise UsageError(f"{source} has no column {requested}", hint=f"its columns: {', '.join(names)}; or a number")


def _unique_names(cells: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    for at, cell in enumerate(cells, 1):
        name = cell or f"column {at}"
        while name in names:
            name = f"{name} ({at})"
        names.append(name)
    return tuple(names)
