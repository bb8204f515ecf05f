"""The scraper of `shoal demo --crawl`: every book of the demo shop."""

import os

import shoal

books = shoal.Scraper("books", start=os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/"))


@books.page("/catalogue/*_*/")
def book(page: shoal.Page):  # type: ignore[no-untyped-def]
    yield {
        "title": page.css("h1::text").get(),
        "price": page.css(".book .price::text").get(),
        "stock": page.css(".book .stock::text").get(),
        "url": page.url,
    }


@books.page("/catalogue/*")
def listing(page: shoal.Page):  # type: ignore[no-untyped-def]
    yield from page.follow(".next a, .product a")
