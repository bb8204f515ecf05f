"""Cells: text that no spreadsheet runs."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.store.cells import decode, escape_formula
from shoal.store.csv import CsvEncoder

SAFE = [
    ("=1+1", "'=1+1"),
    ("+1+1", "'+1+1"),
    ("-1+1", "'-1+1"),
    ("@SUM(A1)", "'@SUM(A1)"),
    ("\t=1", "'\t'=1"),
    ("\r=1", "'\r'=1"),
    ("\n=1", "'\n'=1"),
    (" =1", "' =1"),
    ('"=1', "'\"=1"),
    ("'=1", "''=1"),
    ("\ufeff=1", "'\ufeff=1"),
    ("＝1", "'＝1"),
    ("-", "'-"),
    ("a;=cmd", "a;'=cmd"),
    ('a\n"@x', "a\n\"'@x"),
    ("-5", "-5"),
    ("+3.2", "+3.2"),
    ("-1e5", "-1e5"),
    ("-.5", "-.5"),
    ("-5 °C", "'-5 °C"),
    ("-٣", "'-٣"),
    ("a=b", "a=b"),
    ("a, -b", "a, -b"),
    ("me@example.com", "me@example.com"),
    ("", ""),
    (" ", " "),
]


@pytest.mark.parametrize(("cell", "safe"), SAFE)
def test_a_cell_that_might_run_gets_an_apostrophe(cell: str, safe: str) -> None:
    assert escape_formula(cell) == safe


@settings(derandomize=True, max_examples=300)
@given(st.text("=+-@;,\t\r\n \"'1.e＝a", max_size=12), st.sampled_from(",;\t"))
def test_no_cell_begins_with_a_formula_whatever_the_reader_takes_for_separator(cell: str, separator: str) -> None:
    """Also for a reader that knows nothing of our quotes."""
    text = CsvEncoder(safe=True).lines([["x", cell, "y"]]).decode()
    for row in csv.reader(io.StringIO(text, newline="")):
        assert len(row) == 3
        assert not row[1].startswith(tuple("=@\t\r＝")) and (row[1][:1] not in "+-" or escape_formula(row[1]) == row[1])
    if separator == ",":
        return
    for line in text.splitlines():
        for piece in line.split(separator):
            assert (
                not piece.lstrip(" \"'").startswith(("=", "@"))
                or "'" in piece[: len(piece) - len(piece.lstrip(" \"'"))]
            )


def test_json_that_only_the_wider_reader_takes_is_taken() -> None:
    assert decode(b'{"a": 1e999}') == {"a": float("inf")}
    assert decode(b'{"a": "\\ud800x"}') == {"a": "?x"}
    assert decode(b"[1]") == {"value": [1]}
