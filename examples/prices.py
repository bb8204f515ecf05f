"""A script that crawls in its own process and uses the records directly.

python examples/prices.py
shoal run examples/prices.py -o prices.csv --allow-private     # the same scraper as a command
"""

import os
from collections import defaultdict
from statistics import mean

import shoal

URL = os.environ.get("SHOAL_DEMO_URL", "http://127.0.0.1:8808/")

prices = shoal.Scraper("prices", start=URL)


@prices.page("/catalogue/*_*/")
def book(page):
    details = {row.css("th::text").get(): row.css("td::text").get() for row in page.css("table.details tr")}
    return {"category": details["Category"], "price": float(details["Price"].lstrip("€"))}


@prices.page("/catalogue/*")
def listing(page):
    return page.follow(".next a, .product a")


if __name__ == "__main__":
    by_category = defaultdict(list)
    for record in shoal.run_sync(prices, allow_private=True):
        by_category[record["category"]].append(record["price"])
    for category, paid in sorted(by_category.items()):
        print(f"{category:20} {len(paid):3} books, {mean(paid):6.2f} € on average")
