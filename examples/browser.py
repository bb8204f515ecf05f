"""Pages by a browser: the demo shop as Chromium sees it, with a picture of each book's page.

shoal run examples/browser.py -o books.jsonl --allow-private
"""

import os

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")

books = shoal.Scraper("browser", start=URL)


@books.page("/catalogue/*_*/", fetch="browser", steps=["wait h1"])
async def book(page):
    yield {"title": page.css("h1::text").get(), "picture": len(await page.screenshot())}


@books.page("/catalogue/*")
def listing(page):
    yield from page.follow(".next a, .product a")
