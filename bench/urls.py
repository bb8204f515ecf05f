"""What URLs cost: links as a page resolves them, as the gate sees them, and what its options add.

    python bench/urls.py [--seconds 0.3]

One thousand links of a shop in each spelling; figures are CPU time, the best of five rounds. urljoin
of the standard library, which neither checks nor normalises, is measured beside it; w3lib, if installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urljoin

from shoal.core.url import Resolver, UrlNormalizer, canonical, request_digest
from shoal.core.url_shape import ShapeCounter, shape_of
from shoal.extract.duplicate_content import DuplicateContent
from shoal.extract.links import LinkFilter
from shoal.extract.page import Follow
from shoal.extract.scope import CrawlScope

BASE = "http://shop.example:8080/catalogue/page-7.html"
LINKS = 1_000
SPELLINGS = {
    "rooted": "/catalogue/item-{}.html?colour=red&page={}",
    "relative": "item-{}.html?colour=red&page={}",
    "upwards": "../catalogue/item-{}.html?colour=red&page={}",
    "absolute": "http://shop.example:8080/catalogue/item-{}.html?colour=red&page={}",
    "elsewhere": "https://www.other.example/item-{}.html?colour=red&page={}",
    "escaped": "/catalogue/item%20{}.html?colour=r%C3%B6t&page={}",
}


def rate(work: Callable[[], object], seconds: float) -> float:
    """Links per CPU second, best of five rounds, of a work that does all links once."""
    work()
    best = 0.0
    for _ in range(5):
        rounds, start = 0, time.process_time()
        while (spent := time.process_time() - start) < seconds / 5:
            work()
            rounds += 1
        best = max(best, rounds * LINKS / spent)
    return best


def each(work: Callable[[str], object], hrefs: list[str]) -> None:
    for href in hrefs:
        work(href)


def show(what: str, figure: float, *, beside: float | None = None) -> None:
    ratio = f"   {figure / beside:5.1f} × urljoin" if beside else ""
    print(f"  {what:34} {figure:12,.0f} links/s   {1e6 / figure:6.2f} µs{ratio}")


def resolving(seconds: float) -> None:
    print("Resolver.resolve")
    resolver = Resolver(BASE)
    for name, pattern in SPELLINGS.items():
        hrefs = [pattern.format(number, number) for number in range(LINKS)]
        ours = rate(partial(each, resolver.resolve, hrefs), seconds)
        plain = rate(partial(each, partial(urljoin, BASE), hrefs), seconds)
        show(name, ours, beside=plain)


def admitting(seconds: float) -> None:
    print("LinkFilter.admit, every link known")
    for name, pattern in SPELLINGS.items():
        follows = (Follow(tuple(pattern.format(number, number) for number in range(LINKS)), BASE),)
        gate = LinkFilter(lambda lane: True, None, lambda lane, url: True)
        for _ in range(2):
            gate.mark_committed(gate.admit(follows, depth=0, parent=1, origin_url=BASE).tasks)
        show(name, rate(partial(gate.admit, follows, depth=0, parent=1, origin_url=BASE), seconds))
    print("LinkFilter.admit, every link new")
    follows = (Follow(tuple(SPELLINGS["rooted"].format(n, n) for n in range(LINKS)), BASE),)
    scope = CrawlScope([BASE], reach="site", exclude=("*/print/*",))
    options: dict[str, dict[str, Any]] = {
        "nothing set": {},
        "shapes": {"shapes": ShapeCounter(0)},
        "patterns": {"allow": scope.allows},
        "rewrite": {"rewrite": UrlNormalizer(sort_query=True, drop_tracking=True)},
    }
    for name, option in options.items():
        gate = LinkFilter(scope.allows_lane, None, lambda lane, url: True, **option)
        show(name, rate(partial(gate.admit, follows, depth=0, parent=1, origin_url=BASE), seconds))


def parts(seconds: float) -> None:
    print("parts")
    urls = [canonical("http://shop.example" + SPELLINGS["rooted"].format(n, n)) for n in range(LINKS)]
    shapes, contents, scope = ShapeCounter(0), DuplicateContent(), CrawlScope([BASE], reach="site")
    rewrite = UrlNormalizer(sort_query=True, drop_tracking=True)
    tracked = [url + "&utm_source=news&gclid=1" for url in urls]
    bodies = [b"%d" % number + b"<p>a page of twenty kilobytes</p>" * 600 for number in range(LINKS)]
    works: dict[str, Callable[[], object]] = {
        "canonical, plain": lambda: [canonical(url) for url in urls],
        "request_digest": lambda: [request_digest(url) for url in urls],
        "shape_of": lambda: [shape_of(url) for url in urls],
        "Shapes.admit": lambda: [shapes.admit(url) for url in urls],
        "Rewrite, nothing to do": lambda: [rewrite(url) for url in urls],
        "Rewrite, two parameters go": lambda: [rewrite(url) for url in tracked],
        "CrawlScope.allows_lane, site": lambda: [scope.allows_lane("www.other.example") for _ in urls],
        # A bytes object remembers its hash: each is hashed as new.
        "DuplicateContent.times_seen, 20 KB": lambda: [
            contents.times_seen("shop.example", body[:-1]) for body in bodies
        ],
    }
    for name, work in works.items():
        show(name, rate(work, seconds))
    try:
        from w3lib.url import canonicalize_url
    except ImportError:
        return
    show("w3lib canonicalize_url", rate(lambda: [canonicalize_url(url) for url in urls], seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=0.3, help="per figure")
    seconds = parser.parse_args().seconds
    resolving(seconds)
    admitting(seconds)
    parts(seconds)


if __name__ == "__main__":
    main()
