"""Seen-sets: names, and for how long a task is remembered."""

from __future__ import annotations

import pytest

from shoal.core.seen_set import HOUR, hour_of, is_name, oldest_hour


@pytest.mark.parametrize("name", ["prices", "p", "2026", "eu.prices-2_b", "x" * 64])
def test_plain_names_are_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", " ", "a b", "-x", ".x", "a/b", "x" * 65, "a\n", "é", "a*"])
def test_odd_names_are_refused(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize("joined", [0, 1, HOUR - 1, HOUR, 5 * HOUR + 7])
@pytest.mark.parametrize("seen_for", [1_000_000, HOUR // 2, HOUR, 30 * 24 * HOUR])
def test_a_task_is_remembered_for_its_time_and_at_most_an_hour_longer(joined: int, seen_for: int) -> None:
    created = 1_000 * HOUR + 123
    hour = hour_of(created + joined, created)
    assert hour >= oldest_hour(created + joined + seen_for - 1, created, seen_for)
    assert hour < oldest_hour(created + joined + seen_for + HOUR, created, seen_for)


def test_without_a_time_nothing_is_forgotten() -> None:
    assert oldest_hour(10**18, 0, 0) == 0


def test_a_clock_that_stepped_back_before_the_beginning_is_the_first_hour() -> None:
    assert hour_of(5, 100) == 0
    assert oldest_hour(5, 100, 1) == 0
