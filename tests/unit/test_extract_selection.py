from __future__ import annotations

import parsel
import pytest
from selectolax.lexbor import LexborHTMLParser

from shoal.errors import Usage
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
    with pytest.raises(Usage) as caught:
        page().css(selector)
    assert repr(selector) in str(caught.value)
    assert says in str(caught.value)
    assert caught.value.hint


def test_the_hint_knows_common_mistakes() -> None:
    with pytest.raises(Usage) as caught:
        page().css("//a/@href")
    assert "page.xpath" in caught.value.hint
    with pytest.raises(Usage) as caught:
        page().css('a:contains("x")')
    assert ":lexbor-contains" in caught.value.hint


def test_a_wrong_regular_expression_is_named() -> None:
    with pytest.raises(Usage, match=r"'\(': missing \)"):
        page().css("a").re("(")


def test_the_repr_shows_what_was_found() -> None:
    assert repr(page().css("a::text")) == "<Selection of 3: 'l1', 'l2', 'l3'>"
    assert repr(page().css("li, p")).endswith(", …>")
