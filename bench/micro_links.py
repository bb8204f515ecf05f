"""What one page costs between fetch and settle: parse, read a title, follow links, judge them.

    python bench/micro_links.py [--seconds 0.3]

The page has about 30 KB and 60 links, once as rooted, once as relative and once as absolute links.
Figures are CPU time, the best of five rounds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from shoal.core.page import Response
from shoal.core.url import Resolver, canonical
from shoal.extract.links import LinkFilter
from shoal.extract.page import Page

URL = "http://shop.example:8080/catalogue/page-7.html"
PREFIXES = {
    "rooted": "/catalogue/",
    "relative": "",
    "upwards": "../catalogue/",
    "absolute": "http://shop.example:8080/catalogue/",
}


def body(prefix: str) -> bytes:
    """A listing as shops have them: navigation, fifty products, a footer."""
    nav = "".join(f'<li><a href="{prefix}category-{i}.html">Category {i}</a></li>' for i in range(9))
    words = "a light and sturdy thing for every day, made to last and easy to mend, " * 5
    products = "".join(
        f'<article class="product"><h3><a href="{prefix}item-{i}.html" title="Item {i}">Item {i}</a></h3>'
        f'<p class="price">{i}.90</p><p class="about">{words}</p><img src="/img/{i}.jpg" alt=""></article>'
        for i in range(50)
    )
    page = (
        f"<!doctype html><html><head><meta charset=utf-8><title>Things</title></head><body><ul>{nav}</ul>"
        f'<h1>Things</h1>{products}<p class="next"><a href="{prefix}page-8.html">next</a></p></body></html>'
    )
    return page.encode()


def measure(work: Callable[[], object], seconds: float) -> float:
    """CPU seconds per call, best of five rounds."""
    work()
    best = float("inf")
    for _ in range(5):
        calls, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds / 5:
            for _ in range(20):
                work()
            calls += 20
        best = min(best, spent / calls)
    return best


def gate() -> LinkFilter:
    return LinkFilter(lambda lane: True, None, lambda lane, url: True)


def report(kind: str, seconds: float) -> None:
    response = Response(URL, 200, (("content-type", "text/html; charset=utf-8"),), body(PREFIXES[kind]))
    parsed = Page(response)
    follows = parsed.follow(".product a, .next a, li a")
    links = len(follows[0].hrefs)
    warm = gate()
    for _ in range(2):
        warm.mark_committed(warm.admit(follows, depth=1, parent=1, origin_url=URL).tasks)

    def whole() -> None:
        page = Page(response)
        page.css("h1::text").get()
        found = page.follow(".product a, .next a, li a")
        warm.admit(found, depth=1, parent=1, origin_url=URL)

    parse = measure(lambda: Page(response).html, seconds)
    title = measure(lambda: parsed.css("h1::text").get(), seconds)
    follow = measure(lambda: parsed.follow(".product a, .next a, li a"), seconds)
    everything = measure(parsed.follow, seconds)
    known = measure(lambda: warm.admit(follows, depth=1, parent=1, origin_url=URL), seconds)
    new = measure(lambda: gate().admit(follows, depth=1, parent=1, origin_url=URL), seconds)
    page = measure(whole, seconds)
    print(f"{kind}: {len(response.body):,} bytes, {links} links")
    print(f"  parse                {parse * 1e6:8.1f} µs/page")
    print(f"  css h1::text         {title * 1e6:8.1f} µs/page")
    print(f"  follow(selector)     {follow * 1e6:8.1f} µs/page")
    print(f"  follow()             {everything * 1e6:8.1f} µs/page")
    print(f"  admit, links known   {known * 1e6:8.1f} µs/page  {links / known:12,.0f} links/s")
    print(f"  admit, links new     {new * 1e6:8.1f} µs/page  {links / new:12,.0f} links/s")
    both = follow + known
    print(f"  follow+admit, known  {both * 1e6:8.1f} µs/page  {links / both:12,.0f} links/s")
    print(f"  all of it, known     {page * 1e6:8.1f} µs/page  {1 / page:12,.0f} pages/s")


def report_urls(seconds: float) -> None:
    resolver = Resolver(URL)
    for href in ("/catalogue/item-1.html", "item-1.html", "../a/item-1.html", "/a%20b", "https://other.example/a"):
        print(f"  resolve {href:26} {measure(lambda h=href: resolver.resolve(h), seconds) * 1e6:6.2f} µs")  # type: ignore[misc]
    print(f"  canonical, plain                   {measure(lambda: canonical(URL), seconds) * 1e6:6.2f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="per figure")
    seconds = parser.parse_args().seconds
    for kind in PREFIXES:
        report(kind, seconds)
    report_urls(seconds)


if __name__ == "__main__":
    main()
