"""What templates read from pages, and which links they follow."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import dedent
from typing import Any

import msgspec
import pytest

from shoal.core.page import Response
from shoal.errors import GiveUp
from shoal.extract.page import Follow, Page
from shoal.extract.template import Template, TemplateScraper, from_fields, parse, summary
from shoal.extract.template.preview import preview_page

URL = "https://shop.example/catalogue/lamp_1/?x=1"
HTML = """<!doctype html><html lang="en-GB"><head><title>A  Lamp
 · Shop</title><meta name="Description" content=" Bright. "><base href="/catalogue/">
<script type="application/ld+json">{"sku": "L-1", "offers": {"price": "1234.50"}, "tags": ["a", "b"]}
</script>
<script type="application/ld+json">{broken</script></head><body>
<nav><a href="/">Home</a></nav>
<main><h1> A <b>Lamp</b><script>x()</script></h1>
<p class="price"><i></i> £1,234.50 </p><p class="odd">abc</p><p class="empty"> </p>
<p class="stock">In stock (35 copies)</p><p class="water">H<sub>2</sub>O<br>twice</p>
<img class="cover" src="../covers/1.svg"><a class="mail" href="mailto:x@y.example">mail</a>
<time datetime="2024-03-01T10:00:00Z">1 March</time>
<table><tr><th>Colour</th><td>red</td></tr><tr><th>Size</th><td></td></tr></table>
<ul><li class="tag"><a href="tag/a" data-n="1">a</a></li><li class="tag"><a href="tag/b" data-n="x">b</a></li>
<li class="tag"> </li></ul>
<p class="yes">yes</p><input class="in" value="typed"><pre>  two
  lines</pre>
<script id="state">{"user": {"name": "Ann"}, "n": [1, 2]}</script>
<a class="next" href="page-2.html">next</a><a class="next" href="page-2.html">again</a></main>"""


def page_of(
    body: str | bytes = HTML,
    *,
    url: str = URL,
    kind: str = "text/html; charset=utf-8",
    meta: dict[str, Any] | None = None,
    redirects: tuple[str, ...] = (),
) -> Page:
    data = body.encode() if isinstance(body, str) else body
    return Page(Response(url, 200, (("content-type", kind),), data, redirects=redirects), meta=meta)


def items(text: str, page: Page) -> list[Any]:
    """Everything a template yields for a page, by way of JSON as worker processes get it."""
    scraper = TemplateScraper(msgspec.json.decode(msgspec.json.encode(parse(dedent(text))), type=Template))
    handler = scraper.handler_for(page.url)
    assert handler is not None
    return list(handler.func(page))


def value(spec: str, page: Page | None = None) -> Any:
    (record,) = items(f"name: x\nfields:\n  f: {spec}\n", page or page_of())
    return record["f"]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("h1", "A Lamp"),
        ("h1::text", "A"),
        (".price::text", "£1,234.50"),  # the first text is the space before it
        (".water", "H2O twice"),
        ("meta[name=Description]", "Bright."),
        (".in", "typed"),
        (".cover::attr(src)", "../covers/1.svg"),
        (".nothing", None),
        (".empty", None),
        ("{css: .nothing, default: none given}", "none given"),
        ("{css: .empty, default: blank}", "blank"),
        ("{css: pre, type: raw}", "  two\n  lines"),
        ("{css: h1 b, type: html}", "<b>Lamp</b>"),
        ("{css: .price, type: number}", 1234.5),
        ("{css: .price, type: price}", 1234.5),
        ("{css: .price, type: currency}", "GBP"),
        ("{css: .stock, type: integer}", 35),
        (r"{css: .stock, re: '\((\d+)', type: integer}", 35),
        (r"{css: .stock, re: 'nothing', type: integer, default: 0}", 0),
        ("{css: .odd, type: number}", None),
        ("{css: .odd, type: number, default: 0.5}", 0.5),
        ("{css: .yes, type: boolean}", True),
        ("{css: .yes, type: exists}", True),
        ("{css: .nothing, type: exists}", False),
        ("{css: time, type: date}", "2024-03-01"),
        ("{css: .cover, type: url}", "https://shop.example/covers/1.svg"),
        ("{css: '.tag a', type: url}", "https://shop.example/catalogue/tag/a"),
        ("{css: .mail, type: url}", None),
        ("{css: .tag, list: true}", ["a", "b"]),
        ("{css: '.tag a::attr(data-n)', list: true, type: integer}", [1]),
        ("{css: .nothing, list: true}", []),
        ("{css: .nothing, list: true, default: [x]}", ["x"]),
        ("{css: '#state', type: json}", {"user": {"name": "Ann"}, "n": [1, 2]}),
        ("{css: '#state', json: user.name}", "Ann"),
        ("{css: '#state', json: n}", [1, 2]),
        ("{css: '#state', json: 'n[1]', type: text}", "2"),
        ("{css: h1, json: user}", None),
        ("'xpath://h1/b/text()'", "Lamp"),
        ("'xpath://h1'", "A Lamp"),
        ("{xpath: count(//li), type: integer}", 3),
        ("{xpath: '//img', type: url}", "https://shop.example/covers/1.svg"),
        ("{xpath: '//time', type: date}", "2024-03-01"),
        ("{xpath: '//h1/b', type: html}", "<b>Lamp</b>"),
        ("'xpath://p[has-class(\"odd\")]'", "abc"),
        (r"'re:£([\d,.]+)'", "1,234.50"),
        (r"{re: '>(\w)</a>', list: true}", ["a", "b"]),
        ("data:[0].sku", "L-1"),
        ("{data: '[0].offers.price', type: number}", 1234.5),
        ("data:[0].tags", ["a", "b"]),
        ("{data: '[0].tags', list: true}", ["a", "b"]),
        ("{data: '[0].tags', type: text}", "a"),
        ("data:[0].nothing", None),
        ("data:join('', [0])", None),  # a function that does not fit its argument finds nothing
        ("meta:shelf", "attic"),
        ("meta:nothing", None),
        ("value:shop", "shop"),
        ("{value: [1, 2]}", [1, 2]),
        ("page:final_url", URL),
        ("page:url", "https://old.example/"),
        ("page:status", 200),
        ("page:title", "A Lamp · Shop"),
        ("page:description", "Bright."),
        ("page:lang", "en-GB"),
        ("page:published", "2024-03-01T10:00:00+00:00"),
        ("page:host", "shop.example"),
        ("page:content_type", "text/html"),
        ("page:kind", "page"),
    ],
)
def test_a_field_reads(spec: str, expected: Any) -> None:
    page = page_of(meta={"shelf": "attic"}, redirects=("https://old.example/",))
    found = value(spec, page)
    assert found == expected and type(found) is type(expected)


def test_nested_fields_are_records_in_the_record() -> None:
    rows = value("{css: table tr, list: true, fields: {name: th, value: td}}")
    assert rows == [{"name": "Colour", "value": "red"}, {"name": "Size", "value": None}]
    assert value("{css: table tr, fields: {name: th}}") == {"name": "Colour"}
    assert value("{xpath: //tr, list: true, fields: {name: './th'}}") == [{"name": "Colour"}, {"name": "Size"}]
    assert value("{css: .nothing, fields: {a: b}}") is None
    assert value("{css: '.tag a', list: true, fields: {href: '::attr(href)', text: .}}") == [
        {"href": "tag/a", "text": "a"},
        {"href": "tag/b", "text": "b"},
    ]


def test_each_makes_a_record_of_every_element() -> None:
    text = """
    name: x
    each: .tag
    fields:
      name: a
      link: {css: a, type: url}
      of: {css: h1, from: page}
    """
    assert items(text, page_of())[:2] == [
        {"name": "a", "link": "https://shop.example/catalogue/tag/a", "of": "A Lamp"},
        {"name": "b", "link": "https://shop.example/catalogue/tag/b", "of": "A Lamp"},
    ]


def test_json_pages_are_read_by_jmespath() -> None:
    fields = "{id: id, name: user.name, n: {json: n, type: integer}, all: json:@}"
    text = f"name: x\neach: json:items\nfields: {fields}"
    body = '{"items": [{"id": 1, "user": {"name": "Ann"}, "n": "7"}, {"id": 2, "user": null}]}'
    first, second = items(text, page_of(body, kind="application/json"))
    assert (first["id"], first["name"], first["n"]) == (1, "Ann", 7)
    assert second == {"id": 2, "name": None, "n": None, "all": {"id": 2, "user": None}}


def test_a_page_that_is_not_json_is_given_up() -> None:
    with pytest.raises(GiveUp) as caught:
        value("json:a")
    assert caught.value.cause == "decode"


@pytest.mark.parametrize(
    ("spec", "cause", "message"),
    [
        ("{css: .nothing, required: true}", "missing_field", "f: .nothing found nothing on the page"),
        ("{css: .empty, required: true}", "missing_field", "f: .empty found nothing on the page"),
        ("{css: .nothing, list: true, required: true}", "missing_field", "f: .nothing found nothing on the page"),
        ("{css: .stock, re: x9, required: true}", "missing_field", "f: .stock with /x9/ found nothing on the page"),
        ("{css: .odd, type: number, required: true}", "bad_field", "f: 'abc' is not a number"),
        ("{css: .mail, type: url, required: true}", "bad_field", "f: 'mail' is not a URL"),
        (
            "{css: table tr, list: true, fields: {v: {css: td, required: true}}}",
            "missing_field",
            "f.v: td found nothing on the page",
        ),
    ],
)
def test_a_required_field_without_a_value_fails_the_page(spec: str, cause: str, message: str) -> None:
    with pytest.raises(GiveUp) as caught:
        value(spec)
    assert (caught.value.cause, str(caught.value)) == (cause, message)


def test_a_failure_in_one_of_several_records_says_in_which() -> None:
    with pytest.raises(GiveUp, match=r"n: 'x' is not a whole number in item 2 of the page"):
        items("name: x\neach: '.tag a'\nfields: {n: {css: '::attr(data-n)', type: integer, required: true}}", page_of())


def test_values_that_are_not_of_their_type_are_counted() -> None:
    scraper = TemplateScraper(parse("name: x\nfields: {n: {css: .odd, type: number}, t: h1}"))
    for _ in range(2):
        handler = scraper.handler_for(URL)
        assert handler is not None
        assert list(handler.func(page_of())) == [{"n": None, "t": "A Lamp"}]
    assert scraper.unread == {"n": 2}


def links(text: str, page: Page | None = None) -> list[tuple[tuple[str, ...], dict[str, Any] | None, int]]:
    found = items("name: x\n" + text, page or page_of())
    return [(one.hrefs, one.meta, one.priority or 0) for one in found if isinstance(one, Follow)]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("follow: .next", [(("page-2.html",), None, 0)]),
        ("follow: ul", [(("tag/a", "tag/b"), None, 0)]),
        ("follow: [{css: '.tag a', max: 1}]", [(("tag/a",), None, 0)]),
        ("follow: xpath://li/a", [(("tag/a", "tag/b"), None, 0)]),
        ("follow: xpath://li/a/@href", [(("tag/a", "tag/b"), None, 0)]),
        ("follow: .nothing", []),
        ("follow: {match: '*/none/*'}", []),
        ("follow: /catalogue/tag/*", [(tuple(f"https://shop.example/catalogue/tag/{n}" for n in "ab"), None, 0)]),
        ("follow: {css: .tag, match: '*/b'}", [(("https://shop.example/catalogue/tag/b",), None, 0)]),
        (
            "follow: {css: .next, priority: 5, meta: {title: h1, from: page:host, n: {value: 1}}}",
            [(("page-2.html",), {"title": "A Lamp", "from": "shop.example", "n": 1}, 5)],
        ),
        (
            "follow: {each: .tag, css: a, meta: {tag: a}}",
            [(("tag/a",), {"tag": "a"}, 0), (("tag/b",), {"tag": "b"}, 0)],
        ),
        ("paging: .next", [(("page-2.html",), None, 1)]),
        ("paging: {next: .next, max: 3}", [(("page-2.html",), {"_paging": 2}, 1)]),
    ],
)
def test_links_are_followed_by(rule: str, expected: list[Any]) -> None:
    assert links(rule) == expected


def test_paging_ends_after_so_many_pages_and_carries_what_came_along() -> None:
    rule = "paging: {next: .next, max: 3}"
    (second,) = links(rule, page_of(meta={"shelf": "attic"}))
    assert second[1] == {"shelf": "attic", "_paging": 2}
    (third,) = links(rule, page_of(meta=second[1]))
    assert third[1] == {"shelf": "attic", "_paging": 3}
    assert links(rule, page_of(meta=third[1])) == []


def test_follow_true_goes_where_a_page_without_a_kind_would() -> None:
    text = "pages: [{match: '*/tag/*', fields: {a: h1}}, {match: '*_1/*', follow: true}]"
    assert [one[0] for one in links(text)] == [tuple(f"https://shop.example/catalogue/tag/{n}" for n in "ab")]


def test_the_first_kind_that_matches_takes_the_page() -> None:
    scraper = TemplateScraper(
        parse(
            dedent("""
            name: shop
            start: https://shop.example/
            hosts: "*.shop.example"
            settings: {rate: 2}
            pages:
              - {kind: lamp, match: [/catalogue/*_*/, /lamps/*], fields: {kind: page:kind}}
              - {kind: list, match: /catalogue/*, fields: {kind: page:kind}}
            """)
        )
    )
    kinds: Mapping[str, str] = {
        "https://shop.example/catalogue/lamp_1/": "lamp",
        "https://shop.example/lamps/1": "lamp",
        "https://shop.example/catalogue/": "list",
    }
    for url, kind in kinds.items():
        handler = scraper.handler_for(url)
        assert handler is not None
        assert list(handler.func(page_of(url=url))) == [{"kind": kind}]
    assert scraper.handler_for("https://shop.example/about") is None
    assert (scraper.name, scraper.start, scraper.settings) == ("shop", ("https://shop.example/",), {"rate": 2})
    assert scraper.in_scope("a.shop.example") and not scraper.in_scope("b.example")


def only_record(scraper: TemplateScraper, page: Page) -> dict[str, Any]:
    handler = scraper.handler_for(page.url)
    assert handler is not None
    (record,) = handler.func(page)
    assert isinstance(record, dict)
    return record


def test_a_summary_says_what_any_page_says_about_itself() -> None:
    record = only_record(TemplateScraper(summary()), page_of(meta={"input": "shop.example/lamp"}))
    assert list(record) == [
        "url", "final_url", "status", "title", "description", "lang", "published", "text", "fetched_at",
    ]  # fmt: skip
    assert (record["url"], record["final_url"]) == ("shop.example/lamp", URL)
    assert record["text"].splitlines()[:2] == ["A Lamp", "£1,234.50"]
    assert "Home" not in record["text"] and "x()" not in record["text"]
    assert "Colour red" in record["text"].splitlines()
    assert record["fetched_at"].endswith("Z")


def test_without_a_written_url_the_one_asked_for_is_the_url() -> None:
    record = only_record(TemplateScraper(from_fields("x", {"t": "h1"})), page_of(redirects=("https://a.example/",)))
    assert record == {"url": "https://a.example/", "t": "A Lamp"}


def test_a_text_is_cut_at_100_kb() -> None:
    record = only_record(TemplateScraper(summary()), page_of("<p>" + "löng " * 50_000))
    assert 99_000 < len(record["text"].encode()) <= 100_000


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (b"%PDF-1.7 \xff\x00<a href=x>", "application/pdf", None),
        (b"\x89PNG", "image/png", None),
        (b'{"a": 1}', "application/json", '{"a": 1}'),
        (b"plain words", "text/plain", "plain words"),
        (b"", "text/html", None),
    ],
)
def test_pages_that_are_no_html_are_harmless(body: bytes, kind: str, text: str | None) -> None:
    record = only_record(TemplateScraper(summary()), page_of(body, kind=kind))
    assert (record["text"], record["title"], record["status"]) == (text, None, 200)
    page = page_of(body, kind=kind)
    assert items("name: x\nfields: {a: h1, b: 'xpath://h1', c: data:a}\nfollow: a", page) == [
        {"a": None, "b": None, "c": None}
    ]


def test_a_trial_names_every_field_that_finds_nothing() -> None:
    fields = "{t: {css: .nope, required: true}, n: {css: .odd, type: number}, a: h1, b: .no}"
    text = f"name: x\nfields: {fields}\nfollow: .next"
    (trial,) = preview_page(TemplateScraper(parse(text)), page_of())
    (record,) = trial.records
    assert [(one.field, one.value, one.problem, one.fatal) for one in record] == [
        ("t", None, ".nope found nothing on the page", True),
        ("n", None, "'abc' is not a number", False),
        ("a", "A Lamp", "", False),
        ("b", None, ".no found nothing", False),
    ]
    assert trial.failed and trial.links == ("https://shop.example/catalogue/page-2.html",)


def test_a_trial_tells_which_kind_would_get_the_page() -> None:
    text = "name: x\npages: [{kind: a, match: '*_*', fields: {t: h1}}, {kind: b, match: /cat*, fields: {t: h1}}]"
    trials = preview_page(TemplateScraper(parse(text)), page_of())
    assert [(one.kind, one.is_first) for one in trials] == [("a", True), ("b", False)]
    assert [one.kind for one in preview_page(TemplateScraper(parse(text)), page_of(), "b")] == ["b"]
