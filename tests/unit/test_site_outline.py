"""Site outlines: what a few pages tell about the kinds of pages that a site has, and the file written from it."""

from __future__ import annotations

import ast
import asyncio
from collections.abc import Callable
from html import escape
from typing import Any

import pytest

from shoal.commands.new import MAX_ITEMS, MAX_PAGES, SiteLook
from shoal.commands.scraper_source import python_source, yaml_source
from shoal.core.page import Response
from shoal.errors import ActionRequired, UsageError
from shoal.extract.outline import SiteOutline
from shoal.extract.outline.site import MAX_LINKS
from shoal.extract.outline.url_groups import group_urls, is_page_url
from shoal.extract.page import Page
from shoal.extract.template.model import Template
from shoal.extract.template.scraper import TemplateScraper
from shoal.runs.request import parse_template
from shoal.testing import handle

HOST = "https://site.example"
Make = Callable[[str], str | None]


def html(title: str, body: str, *, head: str = "") -> str:
    menu = '<nav><a href="/">home</a> <a href="/about/">about</a></nav>'
    return (
        f"<html><head><title>{title} | Site</title>{head}</head><body>{menu}<main><h1>{title}</h1>{body}</main></body>"
    )


class FakeSite:
    """Pages by path; what it was asked for is written down."""

    def __init__(self, make: Make, status: int = 200) -> None:
        self.asked: list[str] = []
        self.paused: list[str] = []
        self._make, self._status = make, status

    async def fetch(self, url: str) -> Page:
        self.asked.append(url)
        text = self._make(url.removeprefix(HOST))
        status = self._status if len(self.asked) > 1 or text is None else 200
        headers = (("content-type", "text/html; charset=utf-8"),)
        return Page(Response(url, 404 if text is None else status, headers, (text or "").encode()))

    async def pause(self, url: str) -> None:
        self.paused.append(url)

    def outline(self, start: str = "/") -> SiteOutline:
        look = SiteLook(self.fetch, self.pause, lambda url: None)
        return asyncio.run(look.outline("site", HOST + start))


def shop(path: str) -> str | None:
    """Categories with pages of products; each product shows others, with prices of their own."""
    product = '<li class="card"><a href="/p/thing-{n}">Thing {n}</a> <span class="price">€{n}.50</span></li>'
    cards = lambda first: "".join(product.format(n=n) for n in range(first, first + 6))  # noqa: E731
    if path == "/":
        return html("Shop", "".join(f'<a href="/c/{name}/">{name}</a>' for name in ("tea", "mugs", "spoons", "jars")))
    if path.startswith("/c/"):
        at = int(path.partition("page=")[2] or 1)
        return html(
            f"List {path}", f'<ul>{cards(10 * at + len(path))}</ul><p class="next"><a href="?page={at + 1}">next</a>'
        )
    if path.startswith("/p/thing-"):
        n = int(path.rpartition("-")[2])
        own = f'<b class="price">€{n}.50</b><i class="stock">{n} left</i><u class="css-1x9z">{n}</u>'
        return html(f"Thing {n}", f'<div class="product-main">{own}</div><ul>{cards(n + 1)}</ul>')
    return None


def blog(path: str) -> str | None:
    """Posts by day, listed on numbered pages."""
    posts = [f"/2024/0{n % 9 + 1}/post-about-{word}" for n, word in enumerate("abcdefghijklmn")]
    if path == "/" or path.startswith("/page/"):
        at = 0 if path == "/" else int(path.split("/")[2]) - 1
        links = "".join(f'<article><a href="{post}">read</a></article>' for post in posts[4 * at : 4 * at + 4])
        return html("Blog", f'{links}<a rel="next" href="/page/{at + 2}/">older</a>')
    if path in posts:
        day = f"2024-0{posts.index(path) % 9 + 1}-03"
        return html(path[-1] * 3, f'<time datetime="{day}">then</time><p class="byline">by {path[-1]}</p><p>text')
    return None


def manual(path: str) -> str | None:
    """Chapters that link to each other and to files that are no pages."""
    names = [f"chapter-{word}.html" for word in ("one", "two", "three", "four", "five")]
    if path == "/manual/" or path.removeprefix("/manual/") in names:
        links = "".join(f'<a href="{name}">{name}</a>' for name in names)
        return html(
            path,
            links + '<a href="book.pdf">PDF</a><a href="_sources/one.rst.txt">source</a><a href="/shop.html">x</a>',
        )
    return None


def kind_of(outline: SiteOutline, name: str) -> tuple[tuple[str, ...], dict[str, tuple[str, str]]]:
    (kind,) = (kind for kind in outline.template.pages if kind.kind == name)
    return kind.match, {name: (str(field.at), field.type) for name, field in kind.fields.items()}


def test_of_a_shop_products_are_records_and_lists_are_followed() -> None:
    outline = FakeSite(shop).outline()
    match, fields = kind_of(outline, "item")
    assert match == ("/p/thing-*",)
    # Its own price, not that of another product; nothing by a class that a build tool made up.
    assert fields["price"] == (".product-main .price", "price")
    assert fields["stock"] == (".stock", "text")
    assert set(fields) == {"title", "price", "stock", "url"}
    lists, none = kind_of(outline, "listing")
    assert "/c/*/" in lists and not none
    assert outline.template.pages[-1].paging is not None


def shop_with_people(path: str) -> str | None:
    """The shop, which every page links to, and its people, who have no price."""
    if path == "/people/":
        links = "".join(f'<a href="/people/name-{n}">Name {n}</a>' for n in range(6))
        return html("People", links + '<a href="/c/garden/">garden</a>')
    if path.startswith("/people/"):
        return html(f"Name {path[-1]}", f'<p class="trade">Trade {path[-1]}</p>')
    return shop(path)


def test_where_a_list_is_named_as_the_start_its_entries_are_the_records() -> None:
    patterns, fields = kind_of(FakeSite(shop_with_people).outline("/people/"), "item")
    assert patterns == ("/people/name-*",) and "trade" in fields
    assert kind_of(FakeSite(shop_with_people).outline("/"), "item")[0] == kind_of(FakeSite(shop).outline(), "item")[0]


def test_of_a_blog_posts_are_records_and_numbered_pages_are_followed() -> None:
    outline = FakeSite(blog).outline()
    match, fields = kind_of(outline, "item")
    assert match == ("/*/*/post-about-*",)
    assert fields["date"] == ("time[datetime]", "datetime") and fields["byline"] == (".byline", "text")
    assert "/page/*/" in kind_of(outline, "listing")[0]


def test_where_all_pages_are_alike_each_is_a_record_and_files_are_left_out() -> None:
    outline = FakeSite(manual).outline("/manual/")
    assert not outline.is_collection
    match, fields = kind_of(outline, "page")
    assert set(match) == {"/manual/*.html", "/manual/*/", "/manual/"}
    assert fields == {"title": ("h1", "text"), "url": ("page:final_url", "any")}


def test_a_heading_that_is_the_same_everywhere_is_no_title() -> None:
    def branded(path: str) -> str | None:
        text = manual(path)
        return text and text.replace(f"<h1>{path}</h1>", "<h1>The Manual</h1>")

    assert kind_of(FakeSite(branded).outline("/manual/"), "page")[1]["title"] == ("title", "text")


def test_the_sign_that_links_to_a_heading_is_no_part_of_a_title() -> None:
    def sphinx(path: str) -> str | None:
        text = manual(path)
        return text and text.replace("</h1>", '<a class="headerlink" href="#x">¶</a></h1>')

    template = FakeSite(sphinx).outline("/manual/").template
    page = Page.from_html("<title>A | Site</title><h1>Part <i>one</i><a>¶</a></h1>", url=HOST + "/manual/a.html")
    code: dict[str, Any] = {}
    exec(python_source(template, variable="site", heading="site\n"), code)  # our own: it is what is tested
    assert handle(code["site"], page).records[0]["title"] == "Part one"
    read = parse_template(yaml_source(template, heading="site\n"), "site.yaml")
    assert handle(TemplateScraper(read), page).records[0]["title"] == "Part one"


def test_only_a_few_pages_are_asked_for_each_once_and_with_a_pause() -> None:
    site = FakeSite(shop)
    site.outline()
    assert len(site.asked) == len(set(site.asked)) <= MAX_PAGES + MAX_ITEMS
    assert site.paused == site.asked[1:]


@pytest.mark.parametrize("status", [403, 429, 503])
def test_a_site_that_refuses_is_asked_no_more(status: int) -> None:
    site = FakeSite(shop, status)
    outline = site.outline()
    assert len(site.asked) == 2 and outline.pages == 1


def test_a_start_page_that_is_none_is_refused_with_advice() -> None:
    with pytest.raises(ActionRequired, match="status 404"):
        FakeSite(lambda path: None).outline()

    async def picture(url: str) -> Page:
        return Page(Response(url, 200, (("content-type", "image/png"),), b"\x89PNG"))

    async def pause(url: str) -> None: ...

    with pytest.raises(UsageError, match="image/png, not a web page"):
        asyncio.run(SiteLook(picture, pause, lambda url: None).outline("site", HOST + "/"))


HOSTILE = ('"""', "');import os;('", "x\n@evil", "{{7*7}}", "${x}", "%0a", "\\", "'", "#", "]]>", "&quot;", "a: b")


def hostile(path: str) -> str | None:
    """Whatever a page can say, it says in the language of somebody who wants to be executed."""
    links = "".join(f'<a href="/x/{escape(word)}/{n}?{escape(word)}={n}">x</a>' for word in HOSTILE for n in range(4))
    classes = "".join(f'<p class="{escape(word)}" itemprop="{escape(word)}">€{len(path)}</p>' for word in HOSTILE)
    return html(escape(HOSTILE[0] + path), links + classes)


@pytest.mark.parametrize("start", ["/", "/a'b", "/?q=\\"])
def test_what_a_page_says_is_only_ever_quoted_text(start: str) -> None:
    template = FakeSite(hostile).outline(start).template
    tree = ast.parse(python_source(template, variable="site", heading=f"site: {template.start[0]}\n"))
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    assert {call.rpartition(".")[2] for call in calls} <= {
        "Scraper", "page", "css", "follow", "default_follow", "price", "date", "datetime"
    }  # fmt: skip
    assert [node.names[0].name for node in ast.walk(tree) if isinstance(node, ast.Import)] == ["shoal"]
    # Read back, it is the same template: nothing of it was taken for YAML.
    assert same(parse_template(yaml_source(template, heading="site\n"), "site.yaml"), template)


def test_a_page_with_mazes_of_links_and_elements_is_read_within_bounds() -> None:
    def maze(path: str) -> str | None:
        deep = "".join(f'<a href="/{"a/" * n}{n}">x</a>' for n in range(0, 3_000, 100))
        wide = "".join(f'<a href="/w/{n:x}z/{n}?q{n}={n}">x</a>' for n in range(3_000))
        classes = " ".join(f"name-{'x' * n}" for n in range(1, 400))
        return html(path, f'{"<div>" * 500}<p class="{classes}">1</p>{"</div>" * 500}{deep}{wide}')

    outline = FakeSite(maze).outline()
    assert outline.links <= (MAX_PAGES + MAX_ITEMS) * MAX_LINKS and outline.template.pages


def same(one: Template, other: Template) -> bool:
    return [(kind.kind, kind.match, set(kind.fields)) for kind in one.pages] == [
        (kind.kind, kind.match, set(kind.fields)) for kind in other.pages
    ] and one.start == other.start


@pytest.mark.parametrize(
    ("paths", "patterns"),
    [
        (["/git-add.html", "/git-commit.html", "/git-rm.html"], ["/git-*.html"]),
        (["/b/one-thing_1/", "/b/other_22/", "/b/third-one_3/"], ["/b/*_*/"]),
        (["/list?page=1", "/list?page=2", "/list"], ["/list?*page=*", "/list"]),
        (["/a/1", "/a/2", "/a/3", "/a/about"], ["/a/*", "/a/about"]),
        (["/2024/05/x", "/2023/06/y", "/2022/07/z"], ["/*/*/*"]),
        (["/lib/a.html", "/lib/b.html", "/lib/c.html", "/api/d.html"], ["/lib/*.html", "/api/d.html"]),
        (["/"], ["/"]),
    ],
)
def test_urls_of_one_kind_have_one_pattern_that_matches_them(paths: list[str], patterns: list[str]) -> None:
    groups = group_urls(HOST + path for path in paths)
    assert [group.pattern for group in groups] == patterns
    assert all(group.matches(url) for group in groups for url in group.urls)


@pytest.mark.parametrize(
    ("path", "is_page"),
    [("/", True), ("/a", True), ("/a.html", True), ("/a.php?x=1", True), ("/a.pdf", False), ("/a.tar.gz", False)],
)
def test_files_are_told_from_pages_by_their_suffix(path: str, is_page: bool) -> None:
    assert is_page_url(HOST + path) is is_page
