"""What two ways of fetching a page gave, compared: order, space and empty fields do not count, all else does."""

from __future__ import annotations

import pytest

from shoal.core.page_yield import covers, difference, filled_share, page_yield

A, B = b'{"name": "a", "price": 1}', b'{"name": "b", "price": 2}'


@pytest.mark.parametrize(
    ("http", "browser", "is_enough"),
    [
        ([], [], True),
        ([A, B], [B, A], True),
        ([A, B], [A], True),  # HTTP may have more
        ([A], [A, B], False),
        ([A], [A, A], False),
        ([b'{"price": 1, "name": "  a\\n"}'], [A], True),
        ([b'{"name": "a", "price": 1, "note": null}'], [A], True),
        ([A], [b'{"name": "a", "price": 1, "tags": [], "note": ""}'], True),
        ([b'{"name": "a", "price": null}'], [A], False),
        ([b'{"name": "loading", "price": 1}'], [A], False),
        ([b'{"of": {"x": ["a  b"]}}'], [b'{"of": {"x": ["a b"]}}'], True),
    ],
)
def test_http_is_enough_if_it_has_every_record(http: list[bytes], browser: list[bytes], is_enough: bool) -> None:
    assert covers(page_yield(http, ()), page_yield(browser, ())) is is_enough


def test_links_count_as_well() -> None:
    few, many = (
        page_yield([A], ["https://a.example/1"]),
        page_yield([A], ["https://a.example/1", "https://a.example/2"]),
    )
    assert covers(many, few)
    assert not covers(few, many)
    assert difference(few, many) == "1 of 2 links"
    assert difference(page_yield([], ()), page_yield([A, B], ["https://a.example/1"])) == (
        "2 of 2 records and 1 of 1 links"
    )


@pytest.mark.parametrize(
    ("records", "share"), [([], 1.0), ([A], 1.0), ([b'{"url": "x", "item": null}'], 0.5), ([A, b'{"name": ""}'], 2 / 3)]
)
def test_the_share_of_fields_with_a_value(records: list[bytes], share: float) -> None:
    assert filled_share(records) == pytest.approx(share)
