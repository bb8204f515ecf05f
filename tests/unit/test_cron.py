"""Cron expressions: what is understood, what is refused, and when each time comes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.core.cron import FIELDS, MINUTE, Cron, latest_until, next_after, parse, times_between, zone_of
from shoal.errors import UsageError

BERLIN = zone_of("Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


NEXT = [
    # expression, after, next
    ("* * * * *", "2026-11-15 12:00:00", "2026-11-15 12:01"),
    ("* * * * *", "2026-11-15 12:00:59.999999", "2026-11-15 12:01"),
    ("0 3 * * *", "2026-11-15 02:59:59", "2026-11-15 03:00"),
    ("0 3 * * *", "2026-11-15 03:00", "2026-11-16 03:00"),
    ("*/15 * * * *", "2026-11-15 12:46", "2026-11-15 13:00"),
    ("5/20 * * * *", "2026-11-15 12:26", "2026-11-15 12:45"),
    ("10-20/5,50 8-9 * * *", "2026-11-15 08:21", "2026-11-15 08:50"),
    ("0 9 * * mon-fri", "2026-11-13 09:00", "2026-11-16 09:00"),
    ("0 9 * * FRI-SUN", "2026-11-12 12:00", "2026-11-13 09:00"),
    ("0 9 * * 7", "2026-11-09 09:00", "2026-11-15 09:00"),
    ("0 0 1 jan,JUL *", "2026-02-01 00:00", "2026-07-01 00:00"),
    ("0 0 29 2 *", "2096-03-01 00:00", "2104-02-29 00:00"),  # 2100 is no leap year
    ("0 0 31 * *", "2026-04-01 00:00", "2026-05-31 00:00"),
    ("0 0 13 * fri", "2026-11-07 00:00", "2026-11-13 00:00"),
    ("0 0 13 * fri", "2026-11-13 00:00", "2026-11-20 00:00"),  # either the 13th or a Friday
    ("0 0 1-31 * fri", "2026-11-14 00:00", "2026-11-20 00:00"),  # every day is no narrowing
    ("@hourly", "2026-11-15 12:00", "2026-11-15 13:00"),
    ("@Daily", "2026-12-31 12:00", "2027-01-01 00:00"),
    ("@weekly", "2026-11-15 00:00", "2026-11-22 00:00"),
    ("@monthly", "2026-11-15 00:00", "2026-12-01 00:00"),
    ("@yearly", "2026-11-15 00:00", "2027-01-01 00:00"),
    ("every 15m", "2026-11-15 12:50:01", "2026-11-15 13:00"),
    ("every 90 s", "2026-11-15 00:00:00", "2026-11-15 00:01:30"),
    ("Every 6h", "2026-11-15 12:00", "2026-11-15 18:00"),
]


@pytest.mark.parametrize(("expression", "after", "expected"), NEXT)
def test_the_next_time(expression: str, after: str, expected: str) -> None:
    assert next_after(expression, at(after)) == at(expected)


SUMMER_TIME = [
    # Europe/Berlin: at 02:00 on 2026-03-29 it is 03:00; at 03:00 on 2026-10-25 it is 02:00 again
    ("30 2 * * *", "2026-03-28 02:00", ["2026-03-29 01:00", "2026-03-30 00:30"]),
    ("*/20 2 * * *", "2026-03-29 00:00", ["2026-03-29 01:00", "2026-03-30 00:00"]),
    ("0 3 * * *", "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 01:00"]),
    ("30 2 * * *", "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
    ("0 * * * *", "2026-10-24 23:30", ["2026-10-25 00:00", "2026-10-25 02:00"]),
    ("every 1h", "2026-10-24 23:30", ["2026-10-25 00:00", "2026-10-25 01:00"]),
]


@pytest.mark.parametrize(("expression", "after", "expected"), SUMMER_TIME)
def test_a_time_that_is_missing_comes_after_the_gap_and_one_that_is_there_twice_comes_once(
    expression: str, after: str, expected: list[str]
) -> None:
    first = next_after(expression, at(after), BERLIN)
    assert [first, next_after(expression, first, BERLIN)] == [at(time) for time in expected]


LATEST = [
    ("30 2 * * *", "2026-10-25 01:10", "2026-10-25 00:30"),  # 02:10 for the second time
    ("30 2 * * *", "2026-10-25 00:29", "2026-10-24 00:30"),
    ("30 2 * * *", "2026-03-29 00:59", "2026-03-28 01:30"),
    ("30 2 * * *", "2026-03-29 01:00", "2026-03-29 01:00"),
    ("0 0 29 2 *", "2104-02-28 12:00", "2096-02-28 23:00"),
    ("every 15m", "2026-11-15 12:44:59", "2026-11-15 12:30"),
]


@pytest.mark.parametrize(("expression", "when", "expected"), LATEST)
def test_the_latest_time(expression: str, when: str, expected: str) -> None:
    assert latest_until(expression, at(when), BERLIN) == at(expected)


WRONG = [
    ("61 * * * *", "minute 61: 0 to 59"),
    ("* 24 * * *", "hour 24: 0 to 23"),
    ("* * 0 * *", "day 0: 1 to 31"),
    ("* * * 13 *", "month 13: 1 to 12, or jan to dec"),
    ("* * * * 8", "weekday 8: 0 to 7, or sun to sat"),
    ("* * * * monday", "weekday monday: 0 to 7, or sun to sat"),
    ("*/0 * * * *", "minute */0: a step is 1 or more"),
    ("30-10 * * * *", "minute 30-10: a range starts with the smaller one"),
    ("1,,2 * * * *", "minute : 0 to 59"),
    ("-5 * * * *", "minute -5: 0 to 59"),
    ("1-2-3 * * * *", "minute 1-2-3: 0 to 59"),
    ("１ * * * *", "minute １: 0 to 59"),
    ("* * * *", "it takes five fields, minute hour day month weekday, and has 4"),
    ("0 0 3 * * *", "it takes five fields, minute hour day month weekday, and has 6"),
    ("", "it takes five fields"),
    ("0 0 31 feb,apr *", "never occurs: no such month has a day 31"),
    ("@reboot", "'@reboot' is not a time"),
    ("every now and then", "every N whole seconds"),
    ("every 0s", "every N whole seconds"),
    ("every 1.5s", "every N whole seconds"),
    ("every 99999d", "every N whole seconds"),
]


@pytest.mark.parametrize(("expression", "words"), WRONG)
def test_what_is_not_a_time_is_refused_with_the_reason(expression: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(expression)
    assert words in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["Europe/Atlantis", "Europe", "../etc/passwd", "/etc/passwd", "\0", "x" * 999])
def test_a_zone_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no time zone"):
        zone_of(name)


@pytest.mark.parametrize("name", ["", "UTC", "utc"])
def test_times_are_in_utc_unless_a_zone_is_given(name: str) -> None:
    assert zone_of(name) is UTC


# Against a model that looks at every minute

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kathmandu")
TURNS = (  # around changes of those zones, and Samoa's missing day
    ("Europe/Berlin", at("2026-03-29 01:00")),
    ("Europe/Berlin", at("2026-10-25 01:00")),
    ("America/St_Johns", at("2026-03-08 05:30")),
    ("America/St_Johns", at("2026-11-01 04:30")),
    ("Australia/Lord_Howe", at("2026-04-04 15:00")),  # by half an hour
    ("Australia/Lord_Howe", at("2026-10-03 15:30")),
    ("Pacific/Apia", at("2011-12-30 10:00")),
    ("Africa/Casablanca", at("2026-02-15 02:00")),
)


@st.composite
def parts(draw: st.DrawFn, number: int) -> str:
    field = FIELDS[number]
    kind = draw(st.sampled_from(("star", "star", "step", "value", "range", "list")))
    if kind == "star":
        return "*"
    if kind == "step":
        return f"*/{draw(st.integers(1, field.most))}"
    values = sorted(draw(st.lists(st.integers(field.least, field.most), min_size=2, max_size=3)))
    if kind == "value":
        return str(values[0])
    return f"{values[0]}-{values[-1]}" if kind == "range" else ",".join(map(str, values))


expressions = st.tuples(*(parts(number) for number in range(5))).map(" ".join)
moments = st.one_of(
    st.tuples(st.sampled_from(ZONES), st.datetimes(datetime(2015, 1, 1), datetime(2036, 1, 1))).map(
        lambda pair: (pair[0], pair[1].replace(tzinfo=UTC))
    ),
    st.tuples(st.sampled_from(TURNS), st.integers(-1500, 1500), st.integers(0, 59)).map(
        lambda drawn: (drawn[0][0], drawn[0][1] + drawn[1] * MINUTE + timedelta(seconds=drawn[2]))
    ),
)


def matches(cron: Cron, wall: datetime) -> bool:
    return wall.minute in cron.minutes and wall.hour in cron.hours and cron.matches_day(wall)


def slowly(cron: Cron, begin: datetime, minutes: int, zone_name: str) -> list[datetime]:
    """Every minute looked at: a time fires when the clock first shows it, or has jumped over it."""
    zone = zone_of(zone_name)
    begin = begin.replace(second=0, microsecond=0)
    shown = max((begin - n * MINUTE).astimezone(zone).replace(tzinfo=None) for n in range(1, 1600))
    fired = []
    for number in range(minutes):
        now = begin + number * MINUTE
        wall = now.astimezone(zone).replace(tzinfo=None)
        passed = [shown + n * MINUTE for n in range(1, (wall - shown) // MINUTE + 1)] if wall > shown else []
        if any(matches(cron, time) for time in passed):
            fired.append(now)
        shown = max(shown, wall)
    return fired


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(expressions, moments)
def test_times_are_those_of_a_clock_that_is_watched_every_minute(expression: str, moment: tuple[str, datetime]) -> None:
    zone_name, when = moment
    try:
        cron = parse(expression)
    except UsageError:
        return  # a day that no month has
    span = 1600
    end = when.replace(second=0, microsecond=0) + (span - 1) * MINUTE
    expected = [time for time in slowly(cron, when, span, zone_name) if time > when]
    assert list(times_between(cron, when, end, zone_of(zone_name))) == expected
    for after, until in list(pairwise(expected))[:: max(1, len(expected) // 8)]:
        assert latest_until(cron, until - timedelta(seconds=1), zone_of(zone_name)) == after
        assert latest_until(cron, until, zone_of(zone_name)) == until


@given(st.integers(1, 100_000), st.datetimes(datetime(2015, 1, 1), datetime(2036, 1, 1)))
def test_every_so_often_is_regular(seconds: int, moment: datetime) -> None:
    when = moment.replace(tzinfo=UTC)
    cron = parse(f"every {seconds}s")
    following = next_after(cron, when)
    assert timedelta() < following - when <= timedelta(seconds=seconds)
    assert next_after(cron, following) - following == timedelta(seconds=seconds)
    assert latest_until(cron, following) == following
    assert latest_until(cron, when) == following - timedelta(seconds=seconds)
