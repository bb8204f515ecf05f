"""Scrapy as its documentation advises for speed: asyncio reactor on uvloop, CSS links, JOBDIR, robots."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.http import Response


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--delay", type=float, default=0.0)
    return parser.parse_args()


def settings(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "ASYNCIO_EVENT_LOOP": "uvloop.Loop",
        "JOBDIR": args.state,
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS": args.concurrency,
        "CONCURRENT_REQUESTS_PER_DOMAIN": args.concurrency,
        "DOWNLOAD_DELAY": args.delay,
        "RANDOMIZE_DOWNLOAD_DELAY": False,
        "AUTOTHROTTLE_ENABLED": False,
        "FEEDS": {args.out: {"format": "jsonlines", "encoding": "utf8"}},
        "LOG_LEVEL": "ERROR",
        # Everything off that this crawl does not need and that costs Scrapy time.
        "COOKIES_ENABLED": False,
        "REFERER_ENABLED": False,
        "METAREFRESH_ENABLED": False,
        "DOWNLOADER_STATS": False,
        "TELNETCONSOLE_ENABLED": False,
        "REMOTE_CONTROL_ENABLED": False,
        "MEMUSAGE_ENABLED": False,
        "STATS_DUMP": False,
    }


class BenchSpider(scrapy.Spider):
    name = "bench"

    async def start(self) -> AsyncIterator[Any]:
        for url in self.start_urls:  # the default does not remember start pages and fetches them twice
            yield scrapy.Request(url)

    def parse(self, response: Response) -> Iterator[Any]:
        yield {
            "url": response.url,
            "title": response.css("h1::text").get(),
            "price": response.css(".detail .price::text").get(),
            "sku": response.css(".sku::text").get(),
        }
        for href in response.css("a::attr(href)").getall():
            yield response.follow(href)


def crawl(spider: type[scrapy.Spider]) -> None:
    args = arguments()
    process = CrawlerProcess(settings(args))
    process.crawl(spider, start_urls=args.url)
    process.start()


if __name__ == "__main__":
    crawl(BenchSpider)
