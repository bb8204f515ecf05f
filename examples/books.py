"""Every book of the demo shop, from its listings.

shoal demo                                        # serves the shop at http://127.0.0.1:8808/
shoal run examples/books.py -o books.jsonl --allow-private
"""

import os

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")

books = shoal.Scraper("books", start=URL)


@books.page("/catalogue/*_*/")
def book(page):
    yield {
        "title": page.css("h1::text").get(),
        "price": float(page.css(".book .price::text").get().lstrip("€")),
        "stock": page.css(".book .stock::text").get(),
        "url": page.url,
    }


@books.page("/catalogue/*")
def listing(page):
    yield from page.follow(".next a, .product a")
