from __future__ import annotations

from typing import Any

import pytest

from shoal.core.page import Response
from shoal.errors import GiveUp
from shoal.extract.page import Page


def page(body: str) -> Page:
    return Page(Response("http://h.example/", 200, (("content-type", "text/html"),), body.encode()))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("<tr><th>a<th>b<tr><td>1<td>2<tr><td>3<td>4", [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        (
            "<tfoot><tr><td>sum<td>9</tfoot><tbody><tr><td>x<td>9</tbody><thead><tr><td>k<td>v</thead>",
            [{"k": "x", "v": "9"}, {"k": "sum", "v": "9"}],
        ),
        # A header in the first column: one record per column.
        ("<tr><th>upc<td>a1<tr><th>tax<td>£0", [{"upc": "a1", "tax": "£0"}]),
        ("<tr><th>n<td>1<td>2<tr><th>m<td>3<td>4", [{"n": "1", "m": "3"}, {"n": "2", "m": "4"}]),
        # A header in both: the row wins, and the column is a value like any other.
        ("<tr><th><th>x<tr><th>r<td>1", [{"1": "r", "x": "1"}]),
        # None at all.
        ("<tr><td>1<td>2<tr><td>3<td>4", [{"1": "1", "2": "2"}, {"1": "3", "2": "4"}]),
        # Spans.
        (
            "<tr><th>a<th>b<th>c<tr><td rowspan=2>1<td>2<td>3<tr><td colspan=2>4",
            [{"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "4", "c": "4"}],
        ),
        (
            "<tr><th>a<th>b<tr><td>1<td rowspan=0>2<tr><td>3<tr><td>4",
            [{"a": "1", "b": "2"}, {"a": "3", "b": "2"}, {"a": "4", "b": "2"}],
        ),
        ("<tr><th>a<th>b<tr><td rowspan=9>1<td>2", [{"a": "1", "b": "2"}]),
        ("<tr><th>a<th>b<tr><td colspan=x>1<td colspan=-3>2", [{"a": "1", "b": "2"}]),
        # Several header rows are joined.
        (
            "<thead><tr><th rowspan=2>name<th colspan=2>price<tr><th>net<th>gross</thead><tr><td>x<td>1<td>2",
            [{"name": "x", "price net": "1", "price gross": "2"}],
        ),
        # Names twice, and none.
        ("<tr><th>a<th>a<th><th>a 2<tr><td>1<td>2<td>3<td>4", [{"a": "1", "a 2": "2", "3": "3", "a 2 2": "4"}]),
        # Ragged rows.
        (
            "<tr><th>a<th>b<tr><td>1<tr><td>1<td>2<td>3<tr></tr>",
            [{"a": "1", "b": "", "3": ""}, {"a": "1", "b": "2", "3": "3"}],
        ),
        # Text as people see it.
        ("<tr><th> a\n <b>b</b><tr><td>x<br>y<script>z</script>", [{"a b": "x y"}]),
        ("<tr><th>only<th>headers", []),
        ("<caption>c</caption><colgroup><col></colgroup>", []),
    ],
)
def test_a_table_becomes_dicts(table: str, expected: list[dict[str, str]]) -> None:
    assert page(f"<table>{table}</table>").table() == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (1, [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]),
        (0, [{"1": "a", "2": "b"}, {"1": "1", "2": "2"}, {"1": "3", "2": "4"}]),
        (2, [{"a 1": "3", "b 2": "4"}]),
        (["x"], [{"x": "a", "2": "b"}, {"x": "1", "2": "2"}, {"x": "3", "2": "4"}]),
        ("column", [{"a": "b", "1": "2", "3": "4"}]),
    ],
)
def test_the_header_can_be_told(header: Any, expected: list[dict[str, str]]) -> None:
    one = page("<table><tr><td>a<td>b<tr><td>1<td>2<tr><td>3<td>4</table>")
    assert one.table(header=header) == expected


def test_a_table_in_a_table_is_text_of_its_cell() -> None:
    one = page("<table id=o><tr><th>a<tr><td>x<table id=i><tr><th>b<tr><td>y</table></table>")
    assert one.table() == [{"a": "x b y"}]
    assert one.table("#i") == [{"b": "y"}]


def test_the_table_is_found_by_selector_or_selection() -> None:
    one = page("<div><table><tr><th>a<tr><td>1</table></div><section><table><tr><th>b<tr><td>2</table></section>")
    assert one.table("section") == [{"b": "2"}]
    assert one.table("div table") == [{"a": "1"}]
    assert one.table(one.css("table")[1]) == [{"b": "2"}]
    assert one.table(one.xpath("//section/table")) == [{"b": "2"}]
    assert one.table(one.xpath("//section")) == [{"b": "2"}]
    assert one.table("p") == []


@pytest.mark.parametrize(
    "table",
    [
        "<tr>" + "<td colspan=1000>" * 600,
        "<tr><td rowspan=65534 colspan=1000>" + "<tr><td>" * 600,
        "<tr>" + "<td colspan=1000>" * 100 + "<tr><td>" * 100,
        "<tr>" + "<th>" * 100 + "<tr><td colspan=1000>" * 501,
    ],
)
def test_a_table_that_claims_too_many_cells_is_given_up(table: str) -> None:
    with pytest.raises(GiveUp) as caught:
        page(f"<table>{table}</table>").table()
    assert caught.value.cause == "too_complex"


def test_thousands_of_columns_of_one_name_take_no_time() -> None:
    (row,) = page("<table><tr>" + "<th>a" * 20_000 + "<tr><td>1</table>").table()
    assert len(row) == 20_000
