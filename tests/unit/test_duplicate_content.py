from __future__ import annotations

from shoal.extract.duplicate_content import EDGE_BYTES, MIN_BYTES, DuplicateContent

PAGE = b"<p>nothing here</p>" * 20


def test_the_same_page_is_counted_per_lane() -> None:
    contents = DuplicateContent()
    assert [contents.times_seen("a.example", PAGE) for _ in range(3)] == [0, 1, 2]
    assert contents.times_seen("b.example", PAGE) == 0
    assert contents.times_seen("a.example", bytes(bytearray(PAGE))) == 3


def test_a_page_that_differs_in_one_byte_is_another_page() -> None:
    contents = DuplicateContent()
    for number in range(100):
        assert contents.times_seen("a.example", PAGE + b"%d" % number) == 0


def test_small_pages_are_not_compared() -> None:
    contents = DuplicateContent()
    assert [contents.times_seen("a.example", b"x" * (MIN_BYTES - 1)) for _ in range(3)] == [0, 0, 0]
    assert [contents.times_seen("a.example", b"x" * MIN_BYTES) for _ in range(2)] == [0, 1]


def test_of_big_bodies_both_ends_and_the_size_count() -> None:
    contents = DuplicateContent()
    big = b"x" * (3 * EDGE_BYTES)
    assert [contents.times_seen("a.example", big) for _ in range(2)] == [0, 1]
    assert contents.times_seen("a.example", big + b"x") == 0
    assert contents.times_seen("a.example", b"y" + big[1:]) == 0
    assert contents.times_seen("a.example", big[:-1] + b"y") == 0


def test_the_least_recently_met_content_is_forgotten_first() -> None:
    contents = DuplicateContent(size=10)
    for number in range(100):
        contents.times_seen("a.example", PAGE)
        contents.times_seen("a.example", PAGE + b"%d" % number)
        assert len(contents) <= 10
    assert contents.times_seen("a.example", PAGE) == 100
    assert contents.times_seen("a.example", PAGE + b"1") == 0
