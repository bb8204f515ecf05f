from __future__ import annotations

import sys
from typing import Any

import pytest

from shoal.core.page import Response
from shoal.errors import GiveUp, Usage
from shoal.extract.page import Follow, Page

URL = "http://h.example/a/b.html"


def page(
    body: str | bytes = b"", *, kind: str = "text/html; charset=utf-8", url: str = URL, **rest: Any
) -> Page:
    data = body.encode() if isinstance(body, str) else body
    headers = (("content-type", kind), ("x-a", "1"), ("x-a", "2")) if kind else ()
    return Page(Response(url, 200, headers, data), **rest)


LISTING = """<nav><a href="/">home</a></nav><div class="product"><h2><a href="p1.html">p1</a></h2></div>
<div class="product"><a href="p2.html#x">p2</a><a href="p1.html">again</a></div><a name="anchor">none</a>
<p class="next"><a href="?page=2" rel="nofollow">next</a></p><map><area href="/map"></map><a href>empty</a>"""


def hrefs(found: tuple[Follow, ...]) -> list[str]:
    return [href for follow in found for href in follow.hrefs]


def test_a_page_tells_what_was_answered() -> None:
    one = page("<p>é", meta={"k": 1}, depth=3, run="r", task=7)
    assert (one.url, one.status, one.body) == (URL, 200, "<p>é".encode())
    assert (one.meta, one.depth, one.run, one.task) == ({"k": 1}, 3, "r", 7)
    assert one.headers == {"content-type": "text/html; charset=utf-8", "x-a": "1"}
    assert one.content_type == "text/html"
    assert repr(one) == "<Page 200 http://h.example/a/b.html text/html, 5 bytes>"
    assert page().meta == {}


@pytest.mark.parametrize(
    ("body", "kind", "encoding"),
    [
        ("é".encode(), "text/html; charset=UTF-8", "utf-8"),
        ("é".encode(), 'text/html; charset="utf8"', "utf-8"),
        (b"\xef\xbb\xbf" + "é".encode(), "text/html; charset=iso-8859-1", "utf-8"),
        ("\ufeffé".encode("utf-16-le"), "text/html", "utf-16-le"),
        ("\ufeffé".encode("utf-16-be"), "", "utf-16-be"),
        (b"\xe9", "text/html; charset=ISO-8859-1", "cp1252"),
        (b"\xe9", "text/html; charset=latin1", "cp1252"),
        ("<meta charset=windows-1251>é".encode("cp1252"), "text/html; charset=latin1", "cp1252"),
        (b'<META CHARSET="windows-1252">\xe9', "text/html", "cp1252"),
        (b'<meta http-equiv=content-type content="text/html; charset=iso-8859-15">\xe9', "", "iso8859-15"),
        ("<!-- <meta charset=big5> -->é".encode(), "text/html", "utf-8"),
        ("<meta charset=utf-16>é".encode(), "text/html", "utf-8"),
        ("é".encode(), "text/html; charset=nonsense", "utf-8"),
        ("é".encode(), "text/html; charset=rot13", "utf-8"),
        ("é".encode(), "", "utf-8"),
        (b"\xe9", "", "cp1252"),
    ],
)
def test_the_encoding_is_found_as_browsers_do(body: bytes, kind: str, encoding: str) -> None:
    one = page(body, kind=kind)
    assert one.encoding == encoding
    assert one.text.endswith("é")
    assert one.css("body ::text").getall()[-1].endswith("é")


@pytest.mark.parametrize(
    ("codec", "label", "text"),
    [
        ("shift_jis", "Shift_JIS", "日本"),
        ("euc_jp", "euc-jp", "日本"),
        ("gb2312", "gb2312", "中文"),
        ("big5", "big5", "中文"),
        ("euc_kr", "euc-kr", "한국"),
        ("koi8-r", "koi8-r", "Привет"),
        ("cp1251", "windows-1251", "Привет"),
        ("iso8859-2", "iso-8859-2", "Łódź"),
        ("iso8859-9", "iso-8859-9", "İstanbul"),
    ],
)
def test_common_encodings_are_known_by_their_web_names(codec: str, label: str, text: str) -> None:
    assert page(text.encode(codec), kind=f"text/html; charset={label}").text == text


def test_broken_bytes_do_not_stop_a_page() -> None:
    one = page(b'<a href="/\xff">\xff</a>')
    assert one.text == '<a href="/\ufffd">\ufffd</a>'
    assert one.css("a::text").get() == "\ufffd"
    assert one.links() == ["http://h.example/%EF%BF%BD"]


def test_a_byte_order_mark_is_no_text() -> None:
    one = page(b"\xef\xbb\xbf<p>x</p>")
    assert one.text == "<p>x</p>"
    assert one.css("body ::text").getall() == ["x"]


def test_the_document_is_parsed_once() -> None:
    one = page("<p>x")
    assert one.html is one.html


def test_selectors_of_all_kinds_work_on_a_page() -> None:
    one = page(LISTING)
    assert one.css(".next a::text").get() == "next"
    assert one.xpath("//p[@class='next']/a/text()").get() == "next"
    assert one.re(r"p(\d)\.html") == ["1", "2", "1"]
    with pytest.raises(Usage, match=r"XPath '//\['"):
        one.xpath("//[")


def test_json_is_read_or_given_up() -> None:
    assert page(b'{"a": [1]}', kind="application/json").json() == {"a": [1]}
    assert page(b'{"a": "\xe9"}', kind="application/json; charset=latin1").json() == {"a": "é"}
    for bad in (b"<html>", b"", b"[" * 100_000):
        with pytest.raises(GiveUp) as caught:
            page(bad, kind="application/json").json()
        assert caught.value.cause == "decode"


def test_links_are_canonical_and_come_once() -> None:
    one = page(LISTING + '<a href="mailto:x">m</a><a href="http://Other.example">o</a>')
    assert one.links() == [
        "http://h.example/",
        "http://h.example/a/p1.html",
        "http://h.example/a/p2.html",
        "http://h.example/a/b.html?page=2",
        "http://other.example/",
        "http://h.example/map",
    ]
    assert one.links(".product") == ["http://h.example/a/p1.html", "http://h.example/a/p2.html"]
    assert one.links("h2 a") == ["http://h.example/a/p1.html"]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        (".next a, .product a", ["p1.html", "p2.html#x", "p1.html", "?page=2"]),
        (".next, nav", ["/", "?page=2"]),
        (".next a::attr(href)", ["?page=2"]),
        ("area", ["/map"]),
        ("nothing", []),
        (None, []),
        ([], []),
        ("http://other.example/x", ["http://other.example/x"]),
        ("/rooted", ["/rooted"]),
        ("./x", ["./x"]),
        ("../x", ["../x"]),
        ("?page=3", ["?page=3"]),
        ("page-2.html", ["page-2.html"]),
        ("sub/page", ["sub/page"]),
        (["item42", "p3.html"], ["item42", "p3.html"]),
    ],
)
def test_follow_takes_selectors_addresses_and_lists(what: Any, expected: list[str]) -> None:
    assert hrefs(page(LISTING).follow(what)) == expected


def test_follow_without_a_word_takes_every_link() -> None:
    found = page(LISTING).follow()
    assert hrefs(found) == ["/", "p1.html", "p2.html#x", "p1.html", "?page=2", "/map"]
    assert found[0].base == URL


def test_follow_takes_selections() -> None:
    one = page(LISTING)
    assert hrefs(one.follow(one.css(".next a"))) == ["?page=2"]
    assert hrefs(one.follow(one.css(".next a::attr(href)"))) == ["?page=2"]
    assert hrefs(one.follow(one.css(".product"))) == ["p1.html", "p2.html#x", "p1.html"]
    assert hrefs(one.follow(one.css("nav a")[0])) == ["/"]
    assert hrefs(one.follow([one.css("nav a"), "/x"])) == ["/", "/x"]
    assert hrefs(one.follow(a for a in one.css("h2 a"))) == ["p1.html"]


def test_follow_carries_meta_and_priority() -> None:
    (found,) = page(LISTING).follow(".next a", meta={"k": 1}, priority=5)
    assert (found.meta, found.priority) == ({"k": 1}, 5)


def test_a_wrong_selector_in_follow_is_a_usage_error() -> None:
    with pytest.raises(Usage, match="cannot understand the CSS selector 'a:foo'"):
        page(LISTING).follow("a:foo")


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ('<base href="/root/">', "http://h.example/root/x"),
        ('<base target=_top><base href="http://cdn.example/y"><base href="/z/">', "http://cdn.example/x"),
        ('<base href="javascript:1">', "http://h.example/a/x"),
        ('<base href="data:,x">', "http://h.example/a/x"),
    ],
)
def test_the_base_element_is_honoured(base: str, expected: str) -> None:
    one = page(f'<head>{base}</head><a href="x">')
    assert one.links() == [expected]
    assert Page(Response(one.follow()[0].base, 200, (), b'<a href="x">')).links() == [expected]


def test_what_is_no_document_has_no_links() -> None:
    image = page(b'\x89PNG <a href="/x">', kind="image/png")
    assert (image.links(), image.follow()) == ([], ())
    api = page(b'{"next": "/2"}', kind="application/json")
    assert api.follow("/2") == (Follow(("/2",), URL),)


def test_parsel_is_loaded_only_for_xpath() -> None:
    import subprocess

    code = (
        "import sys; from shoal.core.page import Response; from shoal.extract.page import Page;"
        "p = Page(Response('http://h.example/', 200, (), b'<a href=/x>')); p.css('a'); p.follow();"
        "assert 'lxml' not in sys.modules and 'parsel' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
