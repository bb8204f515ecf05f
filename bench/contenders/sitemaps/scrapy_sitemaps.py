"""Scrapy's SitemapSpider reads an index and all it leads to; pages are counted, and not requested."""

from __future__ import annotations

import sys
from typing import Any

from scrapy.crawler import CrawlerProcess
from scrapy.spiders import SitemapSpider


class Counting(SitemapSpider):
    name = "counting"
    count = 0

    def sitemap_filter(self, entries: Any) -> Any:
        for entry in entries:
            if entry["loc"].endswith(".xml"):
                yield entry
            else:
                Counting.count += 1


process = CrawlerProcess({"LOG_LEVEL": "ERROR", "ROBOTSTXT_OBEY": False, "DOWNLOAD_DELAY": 0})
process.crawl(Counting, sitemap_urls=[sys.argv[1]])
process.start()
print(Counting.count)
