from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shoal.extract import values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1234", 1234.0),
        ("1,234.56", 1234.56),
        ("£1,234.56", 1234.56),
        ("1.234,56 €", 1234.56),
        ("1 234", 1234.0),
        ("1\u202f234\u202f567,5", 1234567.5),
        ("1'234.50", 1234.5),
        ("12,34,567.89", 1234567.89),
        ("1,234", 1234.0),
        ("1,234,567", 1234567.0),
        ("1.234.567", 1234567.0),
        ("1.234", 1.234),
        ("0,234", 0.234),
        ("1,5", 1.5),
        (".5", 0.5),
        ("-5", -5.0),
        ("−5 °C", -5.0),
        ("-$5.00", -5.0),
        ("+7", 7.0),
        ("SB-000001", 1.0),
        ("5-10", 5.0),
        ("In stock (22 available)", 22.0),
        ("4.5 out of 5", 4.5),
        ("3 12", 3.0),
        ("50 %", 50.0),
        ("1.5e3", 1500.0),
        ("3e2b", 3.0),
        ("١٢٣٫٥", 123.5),
        ("１２３", 123.0),
        ("CHF 1’250.–", 1250.0),
    ],
)
def test_the_first_number_is_read_however_it_is_written(text: str, expected: float) -> None:
    assert values.number(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("22", 22), ("1,234", 1234), ("-7", -7), ("4.0", 4), ("9007199254740993", 9007199254740993), ("page 3 of 9", 3)],
)
def test_whole_numbers_are_exact(text: str, expected: int) -> None:
    assert values.integer(text) == expected


@pytest.mark.parametrize(
    ("text", "amount", "currency"),
    [
        ("£51.77", 51.77, "GBP"),
        ("1.234,56 €", 1234.56, "EUR"),
        ("1.234 €", 1234.0, "EUR"),
        ("1,234 USD", 1234.0, "USD"),
        ("US$ 9.99", 9.99, "USD"),
        ("$9.99", 9.99, "USD"),
        ("R$ 1.234,00", 1234.0, "BRL"),
        ("CHF 12.50", 12.5, "CHF"),
        ("12 990 Kč", 12990.0, "CZK"),
        ("¥1,200", 1200.0, "JPY"),
        ("12.50", 12.5, ""),
        ("NEW 12.50", 12.5, ""),
    ],
)
def test_a_price_is_an_amount_and_a_currency(text: str, amount: float, currency: str) -> None:
    assert values.price(text) == (amount, currency)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("true", True), (" Yes ", True), ("1", True), ("✓", True), ("FALSE", False), ("no", False), ("off", False)],
)
def test_truth_has_many_words(text: str, expected: bool) -> None:
    assert values.boolean(text) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", "2024-05-01"),
        ("2024-05-01T10:00:00Z", "2024-05-01"),
        ("2024/5/1", "2024-05-01"),
        ("20240501", "2024-05-01"),
        ("1 May 2024", "2024-05-01"),
        ("1st of May 2024", "2024-05-01"),
        ("May 1, 2024", "2024-05-01"),
        ("Published on Sept. 3rd, 2024 by X", "2024-09-03"),
        ("Wed, 01 May 2024 10:00:00 GMT", "2024-05-01"),
        ("10-May-2024", "2024-05-10"),
        ("01.05.2024", "2024-05-01"),
        ("1.5.24", "2024-05-01"),
        ("3. März 2024", "2024-03-03"),
        ("1er janvier 2024", "2024-01-01"),
        ("5 de mayo de 2023", "2023-05-05"),
        ("2024年5月1日", "2024-05-01"),
        ("13/05/2024", "2024-05-13"),
        ("05/13/2024", "2024-05-13"),
        ("05/05/2024", "2024-05-05"),
        ("1/2/99 and 2001-02-03", None),
        ("1714521600", "2024-05-01"),
        ("1714521600123", "2024-05-01"),
    ],
)
def test_a_date_is_read_however_it_is_written(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="day or month first"):
            values.date(text)
    else:
        assert values.date(text) == expected


def test_a_date_that_may_be_two_days_needs_a_word() -> None:
    with pytest.raises(ValueError, match=r"day or month first\? '3/4/2024'"):
        values.date("3/4/2024")
    assert values.date("3/4/2024", day_first=True) == "2024-04-03"
    assert values.date("3/4/2024", day_first=False) == "2024-03-04"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-05-01", "2024-05-01T00:00:00"),
        ("2024-05-01T10:00:00Z", "2024-05-01T10:00:00+00:00"),
        ("2024-05-01 10:00:00.123456+02:00", "2024-05-01T10:00:00.123456+02:00"),
        ("2024-05-01T10:00:00-0530", "2024-05-01T10:00:00-05:30"),
        ("20240501T101112Z", "2024-05-01T10:11:12+00:00"),
        ("May 1, 2024 at 3:05 PM", "2024-05-01T15:05:00"),
        ("12:05 am, 1 May 2024", "2024-05-01T00:05:00"),
        ("Wed, 01 May 2024 10:00:00 GMT", "2024-05-01T10:00:00+00:00"),
        ("3. März 2024, 14:30 Uhr", "2024-03-03T14:30:00"),
        ("1714521600", "2024-05-01T00:00:00+00:00"),
        ("1714521600123", "2024-05-01T00:00:00.123000+00:00"),
    ],
)
def test_a_time_is_read_with_its_offset(text: str, expected: str) -> None:
    assert values.datetime(text) == expected


@pytest.mark.parametrize(
    ("read", "text", "says"),
    [
        (values.number, "", "it is empty"),
        (values.number, "price on request", "no number in 'price on request'"),
        (values.number, "v1.2.3", "not a number"),
        (values.number, "12,345,67", "not a number"),
        (values.number, "1e999", "no number|too large"),
        (values.integer, "9223372036854775808", "too large a number"),
        (values.integer, "1e30", "too large a number"),
        (values.integer, "4.5", "not a whole number: '4.5'"),
        (values.price, "free", "no number in 'free'"),
        (values.currency, "12", "no currency in '12'"),
        (values.boolean, "maybe", "neither true nor false: 'maybe'"),
        (values.date, "", "no date: it is empty"),
        (values.date, "May 2024", "no date in 'May 2024'"),
        (values.date, "2 days ago", "no date in"),
        (values.date, "2024-02-30", "no such day: '2024-02-30'"),
        (values.datetime, "2024-05-01 25:00", "no such time"),
    ],
)
def test_what_cannot_be_read_is_said_in_short(read: Callable[[str], Any], text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read(text)


def test_text_has_single_spaces() -> None:
    assert values.text("  a \n\t b\u00a0c ") == "a b c"


@pytest.mark.parametrize("text", ["9" * 1_000_000, "1,2" * 300_000, "1 " * 500_000, "-" * 1_000_000, "1." * 500_000])
def test_hostile_texts_take_no_time(text: str) -> None:
    for read in (values.number, values.integer, values.price, values.boolean, values.date, values.datetime):
        try:
            read(text)
        except ValueError as error:
            assert len(str(error)) < 100
