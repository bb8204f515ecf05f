"""The same Scrapy, tuned by hand: lexbor for parsing, a set in the spider, requests only for new pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin

import scrapy
from scrapy.http import Response
from scrapy_css import crawl
from selectolax.lexbor import LexborHTMLParser


class LexborSpider(scrapy.Spider):
    name = "bench"

    def __init__(self, start_urls: list[str]) -> None:
        super().__init__(start_urls=start_urls)
        self.seen = set(start_urls)

    def parse(self, response: Response) -> Iterator[Any]:
        tree = LexborHTMLParser(response.body)
        url = response.url
        yield {
            "url": url,
            "title": tree.css_first("h1").text(),
            "price": tree.css_first(".detail .price").text(),
            "sku": tree.css_first(".sku").text(),
        }
        origin = "/".join(url.split("/", 3)[:3])
        for link in tree.css("a"):
            href = link.attributes.get("href")
            if not href:
                continue
            if href[0] == "/" and href[:2] != "//":
                target = origin + href
            elif href.startswith("http"):
                target = href
            else:
                target = urljoin(url, href)
            if target not in self.seen and target.startswith(origin):
                self.seen.add(target)
                yield scrapy.Request(target, dont_filter=True)


if __name__ == "__main__":
    crawl(LexborSpider)
