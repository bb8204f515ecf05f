"""Only books in stock: an async handler that gives up on books that are sold out.

shoal run examples/stock.py -o stock.jsonl --allow-private     # exit status 3: some pages are dead
shoal dead stock                                               # which, and why
"""

import os

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")

stock = shoal.Scraper("stock", start=URL.rstrip("/") + "/catalogue/")


@stock.page("/catalogue/*_*/")
async def book(page):
    copies = page.css(".book .stock::text").re_first(r"\d+")
    if copies is None:
        raise shoal.GiveUp("sold_out", "no copies left")
    yield {"title": page.css("h1::text").get(), "copies": int(copies), "listing": page.meta["listing"]}


@stock.page("/catalogue/*")
async def listing(page):
    for link in page.follow(".product a", meta={"listing": page.url}):
        yield link
    for link in page.follow(".next a", priority=1):  # listings first, so that all books are known early
        yield link
