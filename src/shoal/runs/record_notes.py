"""Record notes: what is odd about the records of a run: fields that were never filled, records that were dropped."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from shoal.core.run_counters import UNIQUE_YIELDED, FieldFill, field_fill
from shoal.core.stats import Stats
from shoal.extract.scraper import Scraper

MAX_NOTES = 5


def never_filled(counters: Mapping[str, int]) -> list[str]:
    """The fields that no record of a run has a value of."""
    return [name for name, fill in field_fill(counters).items() if _is_never_filled(fill)]


def is_nothing_filled(counters: Mapping[str, int]) -> bool:
    """Whether there are records, and nothing is in any of them, but for the URL that every page has."""
    fields = {name: fill for name, fill in field_fill(counters).items() if name != "url"}
    return bool(fields) and all(map(_is_never_filled, fields.values()))


def _is_never_filled(fill: FieldFill) -> bool:
    return fill.total > 0 and not fill.filled


def empty_field_notes(counters: Mapping[str, int], scraper: Scraper, shell: str = "shoal shell URL") -> list[str]:
    """Which fields were never filled, in which handler, and what to try; shell: the command for one of the pages."""
    names, fill = never_filled(counters), field_fill(counters)
    notes = []
    for name in names[:MAX_NOTES]:
        place = _place_of(name, scraper)
        number = fill[name].total
        records = "in the only record" if number == 1 else f"in all {number:,} records"
        notes.append(f"{name} is empty {records}{f': {place}' if place else ''}")
    if len(names) > MAX_NOTES:
        notes.append(f"and {len(names) - MAX_NOTES:,} more fields were never filled")
    if names:
        notes.append(f"try its selector on a page: {shell}")
    return notes


def dropped_note(counters: Mapping[str, int], stats: Stats, unique: Sequence[str]) -> str:
    """How many records were dropped because others had the same key; empty if none were."""
    dropped = counters.get(UNIQUE_YIELDED, 0) - stats.records
    if dropped <= 0:
        return ""
    records = "1 record was" if dropped == 1 else f"{dropped:,} records were"
    return f"{records} dropped: others had the same {', '.join(unique)} (--unique)"


def _place_of(field: str, scraper: Scraper) -> str:
    """The handler that names a field, with file and line; empty where no code does."""
    for func in _functions(scraper):
        try:
            lines, first = inspect.getsourcelines(func)
            file = inspect.getsourcefile(func) or ""
        except (OSError, TypeError):
            continue
        for number, line in enumerate(lines, first):
            if f'"{field}"' in line or f"'{field}'" in line or f"{field}=" in line.replace(" ", ""):
                return f"{getattr(func, '__name__', 'a handler')}, {os.path.relpath(file)}:{number}"
    return ""


def _functions(scraper: Scraper) -> Iterator[Callable[..., Any]]:
    yield from (handler.func for handler in scraper.handlers)
    yield from scraper.named_handlers.values()
