from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core.url import UrlNormalizer, canonical

H = "http://h.example"
SORT = UrlNormalizer(sort_query=True)
DROP = UrlNormalizer(drop_tracking=True)
BOTH = UrlNormalizer(sort_query=True, drop_tracking=True)


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        ("/x", "/x"),
        ("/x?", "/x?"),
        ("/x?a=1", "/x?a=1"),
        ("/x?b=1&a=2", "/x?a=2&b=1"),
        ("/x?b=1&a=2&a=1&b=0", "/x?a=2&a=1&b=1&b=0"),
        ("/x?a10&a9&a", "/x?a&a10&a9"),
        ("/x?b&&a", "/x?&a&b"),
        ("/x?b=?&a=/;", "/x?a=/;&b=?"),
        ("/b=1&a=2", "/b=1&a=2"),
        ("/x?utm_source=a&a=1", "/x?a=1&utm_source=a"),
    ],
)
def test_a_sorted_query_goes_by_name_and_keeps_the_order_of_equal_names(given_url: str, expected: str) -> None:
    assert SORT(H + given_url) == H + expected


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        ("/x?b=1&a=2", "/x?b=1&a=2"),
        ("/x?utm_source=a&utm_medium=b&UTM_Campaign=c", "/x"),
        ("/x?b=1&gclid=x&a=2&fbclid=y", "/x?b=1&a=2"),
        ("/?msclkid=1&mc_cid=2&mc_eid=3&igshid=4&yclid=5&dclid=6&gbraid=7&wbraid=8&_ga=9&_gl=1&ref_src=2", "/"),
        ("/x?utm=1&ref=2&gclids=3&source=4", "/x?utm=1&ref=2&gclids=3&source=4"),
        ("/x?q=utm_source=a", "/x?q=utm_source=a"),
        ("/x?utm_source", "/x"),
        ("/x?", "/x?"),
        ("/x?a&&b", "/x?a&&b"),
        ("/x?PHPSESSID=abc&a=1", "/x?a=1"),
        ("/x?jsessionid=1", "/x"),
        ("/x?ASPSESSIONIDABCD=1", "/x"),
        ("/x?sid=0123456789abcdef0123", "/x"),
        ("/x?sessionid=q1w2e3r4t5y6u7i8o9p0", "/x"),
        ("/x?sid=17&session=morning&sessionid=", "/x?sid=17&session=morning&sessionid="),
        ("/x?sid=the-second-of-our-sessions", "/x?sid=the-second-of-our-sessions"),
        ("/x;jsessionid=0A1B.node2?a=1", "/x?a=1"),
        ("/x;JSESSIONID=1/y;v=2;jsessionid=3", "/x/y;v=2"),
        ("/;jsessionid=1", "/"),
        ("/x;sid=0123456789abcdef/y", "/x/y"),
        ("/x;sid=12/y", "/x;sid=12/y"),
        ("/(S(lit3py55t21z5v55vlm25s55))/a.aspx", "/a.aspx"),
        ("/(S(a1)F(b2))/a.aspx", "/a.aspx"),
        ("/f(x)/(y)/z", "/f(x)/(y)/z"),
        ("/a/..;jsessionid=1/b", "/b"),
        ("/?utm_y=%&%75tm_x=1&b=%7e", "/?b=~"),
    ],
)
def test_tracking_and_session_ids_are_taken_out_and_nothing_else(given_url: str, expected: str) -> None:
    assert DROP(H + given_url) == H + expected


def test_a_host_is_never_rewritten() -> None:
    url = canonical("http://a;jsessionid=b/?c")
    assert BOTH(url) == url


def test_both_together_and_neither() -> None:
    assert BOTH(H + "/x;jsessionid=1?b=1&gclid=2&a=3") == H + "/x?a=3&b=1"
    assert UrlNormalizer()(H + "/x;jsessionid=1?b=1&gclid=2&a=3") == H + "/x;jsessionid=1?b=1&gclid=2&a=3"
    assert [bool(rewrite) for rewrite in (UrlNormalizer(), SORT, DROP, BOTH)] == [False, True, True, True]


PIECES = [
    "/", "..", ".", ";jsessionid=1", ";sid=0123456789abcdef", "/(S(a1))", "(", ")", "?", "&", "=", "a", "b",
    "%", "%7", "%75tm_x", "%2e", "utm_", "gclid", "sid=", "0123456789abcdef", "e", "%3f", "%26",
]  # fmt: skip


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=10).map("".join), st.sampled_from([SORT, DROP, BOTH]))
def test_what_is_rewritten_is_canonical_and_stays_as_it_is(rest: str, rewrite: UrlNormalizer) -> None:
    changed = rewrite(canonical(f"{H}/{rest}"))
    assert canonical(changed) == changed
    assert rewrite(changed) == changed
