from __future__ import annotations

import subprocess
import sys

import pytest

from shoal.extract import scope as scope_module
from shoal.extract.scope import CrawlScope, site_of, url_matcher

START = ("http://Shop.example.co.uk/", "https://a.github.io:8443/x", "http://127.0.0.1:8000/", "not an address")


@pytest.mark.parametrize(
    ("lane", "site"),
    [
        ("example.com", "example.com"),
        ("www.shop.example.com", "example.com"),
        ("www.example.com:8080", "example.com"),
        ("example.com.", "example.com"),
        ("www.example.co.uk", "example.co.uk"),
        ("co.uk", "co.uk"),
        ("a.github.io", "a.github.io"),
        ("b.a.github.io", "a.github.io"),
        ("github.io", "github.io"),
        ("www.xn--bcher-kva.de", "xn--bcher-kva.de"),
        ("a.b.xn--p1ai", "b.xn--p1ai"),
        ("x.made-up-ending", "x.made-up-ending"),
        ("y.x.made-up-ending:81", "x.made-up-ending"),
        ("github.io.", "github.io"),
        ("localhost", "localhost"),
        ("localhost.", "localhost"),
        ("localhost:8000", "localhost"),
        ("intranet", "intranet"),
        ("127.0.0.1", "127.0.0.1"),
        ("10.0.0.1:80", "10.0.0.1"),
        ("[::1]", "[::1]"),
        ("[::1]:8000", "[::1]"),
        ("[::ffff:a00:1]", "[::ffff:a00:1]"),
    ],
)
def test_a_site_is_what_somebody_registered(lane: str, site: str) -> None:
    assert site_of(lane) == site


@pytest.mark.parametrize(
    ("lane", "host", "site"),
    [
        ("shop.example.co.uk", True, True),
        ("a.github.io:8443", True, True),
        ("127.0.0.1:8000", True, True),
        ("named.example", True, True),
        ("any.star.example", True, True),
        ("star.example", False, False),
        ("www.example.co.uk", False, True),
        ("shop.example.co.uk:8080", False, True),
        ("a.github.io", False, True),
        ("127.0.0.1", False, True),
        ("www.named.example", False, True),
        ("other.co.uk", False, False),
        ("b.github.io", False, False),
        ("github.io", False, False),
        ("127.0.0.2:8000", False, False),
    ],
)
def test_hosts_belong_to_a_run_by_host_or_by_site(lane: str, host: bool, site: bool) -> None:
    hosts = ("named.example", "*.star.example")
    assert CrawlScope(START, hosts=hosts).allows_lane(lane) is host
    assert CrawlScope(START, hosts=hosts, reach="host").allows_lane(lane) is host
    by_site = CrawlScope(START, hosts=hosts, reach="site")
    assert by_site.allows_lane(lane) is site
    assert by_site.allows_lane(lane) is site, "the second answer comes from the cache"
    assert CrawlScope(START, reach="any").allows_lane(lane)
    assert CrawlScope((), hosts=("*",)).allows_lane(lane)


def test_a_run_without_start_has_no_hosts_but_those_named() -> None:
    assert not CrawlScope(()).allows_lane("example.com")
    assert not CrawlScope((), reach="site").allows_lane("example.com")


def test_what_is_remembered_of_sites_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_module, "MAX_CACHED", 10)
    scope = CrawlScope(["http://example.com/"], reach="site")
    for number in range(100):
        assert scope.allows_lane(f"h{number}.example.com")
        assert not scope.allows_lane(f"h{number}.example.org")
        assert len(scope._same_site) <= 10


@pytest.mark.parametrize(
    ("pattern", "url", "fits"),
    [
        ("*", "http://h.example/x", True),
        ("/a/*", "http://h.example/a/b?c", True),
        ("/a/*", "http://h.example/b/a/", False),
        ("/a", "http://h.example/a?page=2", True),
        ("/a?page=*", "http://h.example/a?page=2", True),
        ("/a?page=*", "http://h.example/a", False),
        ("/a", "http://h.example/ab", False),
        ("*.pdf", "http://h.example/x/y.pdf", True),
        ("*.pdf", "http://h.example/x/y.pdf?download", True),
        ("*/print/*", "http://h.example/a/print/b", True),
        ("/größe*", "http://h.example/gr%C3%B6%C3%9Fe-1", True),
        ("/a.b", "http://h.example/axb", False),
        ("https://*", "http://h.example/", False),
        ("http://*.example/x", "http://h.example/x", True),
        ("http://*.example/x", "http://h.example/x?y", False),
        ("/A", "http://h.example/a", False),
    ],
)
def test_patterns_are_compared_as_those_of_page_kinds_are(pattern: str, url: str, fits: bool) -> None:
    from shoal.extract.scraper import Scraper

    assert url_matcher(pattern)(url) is fits
    scraper = Scraper("x")
    scraper.page(pattern)(lambda page: None)
    assert scraper.matches(url) is fits


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/shop/a", ""), ("/shop/print/a", "scope"), ("/blog/a", "scope"), ("/news", ""), ("/start/print/", "")],
)
def test_included_is_what_matches_one_pattern_and_no_excluded_one(path: str, reason: str) -> None:
    start = "http://h.example/start/print/"
    scope = CrawlScope([start], include=("/shop/*", "/news"), exclude=("*/print/*",))
    assert scope.has_patterns
    assert scope.reason(f"http://h.example{path}", "h.example") == reason
    assert scope.reason(f"http://o.example{path}", "o.example") == "scope"


def test_without_patterns_every_path_is_in() -> None:
    scope = CrawlScope(["http://h.example/"])
    assert not scope.has_patterns
    assert scope.reason("http://h.example/x", "h.example") == ""
    assert CrawlScope(["http://h.example/"], exclude=("/x",)).reason("http://h.example/y", "h.example") == ""


def test_the_list_of_suffixes_is_read_only_where_sites_are_asked_for() -> None:
    code = (
        "import sys; from shoal.extract.scope import CrawlScope\n"
        "for it in ('host', 'any'): CrawlScope(['http://a.example/'], reach=it).allows_lane('b.example')\n"
        "assert 'publicsuffixlist' not in sys.modules\n"
        "CrawlScope(['http://a.example/'], reach='site'); assert 'publicsuffixlist' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
