"""Cron expressions, parsed and evaluated. Pure: the caller brings the time.

Five fields (minute hour day month weekday) with names, lists, ranges and steps; @hourly and its like; or
"every 15m", which counts from the beginning of 1970 whatever the zone. Where day and weekday are both
narrowed, either will do.

In a zone with summer time, a time that does not exist fires at the first minute after the gap, and one
that comes twice fires the first time. Both are one rule: a wall clock time fires at the first minute at
which the clock shows that time or a later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

import msgspec

from shoal.core import units
from shoal.errors import UsageError

MINUTE = timedelta(minutes=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
HINT = '"0 3 * * *" is every day at three, "*/15 * * * *" and "every 15m" are every quarter of an hour'
MAX_INTERVAL = 366 * 86_400
MAX_DAYS_AHEAD = 366 * 9  # the 29th of February is at most eight years away
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Field(msgspec.Struct, frozen=True):
    name: str
    least: int
    most: int
    words: tuple[str, ...] = ()
    first: int = 0  # the value of the first word


FIELDS = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day", 1, 31),
    Field("month", 1, 12, _MONTHS, 1),
    Field("weekday", 0, 7, _DAYS),
)


class Cron(msgspec.Struct, frozen=True):
    """An expression that was understood: either `every` so many seconds, or times of a wall clock."""

    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()  # 0 is Sunday
    either: bool = False  # both kinds of days were narrowed, and one of them is enough
    every: int = 0

    def matches_day(self, day: datetime) -> bool:
        """Whether it happens at all on a day."""
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.either else by_date and by_weekday


def parse(text: str) -> Cron:
    """Understand an expression, or say what is wrong with it."""
    words = " ".join(text.lower().split())
    if words.startswith("every"):
        return _every(words, text)
    if words.startswith("@") and words not in MACROS:
        raise UsageError(f"{text!r} is not a time", hint="known are: " + ", ".join(MACROS) + ", or " + HINT)
    parts = MACROS.get(words, words).split()
    if len(parts) != len(FIELDS):
        raise UsageError(
            f"{text!r} is not a time: it takes five fields, minute hour day month weekday, and has {len(parts)}",
            hint=HINT,
        )
    sets = [_values(part, field) for part, field in zip(parts, FIELDS, strict=True)]
    minutes, hours, days, months = sets[:4]
    weekdays = frozenset(day % 7 for day in sets[4])
    found = Cron(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=days,
        months=months,
        weekdays=weekdays,
        either=len(days) < 31 and len(weekdays) < 7,
    )
    if not found.either and all(min(days) > _LENGTHS[month - 1] for month in months):
        raise UsageError(f"{text!r} never occurs: no such month has a day {min(days)}", hint=HINT)
    return found


def zone_of(name: str) -> tzinfo:
    """A time zone by its name, such as Europe/Berlin; UTC where none is given."""
    if name.upper() in ("", "UTC", "Z"):
        return UTC
    from zoneinfo import ZoneInfo  # late: few need it

    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise UsageError(
            f"there is no time zone {name} here",
            hint="a name such as Europe/Berlin; where the system has none of them: pip install tzdata",
        ) from error


def next_after(cron: Cron | str, when: datetime, zone: tzinfo = UTC) -> datetime:
    """The first time after `when`, in UTC."""
    cron = parse(cron) if isinstance(cron, str) else cron
    if cron.every:
        step = timedelta(seconds=cron.every)
        return EPOCH + ((when - EPOCH) // step + 1) * step
    for wall in _wall_times(cron, _wall_time(when, zone)):
        found = _moment(wall, zone)
        if found > when:
            return found
    raise UsageError("this time never occurs", hint=HINT)


def latest_until(cron: Cron | str, when: datetime, zone: tzinfo = UTC) -> datetime:
    """The last time before `when` or at it, in UTC."""
    cron = parse(cron) if isinstance(cron, str) else cron
    if cron.every:
        step = timedelta(seconds=cron.every)
        return EPOCH + (when - EPOCH) // step * step
    local = when.astimezone(zone)
    begin = _wall_time(when, zone)
    # Where the clock was put back, later wall clock times than the one it shows have been there already.
    begin += timedelta(days=1) if local.fold else timedelta()
    for wall in _wall_times_back(cron, begin):
        found = _moment(wall, zone)
        if found <= when:
            return found
    raise UsageError("this time never came", hint=HINT)


def times_between(cron: Cron | str, after: datetime, until: datetime, zone: tzinfo = UTC) -> Iterator[datetime]:
    """All times after `after`, up to `until` and with it."""
    cron = parse(cron) if isinstance(cron, str) else cron
    when = next_after(cron, after, zone)
    while when <= until:
        yield when
        when = next_after(cron, when, zone)


def _every(words: str, text: str) -> Cron:
    try:
        found = units.seconds()(words.removeprefix("every").strip())
    except ValueError:
        found = 0.0
    if not 1 <= found <= MAX_INTERVAL or found != int(found):
        raise UsageError(
            f"{text!r} is not a time: every N whole seconds, minutes, hours or days, at most a year", hint='"every 15m"'
        )
    return Cron(every=int(found))


def _values(text: str, field: Field) -> frozenset[int]:
    values: set[int] = set()
    for part in text.split(","):
        values.update(_part(part, field))
    return frozenset(values)


def _part(text: str, field: Field) -> range:
    span, slash, step_text = text.partition("/")
    step = _number(step_text, field, text) if slash else 1
    if step < 1:
        raise _field_error(field, text, "a step is 1 or more")
    first_text, dash, last_text = span.partition("-")
    if span == "*":
        return range(field.least, field.most + 1, step)
    first = _value(first_text, field, text)
    last = _value(last_text, field, text) if dash else field.most if slash else first
    if last < first and field.name == "weekday" and last == 0:
        last = 7  # fri-sun
    if last < first:
        raise _field_error(field, text, "a range starts with the smaller one")
    return range(first, last + 1, step)


def _value(text: str, field: Field, whole: str) -> int:
    if text in field.words:
        return field.words.index(text) + field.first
    found = _number(text, field, whole)
    if not field.least <= found <= field.most:
        raise _field_error(field, whole, _range(field))
    return found


def _number(text: str, field: Field, whole: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 4:
        raise _field_error(field, whole, _range(field))
    return int(text)


def _range(field: Field) -> str:
    words = f", or {field.words[0]} to {field.words[-1]}" if field.words else ""
    return f"{field.least} to {field.most}{words}"


def _field_error(field: Field, text: str, why: str) -> UsageError:
    return UsageError(f"{field.name} {text}: {why}", hint=HINT)


def _wall_time(when: datetime, zone: tzinfo) -> datetime:
    """What a clock in the zone shows, to the minute and without its zone."""
    return when.astimezone(zone).replace(tzinfo=None, second=0, microsecond=0, fold=0)


def _moment(wall: datetime, zone: tzinfo) -> datetime:
    """The first minute at which a clock in the zone shows this time or a later one."""
    early = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    late = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if late <= early or _wall_time(late, zone) == wall:
        return late
    low, high = early, late  # the clock jumps over it somewhere between these
    while high - low > MINUTE:
        middle = low + (high - low) // 2 // MINUTE * MINUTE
        low, high = (low, middle) if _wall_time(middle, zone) >= wall else (middle, high)
    return high


def _wall_times(cron: Cron, begin: datetime) -> Iterator[datetime]:
    """Matching wall clock times from `begin` on."""
    day = begin.replace(hour=0, minute=0)
    for number in range(MAX_DAYS_AHEAD):
        if cron.matches_day(day):
            for hour in cron.hours:
                if number or hour >= begin.hour:
                    walls = (day.replace(hour=hour, minute=minute) for minute in cron.minutes)
                    yield from (wall for wall in walls if wall >= begin)
        day += timedelta(days=1)


def _wall_times_back(cron: Cron, begin: datetime) -> Iterator[datetime]:
    """Matching wall clock times from `begin` back."""
    day = begin.replace(hour=0, minute=0)
    for number in range(MAX_DAYS_AHEAD):
        if cron.matches_day(day):
            for hour in reversed(cron.hours):
                if number or hour <= begin.hour:
                    walls = (day.replace(hour=hour, minute=minute) for minute in reversed(cron.minutes))
                    yield from (wall for wall in walls if wall <= begin)
        day -= timedelta(days=1)
