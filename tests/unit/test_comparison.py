"""Comparison: a run beside the one before it, in words that say what is worse."""

from __future__ import annotations

import pytest

from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.view.comparison import compare, percent_change, percent_of

SECOND = 1_000_000


def run(number: int, took: float, state: RunState = "finished") -> Run:
    ended = int(took * SECOND) + SECOND if state == "finished" else 0
    return Run(number, f"r{number}", "books", "k", state, SECOND, SECOND, ended)


@pytest.mark.parametrize(
    ("now", "was", "words"),
    [
        (112, 100, "+12 %"),
        (88, 100, "−12 %"),
        (100, 100, "±0 %"),
        (1034, 1000, "+3.4 %"),
        (1000.4, 1000, "±0 %"),
        (0, 100, "−100 %"),
        (5_000, 1, "+499,900 %"),
        (0, 0, "±0 %"),
        (7, 0, ""),
    ],
)
def test_a_change_is_told_in_percent_of_what_was(now: float, was: float, words: str) -> None:
    assert percent_change(now, was) == words


@pytest.mark.parametrize(
    ("now", "was", "words"), [(0, 8, "0 % of it"), (2, 8, "25 % of it"), (16, 8, "+100 %"), (3, 0, "")]
)
def test_what_goes_on_is_told_as_a_part_of_what_was(now: int, was: int, words: str) -> None:
    assert percent_of(now, was) == words


def test_fewer_rows_and_more_failures_are_worse_and_being_slower_is_not() -> None:
    found = compare(run(2, 120), Stats(done=90, dead=10, records=80), run(1, 60), Stats(done=100, records=100), 0)
    assert [(it.name, it.now, it.was, it.by, it.worse) for it in found.changes] == [
        ("rows", "80", "100", "−20 %", True),
        ("ok", "90.0 %", "100 %", "−10 points", True),
        ("took", "2:00", "1:00", "+100 %", False),
    ]
    assert found.worse and found.ended


def test_a_run_that_goes_on_has_not_lost_the_rows_that_it_will_still_have() -> None:
    going = run(2, 0, "running")
    found = compare(going, Stats(done=10, records=10), run(1, 60), Stats(done=99, records=100), 31 * SECOND)
    assert [(it.now, it.by, it.worse) for it in found.changes] == [
        ("10", "10 % of it", False),
        ("100 %", "±0 points", False),
        ("30 s", "", False),
    ]
    assert not found.ended


def test_runs_without_any_page_are_compared_without_a_word_on_how_they_went() -> None:
    found = compare(run(2, 1), Stats(), run(1, 1), Stats(), 0)
    assert [(it.now, it.by) for it in found.changes] == [("0", "±0 %"), ("–", ""), ("1 s", "±0 %")]


def test_a_single_failure_among_very_many_is_never_all_well() -> None:
    found = compare(run(2, 1), Stats(done=999_999, dead=1, records=1), run(1, 1), Stats(done=1, records=1), 0)
    assert found.changes[1].now == "99.9 %"
