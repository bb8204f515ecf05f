"""Sitemaps and robots.txt: what the site says about itself."""

from __future__ import annotations

import gzip
from collections.abc import Iterable

from shoal.demo.answer import Answer, Ask, html, plain
from shoal.demo.people import People
from shoal.demo.shop import Shop

DISALLOWED = ("/private/", "/trap/")
MOST = 50_000  # addresses in one sitemap, as the protocol allows
_XML = "application/xml"
_OPEN = '<?xml version="1.0" encoding="UTF-8"?>\n'
_SPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def robots(ask: Ask, crawl_delay: float | None) -> Answer:
    lines = ["# Readers of robots.txt are welcome here.", "User-agent: *"]
    lines += [f"Disallow: {path}" for path in DISALLOWED]
    if crawl_delay is not None:
        lines.append(f"Crawl-delay: {crawl_delay:g}")
    return plain("\n".join([*lines, "", f"Sitemap: {ask.origin}/sitemap.xml", ""]))


def sitemap_names(shop: Shop) -> list[str]:
    parts = -(-shop.count // MOST)
    products = ["/sitemap-products.xml", *(f"/sitemap-products-{n}.xml" for n in range(2, parts + 1))]
    return [*products, "/sitemap-people.xml.gz"]


def sitemap(ask: Ask, shop: Shop, people: People) -> Answer | None:
    names = sitemap_names(shop)
    if ask.path == "/sitemap.xml":
        body = "".join(f"<sitemap><loc>{ask.origin}{name}</loc></sitemap>\n" for name in names)
        return html(f"{_OPEN}<sitemapindex {_SPACE}>\n{body}</sitemapindex>\n", kind=_XML)
    if ask.path not in names:
        return None
    if ask.path.endswith(".gz"):
        text = _addresses(ask.origin, (people.profile(index).path for index in range(people.count)))
        return html(gzip.compress(text.encode(), mtime=0), kind="application/gzip")
    start = names.index(ask.path) * MOST
    numbers = range(start + 1, min(start + MOST, shop.count) + 1)
    return html(_addresses(ask.origin, (shop.product(n).path for n in numbers)), kind=_XML)


def _addresses(origin: str, paths: Iterable[str]) -> str:
    body = "".join(f"<url><loc>{origin}{path}</loc></url>\n" for path in paths)
    return f"{_OPEN}<urlset {_SPACE}>\n{body}</urlset>\n"
