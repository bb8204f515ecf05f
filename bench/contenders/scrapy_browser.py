"""scrapy-playwright: four pages at once, images, media and fonts not loaded."""

from __future__ import annotations

import json
from pathlib import Path

import scrapy
from browser_options import BLOCKED, FLAGS, PAGES_AT_ONCE, arguments, urls_of
from scrapy.crawler import CrawlerProcess
from scrapy_playwright.page import PageMethod

ARGS = arguments()
HANDLER = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"


class Shop(scrapy.Spider):
    name = "shop"
    custom_settings = {
        "DOWNLOAD_HANDLERS": {"http": HANDLER, "https": HANDLER},
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "CONCURRENT_REQUESTS": PAGES_AT_ONCE,
        "CONCURRENT_REQUESTS_PER_DOMAIN": PAGES_AT_ONCE,
        "PLAYWRIGHT_MAX_PAGES_PER_CONTEXT": PAGES_AT_ONCE,
        "PLAYWRIGHT_BROWSER_TYPE": "chromium",
        "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": ARGS.browser, "args": FLAGS, "chromium_sandbox": not FLAGS},
        "PLAYWRIGHT_ABORT_REQUEST": lambda request: request.resource_type in BLOCKED,
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
    }

    async def start(self):  # type: ignore[no-untyped-def]
        self.out = Path(ARGS.out).open("w")  # noqa: SIM115
        meta = {"playwright": True, "playwright_page_methods": [PageMethod("wait_for_selector", ".price")]}
        for url in urls_of(ARGS):
            yield scrapy.Request(url, meta=meta)

    def parse(self, response):  # type: ignore[no-untyped-def]
        record = {"url": response.url, "size": len(response.text), "price": 'class="price"' in response.text}
        self.out.write(json.dumps(record) + "\n")

    def closed(self, reason: str) -> None:
        self.out.close()


process = CrawlerProcess()
process.crawl(Shop)
process.start()
