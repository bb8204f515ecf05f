"""Record notes: fields that were never filled, with the line of code that names them, and records that were dropped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.core.run_counters import UNIQUE_YIELDED, count_fields
from shoal.core.stats import Stats
from shoal.runs.record_notes import dropped_note, empty_field_notes, is_nothing_filled

scraper = shoal.Scraper("shop", start="https://a.example/")


@scraper.page("/product/*")
def product(page: shoal.Page) -> Iterator[dict[str, Any]]:
    yield {"title": page.css("h1::text").get(), "price": page.css(".prize::text").get()}


LINES = Path(__file__).read_text().splitlines()
PRICE_AT = f"{os.path.relpath(__file__)}:{next(n for n, line in enumerate(LINES, 1) if '.prize' in line)}"


def test_a_field_that_no_record_has_is_named_with_its_line() -> None:
    counters = count_fields([b'{"title": "Bees", "price": null}'] * 200)
    assert empty_field_notes(counters, scraper, "shoal shell https://a.example/product/1") == [
        f"price is empty in all 200 records: product, {PRICE_AT}",
        "try its selector on a page: shoal shell https://a.example/product/1",
    ]


def test_a_field_that_was_filled_once_is_not_worth_a_word() -> None:
    counters = count_fields([b'{"price": null}'] * 3 + [b'{"price": 1}'])
    assert empty_field_notes(counters, scraper) == []


def test_a_field_that_no_code_names_is_said_without_a_line() -> None:
    notes = empty_field_notes(count_fields([b'{"size": ""}']), scraper)
    assert notes == ["size is empty in the only record", "try its selector on a page: shoal shell URL"]


@pytest.mark.parametrize(
    ("records", "is_nothing"),
    [
        ([b'{"title": null, "price": ""}'], True),
        ([b'{"url": "https://a.example/", "price": null}'], True),
        ([b'{"title": null, "price": ""}', b'{"title": "x"}'], False),
        ([b'{"price": 0}'], False),
        ([b'{"url": "https://a.example/"}'], False),
        ([], False),
    ],
)
def test_whether_anything_is_in_the_records(records: list[bytes], is_nothing: bool) -> None:
    assert is_nothing_filled(count_fields(records)) is is_nothing


def test_records_that_were_dropped_are_counted() -> None:
    counters = {UNIQUE_YIELDED: 3}
    assert dropped_note(counters, Stats(records=1), ("sku",)) == (
        "2 records were dropped: others had the same sku (--unique)"
    )
    assert dropped_note(counters, Stats(records=2), ("a", "b")).startswith(
        "1 record was dropped: others had the same a, b"
    )
    assert dropped_note(counters, Stats(records=3), ("sku",)) == ""
