"""Cookie dates: read as leniently as RFC 6265 section 5.1.1 asks, whatever their order and separators."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_tokens = re.compile(r"[^\x09\x20-\x2f\x3b-\x40\x5b-\x60\x7b-\x7e]+").findall
_time = re.compile(r"([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])").match
_day = re.compile(r"([0-9]{1,2})(?![0-9])").match
_year = re.compile(r"([0-9]{2,4})(?![0-9])").match
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MAX_CHARS = 200  # characters; no date is longer


def parse_cookie_date(text: str) -> float | None:
    """Seconds since 1970, None where there is no date in it."""
    time: tuple[int, int, int] | None = None
    day = month = year = None
    for token in _tokens(text[:_MAX_CHARS]):
        if time is None and (found := _time(token)):
            time = int(found[1]), int(found[2]), int(found[3])
        elif day is None and (found := _day(token)):
            day = int(found[1])
        elif month is None and token[:3].lower() in _MONTHS:
            month = _MONTHS.index(token[:3].lower()) + 1
        elif year is None and (found := _year(token)):
            year = int(found[1])
    if time is None or day is None or month is None or year is None:
        return None
    if year < 100:
        year += 1900 if year >= 70 else 2000
    if year < 1601:
        return None
    try:
        return datetime(year, month, day, *time, tzinfo=UTC).timestamp()
    except ValueError:
        return None
