"""Columns: which column of a table holds the addresses, and what the others are called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from shoal.errors import Usage
from shoal.sources.address import is_bare, is_full
from shoal.sources.base import Entry

USUAL = ("url", "urls", "link", "links", "href", "address", "uri", "website", "web", "homepage", "page")


class Columns(msgspec.Struct, frozen=True):
    at: int  # the column of the addresses, from 0
    names: tuple[str, ...]
    header: bool  # whether the first row holds names

    @property
    def name(self) -> str:
        return self.names[self.at] if self.header else str(self.at + 1)

    def entry(self, line: int, row: Sequence[Any]) -> Entry | None:
        """The entry of a row, None for an empty one."""
        text = str(row[self.at]).strip() if self.at < len(row) else ""
        extra = {
            self.names[at] if at < len(self.names) else f"column {at + 1}": value
            for at, value in enumerate(row)
            if at != self.at and value != ""
        }
        if not text and not extra:
            return None
        return Entry(line, text, extra or None, "" if text else f"nothing in column {self.name}")


def columns_of(rows: Sequence[Sequence[str]], wanted: str, source: str) -> Columns:
    """Judge by the first rows; `wanted` is a name or a number (from 1), "" to find it out."""
    if not rows:
        raise Usage(f"{source} is empty", hint="a list has one address a line or row")
    first = [str(cell).strip() for cell in rows[0]]
    folded = [cell.casefold() for cell in first]
    by_name = wanted.strip().casefold()
    header = by_name in folded or not set(folded).isdisjoint(USUAL) or _names_only(first, rows[1:])
    names = _names(first) if header else tuple(f"column {n}" for n in range(1, len(first) + 1))
    if by_name:
        return Columns(_wanted(by_name, folded if header else [], len(first), names, source), names, header)
    below = rows[1:] if header else rows
    if header:
        for usual in USUAL:
            if usual in folded:
                return Columns(folded.index(usual), names, header)
    for test in (is_full, is_bare):
        counts = [
            sum(at < len(row) and test(str(row[at])) for row in below)
            for at in range(max((len(row) for row in below), default=0))
        ]
        at = counts.index(max(counts)) if counts else 0
        if counts and counts[at]:
            return Columns(at, names, header)
    if len(first) == 1:  # nothing to choose from: every line is judged by itself
        return Columns(0, ("column 1",), False)
    raise Usage(
        f"no column of {source} holds web addresses; its columns: {', '.join(names)}",
        hint=f"name it: --column {names[0] if ' ' not in names[0] else 1}",
    )


def _names_only(first: Sequence[str], below: Sequence[Sequence[str]]) -> bool:
    """Whether a first row holds names; "product.link" is one if full addresses stand below it."""
    if any(map(is_full, first)):
        return False
    return not any(map(is_bare, first)) or any(is_full(str(cell)) for row in below for cell in row)


def _wanted(wanted: str, folded: list[str], width: int, names: tuple[str, ...], source: str) -> int:
    if wanted in folded:
        return folded.index(wanted)
    if wanted.isdecimal() and 1 <= int(wanted) <= width:
        return int(wanted) - 1
    raise Usage(f"{source} has no column {wanted}", hint=f"its columns: {', '.join(names)}; or a number")


def _names(cells: Sequence[str]) -> tuple[str, ...]:
    names: list[str] = []
    for at, cell in enumerate(cells, 1):
        name = cell or f"column {at}"
        while name in names:
            name = f"{name} ({at})"
        names.append(name)
    return tuple(names)
