from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from shoal.core.page import Response
from shoal.errors import UsageError
from shoal.extract.page import Page
from shoal.extract.scraper import Scraper


def handler(page: Any) -> None:
    return None


@pytest.mark.parametrize("name", ["books", "b", "India", "2-books_x", "a" * 64])
def test_good_names_are_taken(name: str) -> None:
    assert Scraper(name).name == name


@pytest.mark.parametrize("name", ["", "Books!", "-a", "_a", "a b", "a/b", "a" * 65, "bücher", "a\n", None])
def test_other_names_are_refused_with_a_hint(name: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Scraper(name)
    assert "letters, digits" in caught.value.hint


def test_start_is_one_url_or_several_and_kept_as_given() -> None:
    assert Scraper("a", "HTTP://X.example").start == ("HTTP://X.example",)
    assert Scraper("a", ["http://x.example/", "not one"]).start == ("http://x.example/", "not one")
    assert Scraper("a").start == ()
    with pytest.raises(UsageError, match="start must be text"):
        Scraper("a", [1])  # type: ignore[list-item]


def test_settings_are_kept() -> None:
    assert Scraper("a", delay=2, max_depth=3).settings == {"delay": 2, "max_depth": 3}


@pytest.mark.parametrize(
    ("pattern", "url", "expected"),
    [
        ("*", "http://h.example/", True),
        ("/", "http://h.example/", True),
        ("/", "http://h.example/?page=2", True),
        ("/", "http://h.example/a", False),
        ("/catalogue/*", "http://h.example/catalogue/x", True),
        ("/catalogue/*", "http://h.example/catalogue/", True),
        ("/catalogue/*", "http://h.example/catalogue", False),
        ("/catalogue/*", "http://h.example/x/catalogue/y", False),
        ("/catalogue/*", "http://h.example/x?u=/catalogue/y", False),
        ("/about", "http://h.example/about?x=1", True),
        ("/list?page=*", "http://h.example/list?page=2", True),
        ("/list?page=*", "http://h.example/list", False),
        ("/*/item", "http://h.example/a/b/item", True),
        ("/a.b", "http://h.example/axb", False),
        ("*.html", "http://h.example/x.html", True),
        ("*.html", "http://h.example/x.html?y", True),
        ("http://h.example/*", "http://h.example/x", True),
        ("http://h.example/*", "https://h.example/x", False),
        ("*://h.example/x", "https://h.example/x", True),
        ("/größe/*", "http://h.example/gr%C3%B6%C3%9Fe/1", True),
        ("/a b", "http://h.example/a%20b", True),
    ],
)
def test_patterns_are_globs_over_path_or_url(pattern: str, url: str, expected: bool) -> None:
    scraper = Scraper("a")
    scraper.page(pattern)(handler)
    assert scraper.matches(url) is expected


def test_the_first_matching_pattern_wins() -> None:
    scraper = Scraper("a")

    @scraper.page("/a/special")
    async def special(page: Any) -> None: ...

    @scraper.page("/a/*")
    def rest(page: Any) -> Any:
        yield {}

    found = scraper.handler_for("http://h.example/a/special")
    assert found is not None and found.func is special and found.pattern == "/a/special"
    found = scraper.handler_for("http://h.example/a/x")
    assert found is not None and found.func is rest
    assert scraper.handler_for("http://h.example/b") is None
    assert repr(scraper) == "<Scraper a: /a/special, /a/*>"


def test_a_forgotten_pair_of_parentheses_is_explained() -> None:
    scraper = Scraper("a")
    with pytest.raises(UsageError) as caught:
        scraper.page(handler)  # type: ignore[arg-type]
    assert "@scraper.page()" in caught.value.hint
    with pytest.raises(UsageError, match="pattern"):
        scraper.page("")


@pytest.mark.parametrize(
    ("lane", "expected"),
    [
        ("start.example", True),
        ("start.example:8080", False),
        ("other.example:8080", True),
        ("other.example", False),
        ("extra.example", True),
        ("xn--bcher-kva.example", True),
        ("secure.example", True),
        ("a.sub.example", True),
        ("a.b.sub.example", True),
        ("sub.example", False),
        ("evilsub.example", False),
        ("elsewhere.example", False),
    ],
)
def test_scope_is_the_hosts_of_the_start_and_those_named(lane: str, expected: bool) -> None:
    start = ["http://Start.example:80", "http://other.example:8080/x", "not an address"]
    hosts = ["Extra.example", "*.sub.example", "bücher.example", "secure.example:443"]
    assert Scraper("a", start, hosts=hosts).in_scope(lane) is expected


def test_a_star_is_every_host() -> None:
    assert Scraper("a", hosts="*").in_scope("any.example:81")


@pytest.mark.parametrize("host", ["http://a.example/", "a.example/x", "*a.example", "", "*.", "a b"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(UsageError) as caught:
        Scraper("a", hosts=[host])
    assert "example.com" in caught.value.hint


def test_pages_without_a_handler_lead_on_to_pages_with_one() -> None:
    scraper = Scraper("a", "http://h.example/")
    scraper.page("/catalogue/*")(handler)
    links = ("/catalogue/1", "/about", "catalogue/2?x#y", "mailto:x")
    body = "".join(f'<a href="{link}">x</a>' for link in links).encode()
    (found,) = scraper.default_follow(Page(Response("http://h.example/", 200, (), body)))
    assert found.hrefs == ("http://h.example/catalogue/1", "http://h.example/catalogue/2?x")
    assert scraper.default_follow(Page(Response("http://h.example/", 200, (), b"nothing"))) == ()


def test_a_scraper_needs_no_parser_and_no_queue() -> None:
    code = (
        "import sys; from shoal.extract.scraper import Scraper;"
        "s = Scraper('a', 'http://h.example/'); s.page('/x')(print); s.in_scope('h.example');"
        "bad = {'selectolax', 'parsel', 'ada_url', 'pycurl', 'sqlite3', 'asyncio'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
