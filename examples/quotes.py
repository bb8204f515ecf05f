"""Many records from one page: quotes overheard in the demo shop.

shoal run examples/quotes.py -o quotes.csv --allow-private
"""

import os

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")

quotes = shoal.Scraper("quotes", start=URL)


@quotes.page("/quotes/*")
def overheard(page):
    for quote in page.css(".quote"):
        yield {"text": quote.css(".text::text").get(), "author": quote.css(".author::text").get()}
    yield from page.follow(".next a")
