"""Site: the whole demo site as one pure function from a request to an answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from urllib.parse import parse_qsl

from shoal.demo import endless, odd
from shoal.demo.broken import broken
from shoal.demo.encoding import encoded
from shoal.demo.files import file
from shoal.demo.layout import link, page
from shoal.demo.messages import SiteRequest, SiteResponse, html_response, json_response, redirect_response, with_etag
from shoal.demo.odd import Odd
from shoal.demo.people import People
from shoal.demo.quotes import Quotes
from shoal.demo.shop import Shop
from shoal.demo.sitemap import robots, sitemap

CACHED_PAGES = 2048
_AUTHORITY = re.compile(r"[A-Za-z0-9.-]+(:\d{1,5})?|\[[0-9A-Fa-f:.]+\](:\d{1,5})?")
_CACHED = frozenset(("", "catalogue", "covers", "people", "quotes"))
_NO_HEADERS: Mapping[str, str] = {}


class Site:
    """The same arguments give the same bytes; only the visit number may change an answer."""

    def __init__(
        self,
        seed: int = 1,
        products: int = 200,
        profiles: int = 40,
        host_delay: float = 0.0,
        crawl_delay: float | None = None,
    ) -> None:
        if products < 1 or profiles < 1:
            raise ValueError("a site needs at least one product and one profile")
        self.host_delay = host_delay  # seconds before every answer, like a far-away host
        self.crawl_delay = crawl_delay
        self.shop = Shop(seed, products)
        self.people = People(seed, profiles)
        self.quotes = Quotes(seed)
        self.odd = Odd(self.shop)
        self.seed = seed
        self._cached_page = lru_cache(maxsize=CACHED_PAGES)(self._render_cached)

    def answer(
        self, method: str, target: str, headers: Mapping[str, str] = _NO_HEADERS, visit_number: int = 1
    ) -> SiteResponse:
        """Header names are lower case; HEAD is answered like GET and the server leaves the body out."""
        path, _, query = target.partition("?")
        if method not in ("GET", "HEAD") and path != "/echo":
            answer = SiteResponse(
                405, (("allow", "GET, HEAD"), ("content-type", "text/plain")), b"Only GET and HEAD.\n"
            )
        elif not query and path[1:].partition("/")[0] in _CACHED:
            answer = self._or_not_modified(self._cached_page(path), headers)
        else:
            fields = dict(parse_qsl(query, keep_blank_values=True)) if query else {}
            answer = self._route(SiteRequest(method, path, fields, headers, visit_number, _origin(headers)))
        return replace(answer, delay=answer.delay + self.host_delay) if self.host_delay else answer

    def _render_cached(self, path: str) -> SiteResponse:
        """A page that neither visits nor headers change, so that it can be kept."""
        return with_etag(self._route(SiteRequest("GET", path, {}, _NO_HEADERS, 1, "")))

    def _or_not_modified(self, answer: SiteResponse, headers: Mapping[str, str]) -> SiteResponse:
        known = headers.get("if-none-match")
        if known and answer.status == 200 and answer.header("etag") in known:
            return SiteResponse(304, (("etag", answer.header("etag")),))
        return answer

    def _route(self, request: SiteRequest) -> SiteResponse:
        return self._section(request) or html_response(
            page("Not found", "<h1>Not found</h1>\n<p>There is no such page.</p>"), 404
        )

    def _section(self, request: SiteRequest) -> SiteResponse | None:  # noqa: C901 - a routing table
        parts = request.parts
        match request.path.split("/")[1:2]:
            case [""] if request.path == "/":
                return html_response(self._home())
            case ["catalogue"]:
                return self.shop.answer(request)
            case ["covers"]:
                return self.shop.cover(request)
            case ["people"]:
                return self.people.answer(request)
            case ["api"]:
                return self.people.api(request)
            case ["quotes"]:
                return self.quotes.answer(request)
            case ["odd"]:
                return self.odd.index(request)
            case [name] if name in self.odd.names:
                return self.odd.answer(name, request)
            case ["broken"] if len(parts) == 1:
                return broken(parts[0])
            case ["encoding"] if len(parts) == 1:
                return encoded(parts[0])
            case ["trap"]:
                return endless.calendar(parts)
            case ["maze"] if parts and parts[0]:
                return endless.maze(request, self.seed)
            case ["private"]:
                return _private(parts)
            case ["health"]:
                return json_response({"status": "ok"})
            case ["echo"]:
                return odd.echo(request)
            case ["robots.txt"]:
                return robots(request, self.crawl_delay)
            case [name] if name.startswith("sitemap"):
                return sitemap(request, self.shop, self.people)
        return file(request.path, self.shop)

    def _home(self) -> str:
        sections = (
            ("/catalogue/", f"Catalogue: {self.shop.count} books, twenty to a page"),
            ("/people/", f"Readers: {self.people.count} profiles and who follows whom"),
            ("/quotes/", "Overheard in the shop: ten remarks to a page"),
            ("/odd/", "Odd pages: slow, flaky, busy, gone, redirected, broken"),
        )
        items = "\n".join(f"<li>{link(path, text)}</li>" for path, text in sections)
        first = range(1, min(8, self.shop.count) + 1)
        main = (
            "<h1>Shoal Books</h1>\n<p>A bookshop by the sea that exists so that scrapers have "
            "something to read.</p>\n"
            f'<ul class="sections">\n{items}\n</ul>\n<h2>New this week</h2>\n{self.shop.cards(first)}'
        )
        return page("Welcome", main)

    def product_paths(self) -> list[str]:
        return [self.shop.product(number).path for number in range(1, self.shop.count + 1)]

    def expected_products(self) -> list[dict[str, str]]:
        """What a complete scrape of the catalogue yields, as the texts on the pages, in order."""
        products = map(self.shop.product, range(1, self.shop.count + 1))
        return [{"title": p.title, "price": p.price, "stock": p.stock, "path": p.path} for p in products]

    def expected_profiles(self) -> list[dict[str, object]]:
        """Every reader with the usernames of all followers, in the order of the pages."""
        profiles = map(self.people.profile, range(self.people.count))
        return [
            {
                "username": p.username,
                "name": p.name,
                "followers": [f.username for f in self.people.followers(p, 0, p.followers)],
            }
            for p in profiles
        ]

    def expected_quotes(self) -> list[dict[str, str]]:
        return [{"text": text, "author": author} for text, author in self.quotes.all]

    def all_paths(self) -> list[str]:
        """Every URL that links lead to from `/` and robots.txt allows; redirects are not followed."""
        return list(self._all_paths())

    def _all_paths(self) -> Iterator[str]:
        yield "/"
        yield from ("/robots.txt", "/sitemap.xml")
        yield from self.shop.paths()
        yield from self.people.paths()
        yield from self.quotes.paths()
        yield from self.odd.paths()

    def disallowed_paths(self) -> list[str]:
        """Every URL that an allowed page links to and robots.txt forbids."""
        return ["/private/", "/trap/calendar/2026/01"]


def _origin(headers: Mapping[str, str]) -> str:
    host = headers.get("host", "")
    return f"http://{host}" if _AUTHORITY.fullmatch(host) else "http://127.0.0.1"


def _private(parts: list[str]) -> SiteResponse | None:
    pages = {"": "Staff only", "ledger.html": "The ledger", "rota.html": "The rota"}
    if not parts:
        return redirect_response("/private/", 301)
    if len(parts) != 1 or parts[0] not in pages:
        return None
    links = "\n".join(f"<li>{link('/private/' + name, text)}</li>" for name, text in pages.items())
    title = pages[parts[0]]
    return html_response(
        page(title, f"<h1>{title}</h1>\n<p>robots.txt asks you not to be here.</p>\n<ul>\n{links}\n</ul>")
    )
