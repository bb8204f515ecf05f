"""Fill rates: how full the fields of a run are, and which went empty."""

from __future__ import annotations

import msgspec
import pytest

from shoal.extract.template import FillRates


def filled(*parts: tuple[int, object]) -> FillRates:
    fill = FillRates()
    for many, price in parts:
        for _ in range(many):
            fill.count(msgspec.json.encode({"title": "x", "price": price}))
    return fill


@pytest.mark.parametrize(
    ("value", "counts"),
    [
        (None, 0),
        ("", 0),
        ([], 0),
        ({}, 0),
        ([None, ""], 0),
        ({"a": None, "b": []}, 0),
        (0, 1),
        (False, 1),
        ("x", 1),
        ([0], 1),
        ({"a": None, "b": 1}, 1),
    ],
)
def test_a_field_is_filled_by_anything_that_says_something(value: object, counts: int) -> None:
    fill = FillRates()
    fill.count({"f": value})
    assert fill.rates() == {"f": (counts, 1)}


def test_a_field_is_compared_with_the_records_that_have_it() -> None:
    fill = FillRates()
    fill.count(b'{"a": 1, "b": null}')
    fill.count(b'{"a": 1}')
    assert fill.rates() == {"a": (2, 2), "b": (0, 1)}
    assert fill.records == 2


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ([(240, 5), (100, None)], "price is empty in the last 100 of 340 records (it was filled in 100 % before)"),
        (
            [(2, None), (98, 5), (20, None)],
            "price is empty in the last 20 of 120 records (it was filled in 98 % before)",
        ),
        ([(100, 5), (19, None)], ""),
        ([(9, 5), (100, None)], ""),  # too little is known about before
        ([(100, None)], ""),
        ([(70, None), (30, 5), (60, None)], ""),  # it was never usual
        ([(100, 5), (100, None), (1, 5)], ""),
    ],
)
def test_a_field_that_went_empty_in_a_run_is_pointed_out(parts: list[tuple[int, object]], said: str) -> None:
    assert filled(*parts).suddenly_empty() == ([said] if said else [])


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ([(99, 5), (1, None)], [(3, 5), (97, None)], "price is filled in 3 % of records, last time 99 %"),
        ([(196, 5), (4, None)], [(48, None), (3, 5), (49, None)], "price is filled in 3 % of records, last time 98 %"),
        ([(100, 5)], [(100, None)], "price is filled in 0 % of records, last time 100 %"),
        ([(100, 5)], [(1, 5), (999, None)], "price is filled in 1 % of records, last time 100 %"),
        ([(100, 5)], [(60, 5), (40, 5)], ""),
        ([(100, 5)], [(9, None)], ""),
        ([(9, 5)], [(100, None)], ""),
        ([(40, 5), (60, None)], [(100, None)], ""),
    ],
)
def test_a_field_that_was_full_in_the_run_before_is_pointed_out(
    before: list[tuple[int, object]], now: list[tuple[int, object]], said: str
) -> None:
    assert filled(*now).suddenly_empty(filled(*before)) == ([said] if said else [])


def test_a_field_that_is_gone_altogether_is_pointed_out() -> None:
    now = FillRates()
    for _ in range(20):
        now.count({"title": "x"})
    assert now.suddenly_empty(filled((20, 5))) == ["price is no longer in any record, last time it was filled in 100 %"]
    assert now.suddenly_empty(filled((20, None))) == []


def test_parts_merge_to_what_the_whole_would_be_and_survive_json() -> None:
    parts = [(30, 5), (7, None), (1, 5), (40, None)]
    for cut in range(len(parts) + 1):
        whole = filled(*parts[:cut])
        whole.merge(msgspec.json.decode(msgspec.json.encode(filled(*parts[cut:])), type=FillRates))
        assert whole == filled(*parts)
