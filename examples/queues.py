"""Three queues in one run: urgent pages with half an hour, all others with one, failures kept for a day.

shoal run examples/queues.py -o queues.jsonl --allow-private
shoal route http://127.0.0.1:8808/catalogue/a-book_1/ examples/queues.py     # which queue a URL is in, and why
"""

import os

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")

queues = shoal.Scraper(
    "queues",
    start=URL.rstrip("/") + "/catalogue/",
    routes=[
        shoal.Route("/catalogue/*_*/", priority=10, ttl="30m"),  # the priority queue: books, before any listing
        shoal.Route("*", ttl="1h"),  # the regular queue: everything else
    ],
    dead_retention="24h",  # the failed queue: dead letters, expired ones among them
)


@queues.page("/catalogue/*_*/")
def book(page):
    yield {"title": page.css("h1::text").get()}


@queues.page("/catalogue/*")
def listing(page):
    yield page.follow(".product a")
    yield page.follow(".next a", ttl="10m")  # of two TTLs the smaller counts
