"""Failures by cause, as the retry policy counts them."""

from __future__ import annotations

import pytest

from shoal.core.task import REVIVED, Attempt, failures


@pytest.mark.parametrize(
    ("causes", "counted"),
    [
        ([], {}),
        ([""], {}),
        (["connect", "http.503", "connect"], {"connect": 2, "http.503": 1}),
        (["connect", REVIVED], {}),
        (["connect", REVIVED, "http.500", ""], {"http.500": 1}),
    ],
)
def test_failures_are_counted_since_the_last_fresh_start(causes: list[str], counted: dict[str, int]) -> None:
    assert failures(Attempt(at=1, worker="w", cause=cause) for cause in causes) == counted
