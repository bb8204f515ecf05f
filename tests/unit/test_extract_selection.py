from __future__ import annotations

import parsel
import pytest
from selectolax.lexbor import LexborHTMLParser

from shoal.core.page import Response
from shoal.errors import UsageError
from shoal.extract.page import Page
from shoal.extract.selection import Selection, select

HTML = """<!doctype html><html><head><title>A &amp; B</title><script>var a = "<b>";</script></head><body>
<div id="o" class="box">t1<div id="i">t2<p title="pt" class="x">x<b>y</b></p></div>t3<!-- c -->t4</div>
<ul><li class="first">one<li>two &lt;3</li><li data-k="a,b">three<br>four</li></ul>
<a href="/1" title="T">l1</a><a href>l2</a><a>l3</a><area href="/m"><img src="i.png" alt="a::text">
<p class="x">last</p></body></html>"""


def page() -> Selection:
    return Selection(list(select(LexborHTMLParser(HTML), "html")))


@pytest.mark.parametrize(
    "selector",
    [
        "title::text",
        "script::text",
        "div::text",
        "#o::text",
        "#i::text",
        "#o ::text",
        "#o *::text",
        "#o > ::text",
        "#o > *::text",
        "li::text",
        "ul ::text",
        "::text",
        "*::text",
        "p::text, b::text",
        "b::text, p::text, #i::text",
        "a::attr(href)",
        "a::attr( title )",
        "a::attr(nothing)",
        "::attr(href)",
        "body ::attr(title)",
        "a::attr(title), a::attr(href)",
        "a::attr(href), a::text, #o b::text",
        "p.x::text, p::attr(class), p.x::attr(title)",
        "[data-k='a,b']::text",
        "[alt='a::text']::attr(alt)",
        "img[alt='a::text']::attr(src), title::text",
        "li:not(.first)::text",
        "li:nth-child(2)::text , a::text",
        "nothing::text",
        "li.first::text,li.first::text",
    ],
)
def test_pseudo_elements_give_what_parsel_gives(selector: str) -> None:
    theirs = parsel.Selector(HTML).css(selector)
    assert page().css(selector).getall() == theirs.getall()
    assert page().css(selector).get() == theirs.get()


@pytest.mark.parametrize(
    "steps",
    [
        ("#o", "::text"),
        ("#o", "div::text"),
        ("#o", "div p::text"),
        ("div", "p::text"),
        ("ul", "li", "::text"),
        ("li", "b"),
        ("a", "::attr(href)"),
        ("a::text", "b"),
    ],
)
def test_chained_selectors_find_what_parsel_finds(steps: tuple[str, ...]) -> None:
    ours, theirs = page(), parsel.Selector(HTML)
    for step in steps:
        ours, theirs = ours.css(step), theirs.css(step)
    assert ours.getall() == theirs.getall()


def test_elements_come_once_and_in_document_order() -> None:
    found = page().css("p, .x, b, #i")
    assert [one.nodes[0].tag for one in found] == ["div", "p", "b", "p"]


def test_a_mixed_selection_keeps_elements_and_texts_apart() -> None:
    found = page().css("b, b::text, a::attr(title)")
    assert found.getall() == ["<b>y</b>", "y", "T"]
    assert (len(found.nodes), found.strings) == (1, ["y", "T"])


def test_get_gives_the_first_or_the_default() -> None:
    assert page().css("b").get() == "<b>y</b>"
    assert page().css("nothing").get() is None
    assert page().css("nothing").get("none") == "none"


def test_a_selection_behaves_like_a_list() -> None:
    items = page().css("li")
    assert len(items) == 3
    assert items and not page().css("nothing")
    assert [item.css("::text").get() for item in items] == ["one", "two <3", "three"]
    assert items[0].attrib == {"class": "first"}
    assert items[-1].css("::text").getall() == ["three", "four"]
    assert len(items[1:]) == 2
    with pytest.raises(IndexError):
        items[3]


def test_attrib_is_that_of_the_first_element() -> None:
    assert page().css("a").attrib == {"href": "/1", "title": "T"}
    assert page().css("a")[1].attrib == {"href": ""}
    assert page().css("nothing").attrib == {}


def test_text_is_what_people_read() -> None:
    assert page().css("#o").text == "t1 t2 x y t3 t4"
    assert page().css("ul").text == "one two <3 three four"
    assert "var a" not in page().text
    assert page().css("script").text.startswith("var a")
    assert page().css("li::text").text == "one two <3 three four"
    assert page().css("nothing").text == ""


def test_regular_expressions_flatten_their_groups() -> None:
    assert page().css("a::text").re(r"l\d") == ["l1", "l2", "l3"]
    assert page().css("a::text").re(r"(l)(\d)") == ["l", "1", "l", "2", "l", "3"]
    assert page().css("a::text").re_first(r"\d") == "1"
    assert page().css("a::text").re_first(r"z") is None
    assert page().css("a::text").re_first(r"z", "-") == "-"


@pytest.mark.parametrize(
    ("selector", "says"),
    [
        ("a:foo", "character 2, ':foo'"),
        ("p, a[", "character 5, '['"),
        ("div >", "character 5, '>'"),
        ("a,,b", "character 2"),
        ("", "its end"),
        ("a::foo", "unknown pseudo-element at character 2, '::foo'"),
        ("p, a::before b", "unknown pseudo-element at character 5"),
        ("a::text b", "unknown pseudo-element at character 2"),
        ("a:foo::text", "character 2, ':foo::text'"),
    ],
)
def test_a_wrong_selector_is_named_with_the_place_of_the_trouble(selector: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        page().css(selector)
    assert repr(selector) in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.hint


def test_the_hint_knows_common_mistakes() -> None:
    with pytest.raises(UsageError) as caught:
        page().css("//a/@href")
    assert "page.xpath" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        page().css('a:contains("x")')
    assert ":lexbor-contains" in caught.value.hint


def test_a_wrong_regular_expression_is_named() -> None:
    with pytest.raises(UsageError, match=r"'\(': missing \)"):
        page().css("a").re("(")


def test_the_repr_shows_what_was_found() -> None:
    assert repr(page().css("a::text")) == "<Selection of 3: 'l1', 'l2', 'l3'>"
    assert repr(page().css("li, p")).endswith(", …>")


def web_page(body: str = HTML, kind: str = "text/html") -> Page:
    return Page(Response("http://h.example/a/b", 200, (("content-type", kind),), body.encode()))


@pytest.mark.parametrize(
    "expression",
    [
        "//li",
        "//li/text()",
        "//a/@href",
        "//p[@class='x']",
        "//div//text()",
        "count(//li)=3",
        "string(//title)",
        "//b | //p",
        "//li[re:test(., 't')]/text()",
        "//p[has-class('x')]/text()",
        "//comment()",
        "//nothing",
    ],
)
def test_xpath_finds_what_parsel_finds(expression: str) -> None:
    theirs = parsel.Selector(HTML).xpath(expression)
    assert web_page().xpath(expression).getall() == theirs.getall()
    assert web_page().xpath(expression).get() == theirs.get()


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (("x://ul", "x:./li", "x:text()"), ["one", "two <3", "three", "four"]),
        (("x://ul", "c:li::text"), ["one", "two <3", "three", "four"]),
        (("x://div", "c:b"), ["<b>y</b>", "<b>y</b>"]),  # once from each div, as parsel does
        (("c:ul", "x:./li[2]/text()"), ["two <3"]),
        (("c:ul li.first", "x:following-sibling::li/text()"), ["two <3", "three", "four"]),
        (("c:b", "x:ancestor::div/@id"), ["o", "i"]),
        (("c:li", "x:.//text()"), ["one", "two <3", "three", "four"]),
        (("c:b", "x://title/text()"), ["A & B"]),
        (("c:li", "x:..", "c:li.first::text"), ["one", "one", "one"]),
        (("c:a::text", "x:."), []),
        (("x://a/@href", "c:b"), []),
    ],
)
def test_css_and_xpath_can_be_mixed(steps: tuple[str, ...], expected: list[str]) -> None:
    found: Page | Selection = web_page()
    for step in steps:
        kind, _, search = step.partition(":")
        found = found.xpath(search) if kind == "x" else found.css(search)
    assert isinstance(found, Selection)
    assert found.getall() == expected


def test_where_the_two_parsers_disagree_xpath_searches_a_copy() -> None:
    one = web_page("<table><div class=a>x<b>y</b></div><tr><td>1</table><div class=a>z")
    assert one.css("div").xpath(".//text()").getall() == ["x", "y", "z"]


def test_each_parser_reads_a_page_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = web_page()
    html, tree = one.html, one.tree
    one.css("p").xpath(".//b").css("::text").get()
    one.xpath("//p").xpath("..").get()
    assert (one.html, one.tree) == (html, tree)


def test_xml_is_read_as_xml_for_xpath() -> None:
    feed = '<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><Entry><link>/x</link></Entry></feed>'
    assert web_page(feed, "application/atom+xml").xpath("//Entry/link/text()").get() == "/x"
    assert web_page(feed, "application/atom+xml").xpath("//link").url() is None
    assert web_page(feed, "application/atom+xml").xpath("//link/text()").url() == "http://h.example/x"


@pytest.mark.parametrize("body", ["", " ", "no markup", "\0", "<?xml?>", "<!-- x -->"])
@pytest.mark.parametrize("kind", ["text/html", "application/xml"])
def test_xpath_on_next_to_nothing_finds_nothing(body: str, kind: str) -> None:
    assert web_page(body, kind).xpath("//a").getall() == []


@pytest.mark.parametrize(
    ("expression", "says", "hint"),
    [
        ("//[", "Invalid expression at character 3, '['", "XPath 1.0"),
        ("//a]", "at character 4, ']'", "XPath 1.0"),
        ("//a[", "at its end", "XPath 1.0"),
        ("foo(1)", "Unregistered function", "XPath 1.0"),
        ("x:y", "Undefined namespace prefix", "XPath 1.0"),
        ("//a[@x=$y]", "Undefined variable", "XPath 1.0"),
        (".price", "Invalid expression", "use page.css()"),
        ("#id", "Invalid expression", "use page.css()"),
        ("h1::text", "Invalid expression", "use page.css()"),
    ],
)
def test_a_wrong_xpath_is_named_with_the_place_of_the_trouble(expression: str, says: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        web_page().xpath(expression)
    assert repr(expression) in str(caught.value)
    assert says in str(caught.value)
    assert hint in caught.value.hint


VALUES = """<p id=int> 1,234 items </p><p id=price>from 1.234,50 €</p><p id=no>on request</p><p id=yes>Yes</p>
<time datetime=2024-05-01T10:00Z>yesterday</time><p id=day>3/4/2024</p><meta name=n content=7>
<input name=q value=12><a class=l href="x?y">link</a><img src="//cdn.example/i.png">
<a class=l href="mailto:x">m</a>"""


def test_typed_values_are_read_from_what_was_found() -> None:
    one = web_page(VALUES)
    assert one.css("#int").int() == 1234
    assert one.css("#int::text").float() == 1234.0
    assert one.css("#price").number() == 1234.5
    assert (one.css("#price").price(), one.css("#price").currency()) == (1234.5, "EUR")
    assert one.css("#yes").bool() is True
    assert one.css("time").date() == "2024-05-01"
    assert one.css("time").datetime() == "2024-05-01T10:00:00+00:00"
    assert one.css("#day").date(day_first=True) == "2024-04-03"
    assert one.css("meta").int() == 7
    assert one.css("input").int() == 12
    assert one.xpath("//p[@id='price']").price() == 1234.5
    assert one.xpath("count(//p)").int() == 5
    assert one.css("a").attr("href") == "x?y"
    assert one.css("a").html() == '<a class="l" href="x?y">link</a>'
    assert one.xpath("//a").html() == '<a class="l" href="x?y">link</a>'


def test_what_is_missing_or_unreadable_is_the_default() -> None:
    one = web_page(VALUES)
    for found in (one.css("#no"), one.css("#nothing"), one.xpath("//nothing")):
        assert (found.int(), found.float(), found.price(), found.bool(), found.date()) == (None,) * 5
        assert (found.int(0), found.price(-1.0), found.date("never"), found.datetime("-")) == (0, -1.0, "never", "-")
    assert one.css("#day").date() is None
    nothing = one.css("#nothing")
    assert (nothing.attr("x"), nothing.attr("x", ""), nothing.html(), nothing.url(), nothing.urls()) == (
        None, "", None, None, [],
    )  # fmt: skip


def test_urls_are_absolute() -> None:
    one = web_page(VALUES)
    assert one.css("a").url() == "http://h.example/a/x?y"
    assert one.css("a::attr(href)").url() == "http://h.example/a/x?y"
    assert one.css("img").url() == "http://cdn.example/i.png"
    assert one.xpath("//img/@src").url() == "http://cdn.example/i.png"
    assert one.css(".l").urls() == ["http://h.example/a/x?y"]
    assert one.css("p").url() is None
    with pytest.raises(UsageError, match="belongs to no page"):
        page().css("a").url()


def test_the_first_and_the_texts() -> None:
    one = web_page()
    assert one.css("li").first.text == "one"
    assert len(one.css("nothing").first) == 0
    assert one.css("li").texts == ["one", "two <3", "three four"]
    assert one.xpath("//li").texts == ["one", "two <3", "three four"]
    assert one.xpath("//div[@id='o']").text == one.css("#o").text
    assert "var a" not in one.xpath("//html").text
    assert one.xpath("//script").text.startswith("var a")


def test_what_xpath_found_can_be_followed() -> None:
    one = web_page('<p><a href="/1">x</a><a href="/2">y</a></p>')
    for what in (one.xpath("//a"), one.xpath("//a/@href"), one.xpath("//p"), one.css("p").xpath("a")):
        assert one.follow(what)[0].hrefs == ("/1", "/2")


def test_a_wrong_selector_below_xpath_is_a_usage_error() -> None:
    with pytest.raises(UsageError, match="cannot understand the CSS selector 'a:'"):
        web_page().xpath("//p").css("a:")


def test_thousands_of_comments_do_not_stop_xpath() -> None:
    one = web_page("<p>" + "x<!---->" * 60_000)
    assert one.xpath("//p//text()").get("").startswith("xxx")
