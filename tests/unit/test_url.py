from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from shoal.core import url as url_module
from shoal.core.task import RequestOptions, digest
from shoal.core.url import (
    MAX_LENGTH,
    Resolver,
    canonical,
    has_other_scheme,
    host_of,
    lane_of,
    path_of,
    problem,
    request_digest,
    resolve,
)
from shoal.errors import InvalidUrl


@pytest.mark.parametrize(
    ("given_url", "expected"),
    [
        ("http://example.com", "http://example.com/"),
        ("HTTP://EXAMPLE.com:80/A", "http://example.com/A"),
        ("https://example.com:443/", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com:8080/", "http://example.com:8080/"),
        ("http://example.com/#top", "http://example.com/"),
        ("http://example.com/a?b=2&a=1#c?d", "http://example.com/a?b=2&a=1"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/%7euser/%2fx%c3%a9", "http://example.com/~user/%2Fx%C3%A9"),
        ("http://example.com/a b?c d", "http://example.com/a%20b?c%20d"),
        ("http://example.com/größe", "http://example.com/gr%C3%B6%C3%9Fe"),
        ("  http://example.com/a\nb\t ", "http://example.com/ab"),
        (r"http:\\example.com\a", "http://example.com/a"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://127.0.0.1:8000/x", "http://127.0.0.1:8000/x"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("http://[0:0::1]:81/x", "http://[::1]:81/x"),
        ("http://example.com/%%41", "http://example.com/%%41"),
        ("http://example.com/?", "http://example.com/?"),
        ("http://@example.com/", "http://example.com/"),
        ("http://example.com/a #b", "http://example.com/a%20"),
        ("http://example.com/a ", "http://example.com/a"),
        ("http://example.com./", "http://example.com./"),
        ("http://xn--a.example/", "http://xn--a.example/"),
        ("http://faß.example/", "http://xn--fa-hia.example/"),
        ("http://example.com/\ud83d\ude00\ud800", "http://example.com/%F0%9F%98%80%EF%BF%BD"),
    ],
)
def test_canonical_is_the_one_spelling_browsers_agree_on(given_url: str, expected: str) -> None:
    assert canonical(given_url) == expected


@pytest.mark.parametrize(
    ("given_url", "says"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("#top", "empty"),
        ("example.com/a", "no http:// or https://"),
        ("example.com:8080/a", "no http:// or https://"),
        ("localhost:8000", "no http:// or https://"),
        ("//example.com/", "no http:// or https://"),
        ("/a/b", "no http:// or https://"),
        ("hello", "not a URL"),
        ("see example.com", "not a URL"),
        ("N/A", "not a URL"),
        ("'http://example.com/'", "quotes or brackets around it"),
        ("<http://example.com/>", "quotes or brackets around it"),
        ("ftp://example.com/", "ftp: is not http or https"),
        ("htp://example.com/", "htp: is not http or https"),
        ("mailto:a@example.com", "mailto: is not http or https"),
        ("javascript:void(0)", "javascript: is not http or https"),
        ("http://", "no host"),
        ("https:///", "no host"),
        ("http://:80/", "no host"),
        ("http://?a", "no host"),
        ("http://exa mple.com/", "its host contains a space"),
        ("http://exa\nmp^le.com/", "its host contains '^'"),
        ("http://50%.example.com/", "its host contains '%'"),
        ("http://example.com:99999/", "port 99999 does not exist"),
        ("http://example.com:8o/", "'8o' is not a port"),
        ("http://[::1/", "no ] after its IPv6 address"),
        ("http://[::g]/", "not an IPv6 address in its [ ]"),
        ("http://256.1.1.1/", "256.1.1.1 is not an IP address"),
        ("http://1.2.3.4.5:80/", "1.2.3.4.5 is not an IP address"),
        ("http://a.0xg.256/", "a.0xg.256 is not an IP address"),
        ("http://xn--ü/", "not a host name that can exist"),
        ("http://\ud800/", "not a host name that can exist"),
        ("http://user:secret@example.com/", "carries a user name or password"),
        ("http:user:secret@example.com", "carries a user name or password"),
        ("http://secret@exa mple.com/", "its user name, host or port cannot be read"),
        ("http://user:secret/@example.com/", "its user name, host or port cannot be read"),
        ("http://example.com/" + "a" * MAX_LENGTH, "8,211 characters long, at most 8,192 are allowed"),
        ("http://example.com/" + "é" * 3000, "18,019 characters long, at most 8,192 are allowed"),
    ],
)
def test_what_cannot_be_fetched_is_refused_with_a_reason_and_a_way_out(given_url: str, says: str) -> None:
    with pytest.raises(InvalidUrl) as caught:
        canonical(given_url)
    assert str(caught.value).endswith(f": {says}")
    assert problem(given_url) == says
    assert "secret" not in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("href", "expected"),
    [
        ("/x?y=1", "http://h.example/x?y=1"),
        ("x.html", "http://h.example/a/b/x.html"),
        ("./x", "http://h.example/a/b/x"),
        ("../x", "http://h.example/a/x"),
        ("../../../x", "http://h.example/x"),
        ("..", "http://h.example/a/"),
        ("../", "http://h.example/a/"),
        ("..//x", "http://h.example/a//x"),
        ("?p=2", "http://h.example/a/b/c?p=2"),
        ("//other.example/x", "http://other.example/x"),
        ("https://other.example", "https://other.example/"),
        ("x#frag", "http://h.example/a/b/x"),
        (" x ", "http://h.example/a/b/x"),
        ("x:1", None),
        ("x/y:1", "http://h.example/a/b/x/y:1"),
        ("#top", None),
        ("", None),
        ("  ", None),
        ("mailto:a@b.example", None),
        ("JavaScript:void(0)", None),
        ("tel:+49123", None),
        ("data:text/html,x", None),
        ("http://user:secret@h.example/", None),
        ("http://[bad/", None),
        ("a" * 9000, None),
        ("/" + "é" * 3000, None),
    ],
)
def test_links_are_resolved_as_browsers_do(href: str, expected: str | None) -> None:
    assert resolve("http://h.example/a/b/c?d=e#f", href) == expected


PIECES = [
    "http:", "https:", "mailto:", "//", "/", "/", "..", "../", "../", "./", ".", "?", "#", "&", "=", ":", "@",
    "%", "%2e", "%41", "%zz", ":80", ":443", ":8080", "a", "B", "9", "example.com", "xn--a", "127.0.0.1",
    "1.2", "0x7f", "[::1]", " ", "\t", "\n", "\\", "é", "|", "^", "'", '"', "<", "`", "{", "[", "]", "~", "_",
    "-", "!", "$", "(", "*", "+", ",", ";", "\x00", "\x7f", "\ud800", "h", "ht",
]  # fmt: skip
hrefs = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
HOSTS = [
    "example.com", "a.b-c.d_e", "EXAMPLE.com", "127.0.0.1", "127.1", "256.1.1.1", "01.2.3.4", "a.1", "a.0x1",
    "1a", "xn--a", "xn--0", "a.xn--", "xn--bcher-kva.de", "xn--80ak6aa92e.xn--p1ai", "a.", ".a", "a..b", "-",
    "[::1]", "u@a", "",
]  # fmt: skip
PORTS = ["", ":", ":80", ":443", ":080", ":8080", ":0", ":65535", ":65536", ":59999", ":99999"]
absolute = st.one_of(
    hrefs,
    st.tuples(
        st.sampled_from(["http://", "https://", "http:/", "HTTP://"]),
        st.sampled_from(HOSTS),
        st.sampled_from(PORTS),
        st.sampled_from(["", "/", "/a", "?b"]),
        hrefs,
    ).map("".join),
)
BASES = [
    "http://h.example/a/b/c?d=e/f",
    "https://h.example:8443/",
    "http://127.0.0.1:8000/x//y/",
    "http://[::1]/a%20b/c",
    "http://h.example//x",
]


def by_ada(base: str, href: str) -> str | None:
    head, mark, _ = href.partition("#")
    return Resolver(base)._parsed(head, mark)


def absolute_by_ada(text: str) -> str | None:
    head, mark, _ = text.partition("#")
    return url_module._fetchable(url_module._read(head + mark))


@settings(max_examples=700, deadline=None)
@given(st.sampled_from(BASES), st.one_of(hrefs, absolute))
@example(BASES[0], "")
@example(BASES[3], "../../..//x")
def test_the_string_path_of_resolve_answers_as_the_parser_does(base: str, href: str) -> None:
    found = Resolver(base).resolve(href)
    assert found == by_ada(base, href)
    if found is not None:
        assert canonical(found) == found
        assert found == found[: found.index("/") + 2] + lane_of(found) + path_of(found)


@settings(max_examples=700, deadline=None)
@given(absolute)
def test_the_string_path_of_canonical_answers_as_the_parser_does(text: str) -> None:
    try:
        found: str | None = canonical(text)
    except InvalidUrl:
        found = None
    assert found == absolute_by_ada(text)
    if found is not None:
        assert canonical(found) == found
        assert resolve("http://ignored.example/", found) == found
        assert "#" not in found


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(BASES), st.lists(hrefs, max_size=6))
@example("http://h.example/x", ["..//y", "../x", "../\\y", "../\t/y"])
def test_a_relative_link_written_as_a_rooted_one_leads_to_the_same_place(base: str, links: list[str]) -> None:
    resolver = Resolver(base)
    for href, path in resolver.paths(links):
        # "" and "#x" lead nowhere where a rooted link leads to the directory: both are known pages.
        if href.partition("#")[0]:
            assert resolver.resolve(href) == resolver.resolve(path)


@pytest.mark.parametrize(
    ("given_url", "host", "lane", "path"),
    [
        ("http://example.com/", "example.com", "example.com", "/"),
        ("https://example.com/a?b", "example.com", "example.com", "/a?b"),
        ("http://example.com:8080/a", "example.com", "example.com:8080", "/a"),
        ("https://a/", "a", "a", "/"),
        ("http://[::1]/x", "[::1]", "[::1]", "/x"),
        ("http://[::1]:81/x:2", "[::1]", "[::1]:81", "/x:2"),
    ],
)
def test_the_parts_of_a_canonical_url(given_url: str, host: str, lane: str, path: str) -> None:
    assert (host_of(given_url), lane_of(given_url), path_of(given_url)) == (host, lane, path)


PLAIN = digest("GET http://a.example/")


@pytest.mark.parametrize(
    "request_options",
    [
        None,
        RequestOptions(),
        RequestOptions(method="get"),
        RequestOptions(body=b""),
        RequestOptions(proxy="office"),
        RequestOptions(headers=(("Referer", "http://b.example/"),)),
    ],
)
def test_a_plain_get_is_one_request_by_whatever_way_it_goes(request_options: RequestOptions | None) -> None:
    assert request_digest("http://a.example/", request_options) == PLAIN


def test_requests_that_may_be_answered_otherwise_are_not_the_same() -> None:
    asks = [
        None,
        RequestOptions(method="POST"),
        RequestOptions(method="HEAD"),
        RequestOptions(method="POST", body=b"a"),
        RequestOptions(method="POST", body=b"b"),
        RequestOptions(body=b"a"),
        RequestOptions(session="a"),
        RequestOptions(session="b"),
        RequestOptions(auth="a"),
        RequestOptions(session="a", auth="a"),
        RequestOptions(headers=(("Accept", "a"),)),
        RequestOptions(headers=(("Accept", "b"),)),
        RequestOptions(headers=(("Accept", "a"), ("X", "b"))),
    ]
    assert len({request_digest("http://a.example/", request_options) for request_options in asks}) == len(asks)
    assert request_digest("http://a.example/", asks[1]) != request_digest("http://a.example/b", asks[1])


def test_headers_are_compared_without_case_and_order() -> None:
    one = RequestOptions(headers=(("Accept", "a"), ("X", "b")))
    other = RequestOptions(headers=(("x", "b"), ("ACCEPT", "a")))
    assert request_digest("http://a.example/", one) == request_digest("http://a.example/", other)


@pytest.mark.parametrize(
    ("href", "other"),
    [("mailto:x", True), (" TEL:1", True), ("http://x", False), ("HTTPS:x", False), ("a/b:c", False), ("", False)],
)
def test_links_of_another_scheme_are_told_apart(href: str, other: bool) -> None:
    assert has_other_scheme(href) is other


def test_plain_urls_need_no_parser() -> None:
    code = (
        "import sys; from shoal.core.url import resolve;"
        "assert resolve('http://127.0.0.1:8000/a', '/b?c=1') == 'http://127.0.0.1:8000/b?c=1';"
        "assert 'ada_url' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def documented(heading: str) -> list[list[str]]:
    """The rows of the tables below a heading of the page on addresses, what is in code marks of each cell."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "urls.md").read_text("utf-8")
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return [["\n".join(re.findall("`([^`]+)`", cell)) or cell.strip() for cell in row] for row in rows]


def test_the_documented_rules_are_true() -> None:
    rows = [row for row in documented("The canonical form") if row[0] != "rule"]
    assert len(rows) == 12
    for _, written, expected in rows:
        if expected == "refused":
            assert problem(written)
        else:
            assert canonical(written) == expected


def test_the_documented_reasons_are_true() -> None:
    examples = [row for row in documented("What is not a URL") if row[-1].strip(" |") and row[0] != "reason"]
    for reason, shown in examples:
        for text in shown.split("\n"):
            if reason not in ("several URLs on one line", "not a host name that can exist"):
                assert problem(text) == reason
    assert len(examples) == 12
