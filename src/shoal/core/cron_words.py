"""Cron expressions in words: "every day at 03:00 Europe/Berlin"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from shoal.core.cron import Cron, parse

MAX_TIMES = 6  # times of a day that are listed one by one
_WEEKDAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_WORKDAYS = frozenset(range(1, 6))


def describe_cron(text: str, zone: str) -> str:
    """When it fires, for people."""
    found = parse(text)
    if found.every:
        return f"every {_interval(found.every)}"
    times, every_day = _times(found), _days(found) == "every day"
    if times.startswith("every") and every_day:
        return times if len(found.hours) == 24 else f"{times} {zone}"
    if times.startswith("every"):
        return f"{times}, {_days(found)}, {zone}"
    return f"{_days(found)} {times} {zone}"


def _interval(seconds: int) -> str:
    for size, word in ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")):
        if seconds % size == 0:
            number = seconds // size
            return word if number == 1 else f"{number} {word}s"
    raise AssertionError("every whole number of seconds is one of seconds")


def _times(found: Cron) -> str:
    """When on a day."""
    minutes, hours = found.minutes, found.hours
    step = _step(minutes, 60)
    if len(hours) == 24 and step:
        return "every minute" if step == 1 else f"every {step} minutes"
    if len(hours) * len(minutes) <= MAX_TIMES:
        return f"at {_listed(f'{hour:02}:{minute:02}' for hour in hours for minute in minutes)}"
    past = f" at {_listed(str(minute) for minute in minutes)} past" if minutes != (0,) else ""
    often = f"every {step} minutes" if step else f"every hour{past}"
    if len(hours) == 24:
        return often
    if hours == tuple(range(hours[0], hours[-1] + 1)):
        return f"{often} from {hours[0]:02}:{minutes[0]:02} to {hours[-1]:02}:{minutes[-1]:02}"
    every = _step(hours, 24)
    if every and minutes == (0,):
        return f"every {every} hours"
    return f"{often} in the hours {_listed(str(hour) for hour in hours)}"


def _step(values: Sequence[int], whole: int) -> int:
    """How far the values are apart, where they fill the whole evenly from 0 on; else 0."""
    step = whole // len(values)
    return step if len(values) > 1 and tuple(values) == tuple(range(0, whole, step)) else 0


def _days(found: Cron) -> str:
    months = "" if len(found.months) == 12 else _listed(_MONTHS[month - 1] for month in sorted(found.months))
    by_date, by_weekday = _dates(found.days, months), _weekdays(found.weekdays)
    if len(found.days) == 31:
        day = by_weekday or "every day"
        return f"{day} in {months}" if months else day
    if not by_weekday:
        return by_date
    return f"{by_date} and {by_weekday}" if found.either else f"{by_weekday} that is {by_date}"


def _dates(days: frozenset[int], months: str) -> str:
    listed = _listed(_ordinal(day) for day in sorted(days))
    return f"on the {listed} of {months or 'every month'}"


def _weekdays(days: frozenset[int]) -> str:
    """Monday first; empty where it is any day."""
    if len(days) == 7:
        return ""
    if days == _WORKDAYS:
        return "Monday to Friday"
    return f"every {_listed(_WEEKDAYS[day] for day in sorted(days, key=lambda day: (day - 1) % 7))}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _listed(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
