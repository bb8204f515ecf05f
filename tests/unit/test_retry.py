"""The retry policy as a table, and what holds for every row."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.retry import MAX_RETRIES, MAX_RETRY_DELAY, RULES, retry_delay, status_cause

UNLIMITED = 99


@pytest.mark.parametrize(
    ("cause", "retries"),
    [
        ("connect", 4),
        ("dns", 2),
        ("tls", 1),
        ("timeout.connect", 3),
        ("timeout.total", 3),
        ("timeout.slow", 3),
        ("bad_response", 2),
        ("decode", 0),
        ("too_large", 0),
        ("redirects", 0),
        ("blocked.private", 0),
        ("blocked.scheme", 0),
        ("bad_url", 0),
        ("garbled", 0),
        ("robots", 0),
        ("robots_unreachable", 5),
        ("http.429", 8),
        ("http.503", 4),
        ("http.500", 3),
        ("http.502", 3),
        ("http.520", 3),
        ("http.501", 0),
        ("http.408", 3),
        ("http.400", 0),
        ("http.403", 0),
        ("http.404", 0),
        ("http.410", 0),
        ("handler.ValueError", 1),
        ("handler_timeout", 1),
        ("memory", 1),
        ("stalled", UNLIMITED),
        ("closed", UNLIMITED),
        ("something.new", 1),
    ],
)
def test_every_class_has_its_number_of_retries(cause: str, retries: int) -> None:
    for earlier in range(UNLIMITED):
        tried_again = retry_delay(cause, {cause: earlier} if earlier else {}, jitter=0.5) is not None
        assert tried_again == (earlier < retries), earlier


@pytest.mark.parametrize(
    ("cause", "failures", "again"),
    [
        ("timeout.slow", {"timeout.total": 2}, True),
        ("timeout.slow", {"timeout.total": 2, "timeout.connect": 1}, False),
        ("http.500", {"http.502": 3}, False),
        ("http.500", {"http.503": 3}, True),
        ("handler.KeyError", {"handler.ValueError": 1}, False),
        ("handler.KeyError", {"handler_timeout": 1}, True),
        ("connect", {"timeout.total": 3, "http.500": 3, "dns": 2, "bad_response": 1}, True),
        ("connect", {"timeout.total": 3, "http.500": 3, "dns": 2, "bad_response": 2}, False),
        ("connect", {"stalled": 1000}, True),
        ("stalled", {"http.429": 8, "connect": 2}, True),
    ],
)
def test_failures_of_a_class_count_together_and_all_count_overall(
    cause: str, failures: Mapping[str, int], again: bool
) -> None:
    assert (retry_delay(cause, failures, jitter=0.5) is not None) == again


@pytest.mark.parametrize(
    ("cause", "earlier", "jitter", "after", "delay"),
    [
        ("connect", 0, 1.0, None, 2.0),
        ("connect", 1, 1.0, None, 4.0),
        ("connect", 3, 1.0, None, 16.0),
        ("connect", 3, 0.25, None, 4.0),
        ("connect", 3, 0.0, None, 0.0),
        ("http.429", 0, 1.0, None, 2.0),
        ("http.429", 7, 1.0, None, 256.0),
        ("http.429", 0, 0.5, 30.0, 30.0),
        ("http.429", 7, 0.5, 30.0, 128.0),
        ("http.503", 0, 0.5, 1e9, MAX_RETRY_DELAY),
        ("http.503", 0, 0.5, -5.0, 1.0),
        ("robots_unreachable", 0, 0.1, 60.0, 60.0),
    ],
)
def test_delays_grow_with_full_jitter_and_never_undercut_what_was_asked(
    cause: str, earlier: int, jitter: float, after: float | None, delay: float
) -> None:
    assert retry_delay(cause, {cause: earlier}, jitter=jitter, after=after) == delay


def test_limits_can_be_set_by_cause_or_class() -> None:
    assert retry_delay("http.404", {}, jitter=0.5, limits={"http.404": 2}) is not None
    assert retry_delay("http.404", {"http.404": 2}, jitter=0.5, limits={"http.404": 2}) is None
    assert retry_delay("timeout.slow", {}, jitter=0.5, limits={"timeout": 0}) is None
    assert retry_delay("timeout.slow", {}, jitter=0.5, limits={"timeout": 0, "timeout.slow": 1}) is not None
    assert retry_delay("dns", {"dns": 4}, jitter=0.5, limits={"*": 5}) is not None
    assert retry_delay("dns", {}, jitter=0.5, limits={"*": 0}) is None
    assert retry_delay("dns", {}, jitter=0.5, limits={"*": 0, "dns": 1}) is not None
    assert retry_delay("http.404", {}, jitter=0.5, limits={"*": 5}) is None
    assert retry_delay("stalled", {"stalled": 50}, jitter=0.5, limits={"stalled": 0}) is not None


@pytest.mark.parametrize(
    ("cause", "earlier", "base", "least", "most"),
    [
        ("connect", 0, 60.0, 60.0, 75.0),
        ("connect", 1, 60.0, 120.0, 150.0),
        ("connect", 3, 60.0, 300.0, 375.0),  # the cap of the table
        ("connect", 2, 900.0, 900.0, 1125.0),  # a longer delay than that cap is a person's own wish
        ("handler.KeyError", 0, 0.0, 0.0, 0.0),
        ("robots_unreachable", 0, 0.0, 60.0, 75.0),  # not hammered
        ("stalled", 0, 60.0, 0.0, 1.0),  # our own fault: goes on at once
    ],
)
def test_a_given_delay_is_kept_doubled_and_spread_by_a_quarter(
    cause: str, earlier: int, base: float, least: float, most: float
) -> None:
    for jitter, expected in ((0.0, least), (1.0, most)):
        assert retry_delay(cause, {cause: earlier}, jitter=jitter, base=base) == pytest.approx(expected)


def test_what_the_server_asked_for_counts_beside_a_given_delay() -> None:
    assert retry_delay("http.503", {}, jitter=0.0, after=30.0, base=1.0) == 30.0


CAUSES = st.sampled_from([*RULES, "http.404", "http.502", "timeout.slow", "handler.KeyError", "odd"])


@given(
    cause=CAUSES,
    failures=st.dictionaries(CAUSES, st.integers(0, 1000), max_size=6),
    jitter=st.floats(0, 1, exclude_max=True),
    after=st.none() | st.floats(allow_nan=False),
    limits=st.none() | st.dictionaries(CAUSES, st.integers(0, 50), max_size=3),
)
def test_a_delay_is_within_bounds_and_death_is_certain(
    cause: str, failures: dict[str, int], jitter: float, after: float | None, limits: dict[str, int] | None
) -> None:
    delay = retry_delay(cause, failures, jitter=jitter, after=after, limits=limits)
    if delay is not None:
        assert 0 <= delay <= MAX_RETRY_DELAY
        assert delay >= min(after or 0, MAX_RETRY_DELAY)
    if cause not in ("client", "exit", "stalled", "closed", "lane_busy") and failures.get(cause, 0) >= MAX_RETRIES:
        assert delay is None


@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (403, False), (404, False), (408, True), (410, False), (425, True),
     (429, True), (500, True), (501, False), (502, True), (503, True), (504, True), (505, False),
     (522, True)],
)  # fmt: skip
def test_a_status_has_a_cause_and_may_pass_or_not(status: int, retryable: bool) -> None:
    assert status_cause(status) == (f"http.{status}", retryable)


def test_a_class_does_not_stand_for_causes_that_only_begin_with_its_letters() -> None:
    assert retry_delay("robots", {}, jitter=0.5) is None
    assert retry_delay("robots.late", {}, jitter=0.5) is None
    assert retry_delay("robotsomething", {}, jitter=0.5) is not None
