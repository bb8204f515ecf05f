"""Sitemaps and robots.txt: what the site says about itself."""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from shoal.demo.messages import SiteRequest, SiteResponse, html_response, text_response
from shoal.demo.people import People
from shoal.demo.shop import Shop

DISALLOWED = ("/private/", "/trap/")
MAX_URLS = 50_000  # URLs in one sitemap, as the protocol allows
_XML = "application/xml"
_OPEN = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def robots(request: SiteRequest, crawl_delay: float | None) -> SiteResponse:
    lines = ["# Readers of robots.txt are welcome here.", "User-agent: *"]
    lines += [f"Disallow: {path}" for path in DISALLOWED]
    if crawl_delay is not None:
        lines.append(f"Crawl-delay: {crawl_delay:g}")
    return text_response("\n".join([*lines, "", f"Sitemap: {request.origin}/sitemap.xml", ""]))


def sitemap_names(shop: Shop) -> list[str]:
    parts = -(-shop.count // MAX_URLS)
    products = ["/sitemap-products.xml", *(f"/sitemap-products-{n}.xml" for n in range(2, parts + 1))]
    return [*products, "/sitemap-people.xml.gz"]


def sitemap(request: SiteRequest, shop: Shop, people: People) -> SiteResponse | None:
    names = sitemap_names(shop)
    if request.path == "/sitemap.xml":
        body = "".join(f"<sitemap><loc>{request.origin}{name}</loc></sitemap>\n" for name in names)
        return html_response(f"{_OPEN}<sitemapindex {_SPACE}>\n{body}</sitemapindex>\n", kind=_XML)
    if request.path not in names:
        return None
    if request.path.endswith(".gz"):
        text = _urlset(request.origin, (people.profile(index).path for index in range(people.count)))
        return html_response(gzip.compress(text.encode(), mtime=0), kind="application/gzip")
    start = names.index(request.path) * MAX_URLS
    numbers = range(start + 1, min(start + MAX_URLS, shop.count) + 1)
    return html_response(_urlset(request.origin, (shop.product(n).path for n in numbers)), kind=_XML)


def _urlset(origin: str, paths: Iterable[str]) -> str:
    body = "".join(f"<url><loc>{origin}{path}</loc></url>\n" for path in paths)
    return f"{_OPEN}<urlset {_SPACE}>\n{body}</urlset>\n"
