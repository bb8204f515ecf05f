"""Page memory: what says that a page is the same, and what is made of bytes that come from elsewhere."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest

from shoal.core.page_memory import (
    MAX_UNPACKED,
    PageHead,
    is_known_unchanged,
    is_same_content,
    meta_without_lastmod,
    pack_body,
    pack_head,
    unpack_body,
    unpack_head,
    validator,
)

NOON = 1_763_467_200_000_000  # 2025-11-18T12:00:00Z
URL = "http://a.test/p"


def head(**more: Any) -> PageHead:
    given = {"digest": b"d", "task_url": URL, "url": URL, "rules": b"r", "content": b"c", "fetched_at": NOON}
    return PageHead(**given | {"change": "new"} | more)


@pytest.mark.parametrize(
    ("lastmod", "unchanged"),
    [
        ("2025-11-18T11:59:59Z", True),
        ("2025-11-18T12:00:00+00:00", True),
        ("2025-11-18T12:00:01Z", False),
        ("2025-11-18T13:30:00+02:00", True),
        ("2025-11-18T11:30:00-02:00", False),
        ("2025-11-16", True),
        ("2025-11-17", True),  # over everywhere since noon of the 18th
        ("2025-11-18", False),  # it may have been changed after noon
        ("2025-11-18T00:00:00", True),  # in whatever zone that is
        ("2025-11-18T00:00:01", False),
        (" 2025-11-16 ", True),
        ("2025", False),
        ("yesterday", False),
        ("9999-12-31", False),
        ("", False),
        (None, False),
        (20251101, False),
        ("2" * 100, False),
    ],
)
def test_a_page_is_not_asked_for_that_was_changed_before_it_was_fetched(lastmod: object, unchanged: bool) -> None:
    assert is_known_unchanged(head(), {"lastmod": lastmod}) is unchanged


def test_lastmod_says_nothing_of_pages_behind_a_login_and_of_where_a_redirect_leads() -> None:
    meta = {"lastmod": "2025-01-01"}
    assert is_known_unchanged(head(), meta)
    assert not is_known_unchanged(head(personal=True), meta)
    assert not is_known_unchanged(head(url="http://a.test/other"), meta)
    assert not is_known_unchanged(head(), None)


def test_the_same_bytes_at_the_same_url_are_the_same_page() -> None:
    assert is_same_content(head(), URL, b"c")
    assert not is_same_content(head(), URL, b"x")
    assert not is_same_content(head(), "http://a.test/q", b"c")
    assert not is_same_content(head(personal=True), URL, b"c"), "only its server can tell for whom it is the same"


def test_lastmod_is_no_part_of_what_a_handler_is_told() -> None:
    assert meta_without_lastmod({"lastmod": "x", "a": 1}) == {"a": 1}
    assert meta_without_lastmod({"lastmod": "x"}) is meta_without_lastmod({}) is meta_without_lastmod(None) is None


@pytest.mark.parametrize("value", ['"a"\r\nx: y', "\x00", "ü", "", "a" * 1_001])
def test_a_validator_that_cannot_be_sent_back_is_none(value: str) -> None:
    assert validator(value) == ""


def test_what_is_packed_is_unpacked_and_what_is_not_ours_is_nothing() -> None:
    assert unpack_head(pack_head(head(etag='"x"'))) == head(etag='"x"')
    for data in (b"", b"\xff", msgspec.msgpack.encode([1, 2]), msgspec.msgpack.encode({"digest": b""})):
        assert unpack_head(data) is None
    decode = msgspec.msgpack.Decoder(list[bytes]).decode
    assert unpack_body(pack_body([b"a"]), decode) == [b"a"]
    packed = pack_body([b"a"])
    for data in (b"", b"junk", packed[:-3], pack_body("a"), zlib.compress(bytes(MAX_UNPACKED + 1))):
        assert unpack_body(data, decode) is None
