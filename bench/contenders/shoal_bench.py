"""The bench crawl as a shoal scraper; the site to crawl is named by BENCH_URLS."""

import os

import shoal

bench = shoal.Scraper("bench", start=os.environ["BENCH_URLS"].split())


@bench.page("/*")
def page(page):
    yield {
        "url": page.url,
        "title": page.css("h1::text").get(),
        "price": page.css(".detail .price::text").get(),
        "sku": page.css(".sku::text").get(),
    }
    yield from page.follow("a")
