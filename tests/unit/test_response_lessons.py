"""What an answer teaches about its lane, as tables."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.task import LaneChange
from shoal.politeness.response_hints import MAX_HOLD, MAX_RETRY_AFTER, retry_after, throttle_change

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("30", 30.0),
        (" 120 ", 120.0),
        ("3600", 3600.0),
        ("999999", MAX_RETRY_AFTER),
        ("9" * 5000, MAX_RETRY_AFTER),
        ("Sun, 06 Nov 1994 08:50:07 GMT", 30.0),
        ("Sunday, 06-Nov-94 08:50:07 GMT", 30.0),
        ("Sun Nov  6 08:50:07 1994", 30.0),
        ("Sun, 06 Nov 1994 09:50:07 +0100", 30.0),
        ("Sunday, 06-Nov-94 08:49:00 GMT", 0.0),
        ("Sunday, 06-Nov-94 12:49:37 GMT", MAX_RETRY_AFTER),
        ("Sun Nov  6 08:49:00 1994", 0.0),
        ("Sun Nov 06 08:50:07 1994", 30.0),
        ("06 Nov 1994 08:50:07 GMT", 30.0),
        ("sun, 06 nov 1994 08:50:07 gmt", 30.0),
        ("Sun, 06 Nov 1994 08:50:07", 30.0),
        ("Sun, 06 Nov 1994 03:50:07 EST", 30.0),
        ("Sun, 06 Nov 1994 08:50:07 -0000", 30.0),
        ("Thu, 01 Jan 1970 00:00:00 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:49:00 GMT", 0.0),
        ("Fri, 31 Dec 9999 23:59:59 GMT", MAX_RETRY_AFTER),
        ("", None),
        ("soon", None),
        ("-5", None),
        ("-0", None),
        ("+5", None),
        ("1.5", 1.5),
        ("0.25", 0.25),
        ("2.", 2.0),
        ("12.000000000000000000000001", 12.0),
        ("9" * 20 + ".5", MAX_RETRY_AFTER),
        (".5", None),
        ("1,5", None),
        ("1.5.1", None),
        ("30 s", None),
        ("30, 30", None),
        ("0x10", None),
        ("nan", None),
        ("inf", None),
        ("1e9", None),
        ("٣", None),
        ("Sun, 99 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 99999999 08:49:37 GMT", None),
    ],
)
def test_retry_after_in_every_form(value: str, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


LIKELY, ODD = st.integers(0, 31), st.integers(-99, 99999)
DATES = st.builds("Sun, {} Nov {} {}:{}:07 {:+}".format, LIKELY, ODD, LIKELY, LIKELY, LIKELY | ODD)


@given(st.text() | DATES)
def test_retry_after_survives_anything_and_stays_in_bounds(value: str) -> None:
    seconds = retry_after(value, NOW)
    assert seconds is None or 0 <= seconds <= MAX_RETRY_AFTER


@pytest.mark.parametrize(
    ("status", "header", "consecutive", "hold", "reason"),
    [
        (429, "30", 0, 30.0, "429, Retry-After 30 s"),
        (503, "30", 9, 30.0, "503, Retry-After 30 s"),
        (503, "Sun, 06 Nov 1994 08:50:07 GMT", 0, 30.0, "503, Retry-After 30 s"),
        (429, "", 0, 5.0, "429, waiting 5 s"),
        (429, "garbage", 1, 10.0, "429, waiting 10 s"),
        (429, "0", 2, 20.0, "429, waiting 20 s"),
        (429, "-5", 0, 5.0, "429, waiting 5 s"),
        (429, "0.4", 0, 0.4, "429, Retry-After 1 s"),
        (429, "9" * 400, 0, MAX_RETRY_AFTER, "429, Retry-After 3600 s"),
        (503, "Sun, 06 Nov 1994 08:49:00 GMT", 0, 5.0, "503, waiting 5 s"),
        (503, "", 99, MAX_HOLD, "503, waiting 300 s"),
    ],
)
def test_slow_down_holds_the_lane(status: int, header: str, consecutive: int, hold: float, reason: str) -> None:
    headers = (("content-type", "text/html"), ("retry-after", header))
    change = throttle_change("site.test", status, headers, now=NOW, consecutive=consecutive)
    assert change == LaneChange("site.test", hold_for=hold, reason=reason)


@pytest.mark.parametrize("status", [200, 301, 403, 404, 500, 502, 504])
def test_other_answers_teach_nothing(status: int) -> None:
    assert throttle_change("site.test", status, (("retry-after", "30"),), now=NOW) is None


def test_a_date_without_a_zone_is_utc_wherever_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        seconds = retry_after("Sun, 06 Nov 1994 08:50:07", NOW)
    time.tzset()
    assert seconds == 30.0
