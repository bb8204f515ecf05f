from __future__ import annotations

from typing import Any

import pytest

from shoal.core.page import Response
from shoal.errors import GiveUp, UsageError
from shoal.extract.page import Page


def page(body: str | bytes, kind: str = "application/json") -> Page:
    data = body.encode() if isinstance(body, str) else body
    return Page(Response("http://h.example/api", 200, (("content-type", kind),), data))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"a": "\xc3\xa9"}', "application/json"),
        (b'\xef\xbb\xbf{"a": "\xc3\xa9"}', "application/json"),
        (b'{"a": "\xe9"}', "application/json; charset=latin1"),
        ('\ufeff{"a": "é"}'.encode("utf-16-le"), "application/json"),
        (b'{"a": "\\u00e9"}', "text/html"),
        (b'{"a": "\xc3\xa9"}', ""),
    ],
)
def test_json_is_read_in_any_encoding(body: bytes, kind: str) -> None:
    assert page(body, kind).json() == {"a": "é"}


@pytest.mark.parametrize("body", [b"<html>", b"", b"[" * 100_000, b'{"a":' * 100_000, b"[1,]", b"nan", b"\xff"])
def test_what_is_no_json_is_given_up(body: bytes) -> None:
    with pytest.raises(GiveUp, match=r"http://h\.example/api is not JSON") as caught:
        page(body).json()
    assert caught.value.cause == "decode"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (None, {"items": [{"n": 1, "t": "a"}, {"n": 2}], "next": {"page": 2}}),
        ("next.page", 2),
        ("items[0].t", "a"),
        ("items[].n", [1, 2]),
        ("items[?n > `1`].n | [0]", 2),
        ("nothing.at.all", None),
    ],
)
def test_a_path_finds_its_way(path: str | None, expected: Any) -> None:
    one = page('{"items": [{"n": 1, "t": "a"}, {"n": 2}], "next": {"page": 2}}')
    assert one.json(path) == expected


@pytest.mark.parametrize("path", ["items[", "a.b..c", "length(`1`)", "nope(@)"])
def test_a_wrong_path_is_a_usage_error(path: str) -> None:
    with pytest.raises(UsageError, match="cannot use the JMESPath") as caught:
        page("{}").json(path)
    assert repr(path) in str(caught.value)
    assert caught.value.hint


def test_numbers_of_any_length_take_no_time() -> None:
    for body in (b"1" * 1_000_000, b"-" + b"9" * 1_000_000, b"1." + b"1" * 1_000_000, b"1e" + b"9" * 100_000):
        try:
            assert isinstance(page(body).json(), int | float)
        except GiveUp as error:
            assert error.cause == "decode"


def test_json_in_scripts_is_found() -> None:
    one = page(
        '<script type="application/ld+json">{"@type": "Book", "name": "A &amp; B"}</script>'
        '<script type="application/json" id="state">\n [1, 2] </script>'
        '<script type="Application/JSON">{broken</script>'
        '<script>{"not": "marked"}</script><script type="text/javascript">{}</script>',
        "text/html",
    )
    assert one.data() == [{"@type": "Book", "name": "A &amp; B"}, [1, 2]]
    assert one.data("name") == ["A &amp; B"]
    assert page("{}").data() == []
