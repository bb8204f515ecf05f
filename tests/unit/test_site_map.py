"""shoal map: what a site's sitemaps list, without fetching a page."""

from __future__ import annotations

import gzip

import pytest

from shoal.commands.site_map import SiteMap
from shoal.core.page import Response
from shoal.core.sitemap import parse_date

SITE = "https://a.test"
FILES = {
    "/robots.txt": f"Sitemap: {SITE}/all.xml".encode(),
    "/all.xml": b"<sitemapindex><sitemap><loc>/p.xml.gz</loc></sitemap><sitemap><loc>/all.xml</loc></sitemap>"
    b"<sitemap><loc>/page.xml</loc></sitemap><sitemap><loc>/none.xml</loc></sitemap></sitemapindex>",
    "/p.xml.gz": gzip.compress(
        b"<urlset><url><loc>/1</loc><lastmod>2024-06-01</lastmod></url><url><loc>/2</loc><lastmod>2020-01-01</lastmod>"
        b"</url><url><loc>/1</loc></url><url><loc>https://other.test/3</loc></url></urlset>"
    ),
    "/page.xml": b"<!doctype html><p>not here",
}


async def fetch(url: str) -> Response:
    path = url.removeprefix(SITE)
    return Response(url, 200 if path in FILES else 404, (), FILES.get(path, b""))


async def no_pause(url: str) -> None: ...


@pytest.mark.parametrize(
    ("site", "since", "urls", "problems"),
    [
        (SITE, "", ["/1", "/2"], ["/page.xml: it is an HTML page", "/none.xml: the server answered 404"]),
        (f"{SITE}/shop/", "2024-01-01", ["/1"], ["/page.xml: it is", "/none.xml: the server"]),
        (f"{SITE}/p.xml.gz", "", ["/1", "/2"], []),
        (f"{SITE}/page.xml", "", [], ["/page.xml: it is an HTML page"]),
    ],
)
async def test_urls_are_listed_once_and_what_cannot_be_read_is_told(
    site: str, since: str, urls: list[str], problems: list[str]
) -> None:
    listing = SiteMap(fetch, no_pause, since=parse_date(since) or 0.0)
    found = [one.url async for one in listing.urls(site)]
    assert found == [SITE + path for path in urls]
    assert [problem.startswith(SITE + said) for problem, said in zip(listing.problems, problems, strict=True)] == [
        True for _ in problems
    ]
