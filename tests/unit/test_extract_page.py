from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from shoal.core.page import Response
from shoal.core.task import RequestOptions
from shoal.errors import GiveUp, UsageError
from shoal.extract.page import Follow, Page

URL = "http://h.example/a/b.html"


def page(body: str | bytes = b"", *, kind: str = "text/html; charset=utf-8", url: str = URL, **rest: Any) -> Page:
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
def test_follow_takes_selectors_urls_and_lists(what: Any, expected: list[str]) -> None:
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
    with pytest.raises(UsageError, match="cannot understand the CSS selector 'a:foo'"):
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


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"%PDF-1.7\n<a href=/x>", "application/pdf"),
        (b"%PDF-1.7\n<a href=/x>", "text/html"),
        (b"\x89PNG\r\n\x1a\n<a href=/x>", "image/png"),
        (b"anything <a href=/x>", "video/mp4"),
        (b"\x00\x01\x02<a href=/x>", ""),
        (b"\x00\x01\x02<a href=/x>", "application/octet-stream"),
        (b"PK\x03\x04<a href=/x>", "application/zip"),
    ],
)
def test_a_binary_file_is_harmless_and_reaches_a_handler_as_bytes(body: bytes, kind: str) -> None:
    one = page(body, kind=kind)
    assert one.body == body
    assert not one.is_text and not one.is_html
    assert (one.text, one.links(), one.follow(), one.css("a").getall(), one.table()) == ("", [], (), [], [])
    assert (one.xpath("//a").getall(), one.re("href"), one.data()) == ([], [], [])
    assert one.base == one.url
    with pytest.raises(GiveUp):
        one.json()


@pytest.mark.parametrize(
    ("body", "kind", "html"),
    [
        (b"<p>x", "text/html", True),
        (b"<p>x", "application/xhtml+xml", True),
        (b"<p>x", "", True),
        (b"<p>x", "application/octet-stream", True),
        (b"<p>x", "application/json", True),
        (b"<p>x", "text/plain", False),
        (b"<p>x</p>", "application/xml", False),
        (b"<svg/>", "image/svg+xml", False),
        (b'{"a": 1}', "application/json", False),
        (b'{"a": 1}', "", False),
        (b"a,b", "text/csv", False),
        ("\ufeffé".encode("utf-16-le"), "", True),
        (b"", "", True),
    ],
)
def test_text_is_told_from_html(body: bytes, kind: str, html: bool) -> None:
    one = page(body, kind=kind)
    assert (one.is_text, one.is_html) == (True, html)


def test_follow_carries_how_to_ask() -> None:
    one = page(LISTING)
    assert one.follow(".next a")[0].request_options is None
    assert one.follow("/x", method="get")[0].request_options is None
    assert one.follow("/x", body={"q": "ä b", "page": 2, "tag": ["a", "b"], "none": None})[
        0
    ].request_options == RequestOptions(
        "POST", (("Content-Type", "application/x-www-form-urlencoded"),), b"q=%C3%A4+b&page=2&tag=a&tag=b&none="
    )
    assert one.follow("/x", json={"q": 1}, method="put")[0].request_options == RequestOptions(
        "PUT", (("Content-Type", "application/json"),), b'{"q":1}'
    )
    assert one.follow("/x", body=b"raw", headers={"content-type": "x/y"})[0].request_options == RequestOptions(
        "POST", (("content-type", "x/y"),), b"raw"
    )
    assert one.follow("/x", body="ä")[0].request_options == RequestOptions(
        "POST", (("Content-Type", "text/plain; charset=utf-8"),), "ä".encode()
    )
    assert one.follow("/x", headers=[("A", "1"), ("A", "2")], session="s", proxy="p", auth="a")[
        0
    ].request_options == RequestOptions(headers=(("A", "1"), ("A", "2")), session="s", proxy="p", auth="a")
    assert one.follow("/x", body=b"")[0].request_options == RequestOptions("POST", (), b"")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"method": "GET /"}, "not an HTTP method"),
        ({"headers": {"a b": "c"}}, "'a b' cannot be the name of a header"),
        ({"headers": {"a": "b\r\nc: d"}}, "the header a must be one line"),
        ({"headers": {"a": 1}}, "the header a must be one line"),
        ({"body": b"", "json": {}}, "either body or json"),
        ({"auth": "user:password"}, "the name of a secret"),
        ({"proxy": "http://u:p@proxy.example:1"}, "the name of a secret"),
    ],
)
def test_a_request_that_cannot_be_sent_is_a_usage_error(asked: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        page(LISTING).follow("/x", **asked)


async def test_a_page_fetches_others_through_the_worker() -> None:
    asked: list[Any] = []

    async def fetch(url: str, request_options: RequestOptions | None) -> Page:
        asked.append((url, request_options))
        return page("<p>other", url=url)

    one = page('<base href="/root/">', fetch=fetch)
    other = await one.fetch("x?y#z")
    assert other.url == "http://h.example/root/x?y"
    await one.fetch("http://Other.example", json=[1], session="s")
    assert asked == [
        ("http://h.example/root/x?y", None),
        ("http://other.example/", RequestOptions("POST", (("Content-Type", "application/json"),), b"[1]", "s")),
    ]
    with pytest.raises(UsageError, match="not a URL that can be fetched"):
        await one.fetch("mailto:x")


async def test_without_a_worker_fetch_says_where_it_works() -> None:
    with pytest.raises(UsageError, match="in a running scraper only"):
        await page().fetch("/x")


def test_links_are_made_absolute() -> None:
    one = page('<base href="/root/">')
    assert one.absolute("x") == "http://h.example/root/x"
    assert one.absolute("mailto:x") is None


def test_references_that_overrun_the_parser_are_read_all_the_same() -> None:
    # Run in a process of its own: without the guard, the heap is corrupt after it.
    code = (
        "from shoal.core.page import Response; from shoal.extract.page import Page\n"
        "for kind in ('utf-8', 'latin1'):\n"
        "    for n in (1, 5_000, 30_000):\n"
        "        body = b'<p title=\"' + b'&nLt;' * n + b'\">' + b'&nGt;' * n + b' ' * 12_000\n"
        "        headers = (('content-type', 'text/html; charset=' + kind),)\n"
        "        p = Page(Response('http://h.example/', 200, headers, body))\n"
        "        assert p.css('p').text == '\u226b\u20d2' * n, (kind, n)\n"
        "        assert p.css('p').attr('title') == '\u226a\u20d2' * n, (kind, n)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "MALLOC_CHECK_": "3"})


def test_parsel_is_loaded_only_for_xpath() -> None:
    code = (
        "import sys; from shoal.core.page import Response; from shoal.extract.page import Page;"
        "p = Page(Response('http://h.example/', 200, (), b'<a href=/x>')); p.css('a'); p.follow();"
        "assert 'lxml' not in sys.modules and 'parsel' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
