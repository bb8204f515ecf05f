"""The bookshop: products by number, listings with paging, categories, covers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from html import escape

from shoal.demo import words
from shoal.demo.layout import link, numbered, page, page_number, pager
from shoal.demo.messages import SiteRequest, SiteResponse, html_response, redirect_response
from shoal.demo.seeded_random import SeededRandom

PER_PAGE = 20
RELATED = 14
PARAGRAPHS = 512  # different ones; books share them, because writing is what costs most
REVIEWS = 256
HOME = ("/", "Home")
CATALOGUE = ("/catalogue/", "Catalogue")


@dataclass(frozen=True, slots=True)
class Product:
    number: int
    title: str
    path: str
    author: str
    category: int
    cents: int
    copies: int
    rating: int
    year: int
    pages: int

    @property
    def price(self) -> str:
        return f"€{self.cents // 100}.{self.cents % 100:02}"

    @property
    def stock(self) -> str:
        return f"In stock ({self.copies} copies)" if self.copies else "Sold out"

    @property
    def code(self) -> str:
        return f"SB-{self.number:06}"


class Shop:
    """Every product is a function of (seed, number), so a shop of a million costs no memory."""

    def __init__(self, seed: int, products: int) -> None:
        self.seed = seed
        self.count = products
        self.product = lru_cache(maxsize=8192)(self._product)
        self._card = lru_cache(maxsize=8192)(self._draw_card)
        self._paragraph = lru_cache(maxsize=PARAGRAPHS)(self._write_paragraph)
        self._review = lru_cache(maxsize=REVIEWS)(self._write_review)

    def _product(self, number: int) -> Product:
        rng = SeededRandom(self.seed, "product", number)
        title = words.title(rng)
        return Product(
            number=number,
            title=title,
            path=f"/catalogue/{words.slug(title)}_{number}/",
            author=f"{rng.choice(words.FIRST)} {rng.choice(words.LAST)}",
            category=(number + self.seed) % len(words.CATEGORIES),
            cents=rng.between(450, 5995),
            copies=rng.below(9) and rng.between(2, 40),
            rating=rng.between(1, 5),
            year=rng.between(1951, 2025),
            pages=rng.between(64, 712),
        )

    def _write_paragraph(self, number: int) -> str:
        rng = SeededRandom(self.seed, "paragraph", number)
        return f"<p>{escape(words.paragraph(rng, rng.between(4, 6)))}</p>"

    def _write_review(self, number: int) -> str:
        rng = SeededRandom(self.seed, "review", number)
        who = f"{rng.choice(words.FIRST)} {rng.choice(words.LAST)[0]}., {rng.choice(words.TRADES)}"
        text = escape(words.fill(rng, rng.choice(words.OPINIONS)))
        return f'<li class="review"><p>{text}</p><p class="author">{who}</p></li>'

    def _draw_card(self, number: int) -> str:
        product = self.product(number)
        return (
            f'<li class="product"><a href="{product.path}">'
            f'<img src="/covers/{product.number}.svg" alt="" loading="lazy">{escape(product.title)}</a> '
            f'<span class="by">{escape(product.author)}</span> '
            f'<span class="price">{product.price}</span></li>'
        )

    def cards(self, numbers: Iterable[int]) -> str:
        return '<ul class="grid">\n' + "\n".join(map(self._card, numbers)) + "\n</ul>"

    def answer(self, request: SiteRequest) -> SiteResponse | None:
        parts = request.parts
        if parts and parts[-1] != "" and not parts[-1].endswith(".html"):
            return redirect_response(request.path + "/", 301) if self._found(request.path + "/") else None
        if not parts:
            return redirect_response("/catalogue/", 301)
        text = self._page(parts)
        return html_response(text) if text else None

    def _found(self, path: str) -> bool:
        return bool(self._page(path.split("/")[2:]))

    def _page(self, parts: list[str]) -> str:
        if len(parts) == 1:
            return self._listing("/catalogue/", "Catalogue", range(1, self.count + 1), page_number(parts[0]), [HOME])
        if parts[0] == "category" and len(parts) == 3:
            return self._category(parts[1], page_number(parts[2]))
        if len(parts) == 2 and parts[1] == "":
            return self._book(parts[0])
        return ""

    def members(self, category: int) -> range:
        """The numbers of the products in a category."""
        step = len(words.CATEGORIES)
        first = (category - self.seed - 1) % step + 1
        return range(first, self.count + 1, step)

    def _category(self, slug: str, number: int) -> str:
        for index, name in enumerate(words.CATEGORIES):
            if words.slug(name) == slug:
                base = category_path(index)
                return self._listing(base, name, self.members(index), number, [HOME, CATALOGUE])
        return ""

    def _listing(self, base: str, name: str, numbers: range, at: int, crumbs: list[tuple[str, str]]) -> str:
        last = last_page(len(numbers))
        if not 1 <= at <= last:
            return ""
        shown = numbers[(at - 1) * PER_PAGE : at * PER_PAGE]
        main = (
            f'<div class="with-side">{_SIDE}<section>\n<h1>{escape(name)}</h1>\n'
            f'<p class="note"><span class="count">{len(numbers)}</span> books</p>\n'
            f"{self.cards(shown)}\n{pager(base, at, last)}</section></div>"
        )
        return page(name if at == 1 else f"{name}, page {at}", main, crumbs=crumbs)

    def _book(self, name: str) -> str:
        digits = name.rpartition("_")[2]
        if not (digits.isascii() and digits.isdigit() and len(digits) < 10 and 1 <= int(digits) <= self.count):
            return ""
        product = self.product(int(digits))
        if product.path != f"/catalogue/{name}/":
            return ""
        category = words.CATEGORIES[product.category]
        crumbs = (HOME, CATALOGUE, (category_path(product.category), category))
        return page(product.title, self._book_main(product), crumbs=crumbs, head=_linked_data(product))

    def _book_main(self, product: Product) -> str:
        rng = SeededRandom(self.seed, "text", product.number)
        reviews = "\n".join(self._review(rng.below(REVIEWS)) for _ in range(rng.between(2, 5)))
        story = "\n".join(self._paragraph(rng.below(PARAGRAPHS)) for _ in range(5))
        return (
            f'<div class="with-side">{_SIDE}<section>\n<article class="book">\n'
            f'<img src="/covers/{product.number}.svg" alt="Cover of {escape(product.title)}" '
            f'width="300" height="400">\n'
            f'<div>\n<h1>{escape(product.title)}</h1>\n<p class="by">by {escape(product.author)}</p>\n'
            f'<p class="price">{product.price}</p>\n<p class="stock">{product.stock}</p>\n'
            f'<p class="note"><a href="#details">Details</a> · <a href="#reviews">Reviews</a></p>\n'
            f"</div>\n</article>\n"
            f'<div id="description">\n{story}\n</div>\n{_details(product)}\n'
            f'<h2 id="reviews">Reviews</h2>\n<ul class="reviews">\n{reviews}\n</ul>\n'
            f"<h2>You may also like</h2>\n{self.cards(self.related(product))}\n{self._neighbours(product)}"
            f"</section></div>"
        )

    def related(self, product: Product) -> list[int]:
        """Other books: half from the same category, half from anywhere."""
        rng = SeededRandom(self.seed, "related", product.number)
        members = self.members(product.category)
        numbers = [members[rng.below(len(members))] for _ in range(RELATED // 2)]
        numbers += [rng.between(1, self.count) for _ in range(RELATED)]
        chosen = dict.fromkeys(n for n in numbers if n != product.number)
        return list(chosen)[:RELATED]

    def _neighbours(self, product: Product) -> str:
        items = []
        for css, number in (("earlier", product.number - 1), ("later", product.number + 1)):
            if 1 <= number <= self.count:
                near = self.product(number)
                items.append(f'<li class="{css}">{link(near.path, near.title)}</li>')
        return f'<ul class="pager">{"".join(items)}</ul>'

    def cover(self, request: SiteRequest) -> SiteResponse | None:
        name = request.parts[0] if len(request.parts) == 1 else ""
        digits = name.removesuffix(".svg")
        if not (name.endswith(".svg") and digits.isascii() and digits.isdigit() and len(digits) < 10):
            return None
        if not 1 <= int(digits) <= self.count:
            return None
        return html_response(_cover(self.product(int(digits))), kind="image/svg+xml")

    def paths(self) -> Iterator[str]:
        """Every listing, category and product that links lead to."""
        for number in range(1, last_page(self.count) + 1):
            yield numbered("/catalogue/", number)
        for index in range(len(words.CATEGORIES)):
            for number in range(1, last_page(len(self.members(index))) + 1):
                yield numbered(category_path(index), number)
        for number in range(1, self.count + 1):
            yield self.product(number).path


def category_path(index: int) -> str:
    return f"/catalogue/category/{words.slug(words.CATEGORIES[index])}/"


def last_page(count: int) -> int:
    return max(1, -(-count // PER_PAGE))


def _details(product: Product) -> str:
    rows = (
        ("Code", product.code),
        ("Category", words.CATEGORIES[product.category]),
        ("Author", product.author),
        ("First published", str(product.year)),
        ("Pages", str(product.pages)),
        ("Rating", f"{product.rating} of 5"),
        ("Price", product.price),
        ("Availability", product.stock),
    )
    cells = "\n".join(f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    return f'<h2 id="details">Details</h2>\n<table class="details">\n{cells}\n</table>'


def _linked_data(product: Product) -> str:
    data = {
        "@context": "https://schema.org",
        "@type": "Book",
        "name": product.title,
        "sku": product.code,
        "author": {"@type": "Person", "name": product.author},
        "numberOfPages": product.pages,
        "offers": {
            "@type": "Offer",
            "price": f"{product.cents / 100:.2f}",
            "priceCurrency": "EUR",
            "availability": "https://schema.org/" + ("InStock" if product.copies else "OutOfStock"),
        },
    }
    text = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c")
    return f'<script type="application/ld+json">{text}</script>\n'


def _cover(product: Product) -> str:
    hue = product.number * 47 % 360
    lines = "".join(
        f'<text x="24" y="{90 + 38 * at}">{escape(word)}</text>' for at, word in enumerate(product.title.split()[:7])
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 400" font-family="Georgia, serif">'
        f'<rect width="300" height="400" fill="hsl({hue} 42% 38%)"/>'
        f'<circle cx="{60 + product.rating * 40}" cy="320" r="{40 + product.pages % 60}" '
        f'fill="hsl({(hue + 40) % 360} 55% 62%)"/>'
        f'<g font-size="32" fill="#fff">{lines}</g>'
        f'<text x="24" y="376" font-size="18" fill="#fff">{escape(product.author)}</text></svg>'
    )


_SIDE = (
    '<aside class="side">\n<h2>Categories</h2>\n<ul class="categories">\n'
    + "\n".join(f"<li>{link(category_path(i), name)}</li>" for i, name in enumerate(words.CATEGORIES))
    + "\n</ul>\n</aside>\n"
)
