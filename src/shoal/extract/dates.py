"""Dates: days and times as people and machines write them, read without guessing."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone
from datetime import datetime as _Moment

MAX_CHARS = 1_000

_MONTHS = (
    "jan january januar janvier enero ene gennaio gen janeiro januari",
    "feb february februar février fevrier févr fevr febrero febbraio fevereiro fev februari",
    "mar march märz maerz mrz mär mars marzo março marco maart mrt",
    "apr april avril avr abril abr aprile",
    "may mai mayo maggio mag maio mei",
    "jun june juni juin junio giugno giu junho",
    "jul july juli juillet juil julio luglio lug julho",
    "aug august août aout agosto ago augustus",
    "sep sept september septembre septiembre settembre set setembro",
    "oct october oktober okt octobre octubre ottobre ott outubro out",
    "nov november novembre noviembre novembro",
    "dec december dezember dez décembre decembre déc diciembre dic dicembre dezembro",
)
_MONTH_NUMBERS = {name: at for at, names in enumerate(_MONTHS, 1) for name in names.split()}

_DAY = r"(?<!\d)(?P<d>\d{1,2})(?:st|nd|rd|th|er)?"
_WORD = r"(?P<name>[^\W\d_]{3,10})\.?"
_YEAR = r"(?P<y>\d{4})(?!\d)"
_FORMS = tuple(
    re.compile(form, re.IGNORECASE).search
    for form in (
        r"(?<!\d)(?P<y>\d{4})([-/.])(?P<m>\d{1,2})\2(?P<d>\d{1,2})(?!\d)",
        r"(?<!\d)(?P<y>\d{4})\s?年\s?(?P<m>\d{1,2})\s?月\s?(?P<d>\d{1,2})\s?日",
        rf"{_DAY}\.?[\s\-/]+(?:de\s+|of\s+)?{_WORD}[\s,\-/]+(?:de\s+)?{_YEAR}",
        rf"(?<![^\W\d_]){_WORD}\s+{_DAY},?\s+{_YEAR}",
        r"(?<![\d.])(?P<d>\d{1,2})\.\s?(?P<m>\d{1,2})\.\s?(?P<y>\d{4}|\d{2})(?![\d.])",
        r"(?<![\d/-])(?P<a>\d{1,2})([/-])(?P<b>\d{1,2})\2(?P<y>\d{4}|\d{2})(?![\d/-])",
        r"(?<!\d)(?P<y>(?:19|20)\d{2})(?P<m>[01]\d)(?P<d>[0-3]\d)(?!\d)",
    )
)
_time = re.compile(
    r"(?:T|\s|,|-|^|at|um|à)*?(?<!\d)(?P<h>\d{1,2})[:h](?P<min>\d{2})(?::(?P<s>\d{2})(?:[.,](?P<f>\d{1,9}))?)?"
    r"(?:\s?(?P<half>[ap])\.?m\b\.?)?(?:\s?(?:(?P<utc>Z|UTC|GMT)(?![\w+-])"
    r"|(?:UTC|GMT)?(?P<sign>[+\-−])(?P<oh>\d{2}):?(?P<om>\d{2})?(?!\d)))?",
    re.IGNORECASE,
).search
_clock_number = re.compile(r"(?<![\d.])(\d{10})(?:(\d{3})|\.\d+)?(?![\d.])").fullmatch
_compact = re.compile(r"(?<!\d)(\d{8})T(\d{2})(\d{2})(\d{2})(?!\d)").sub


def date(s: str, *, day_first: bool | None = None) -> str:
    """The first day in a text, as 2024-05-31; 3/4/2024 needs to be told whether the day comes first."""
    return _day(s, day_first)[0].date().isoformat()


def datetime(s: str, *, day_first: bool | None = None) -> str:
    """The first day and its time in ISO 8601, with the offset if one is written; midnight without a time."""
    moment, rest = _day(s, day_first)
    if moment.tzinfo is not None:
        return moment.isoformat()
    found = _time(rest) or _time(s[:MAX_CHARS])
    return (_with_time(moment, found, s) if found else moment).isoformat()


def _day(s: str, day_first: bool | None) -> tuple[_Moment, str]:
    """The day, or the moment where seconds since 1970 are written, and the text after it."""
    text = s[:MAX_CHARS].strip()
    if seconds := _clock_number(text):
        return _Moment.fromtimestamp(int(seconds[1]), UTC) + timedelta(milliseconds=int(seconds[2] or 0)), ""
    text = _compact(r"\1T\2:\3:\4", text)
    hits = [found for form in _FORMS if (found := form(text)) and _has_known_month(found)]
    if not hits:
        raise ValueError(f"no date in {_shown(s)}" if text else "no date: it is empty")
    found = min(hits, key=lambda hit: hit.start())
    parts = found.groupdict()
    if "a" in parts:
        day, month = _day_and_month(int(parts["a"]), int(parts["b"]), day_first, s)
    else:
        day = int(parts["d"])
        month = _MONTH_NUMBERS[parts["name"].lower()] if "name" in parts else int(parts["m"])
    try:
        return _Moment(_full_year(parts["y"]), month, day), text[found.end() :]
    except ValueError:
        raise ValueError(f"no such day: {found[0]!r}") from None


def _has_known_month(found: re.Match[str]) -> bool:
    parts = found.groupdict()
    return "name" not in parts or parts["name"].lower() in _MONTH_NUMBERS


def _day_and_month(a: int, b: int, day_first: bool | None, s: str) -> tuple[int, int]:
    if a > 12 or (a == b and day_first is None):
        return a, b
    if b > 12:
        return b, a
    if day_first is None:
        raise ValueError(f"day or month first? {_shown(s)}")
    return (a, b) if day_first else (b, a)


def _full_year(year: str) -> int:
    if len(year) > 2:
        return int(year)
    return int(year) + (2000 if int(year) < 69 else 1900)


def _with_time(day: _Moment, found: re.Match[str], s: str) -> _Moment:
    hour, half = int(found["h"]), (found["half"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    fraction = int((found["f"] or "0")[:6].ljust(6, "0"))
    zone = None
    if found["utc"]:
        zone = UTC
    elif found["sign"]:
        offset = timedelta(hours=int(found["oh"]), minutes=int(found["om"] or 0))
        zone = timezone(offset if found["sign"] == "+" else -offset)
    try:
        return day.replace(
            hour=hour, minute=int(found["min"]), second=int(found["s"] or 0), microsecond=fraction, tzinfo=zone
        )
    except ValueError:
        raise ValueError(f"no such time: {_shown(s)}") from None


def _shown(s: str) -> str:
    return repr(" ".join(s[:60].split()))
