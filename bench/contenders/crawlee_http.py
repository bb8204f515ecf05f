"""The fastest sensible Crawlee: HttpCrawler in memory, lexbor, its own set, only new links enqueued."""

from __future__ import annotations

import logging
from pathlib import Path
from urllib.parse import urljoin

import msgspec
import uvloop
from crawlee import service_locator
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext
from crawlee.http_clients import ImpitHttpClient
from crawlee.storage_clients import MemoryStorageClient
from crawlee_parsel import arguments, options
from selectolax.lexbor import LexborHTMLParser


async def main() -> None:
    args = arguments()
    client = MemoryStorageClient()
    service_locator.set_storage_client(client)
    http = ImpitHttpClient(browser=None, persist_cookies_per_session=False)
    crawler = HttpCrawler(storage_client=client, http_client=http, **options(args))
    seen = set(args.url)
    out = Path(args.out).open("wb")  # noqa: SIM115

    @crawler.router.default_handler
    async def handle(context: HttpCrawlingContext) -> None:
        tree = LexborHTMLParser(await context.http_response.read())
        url = context.request.url
        record = {
            "url": url,
            "title": tree.css_first("h1").text(),
            "price": tree.css_first(".detail .price").text(),
            "sku": tree.css_first(".sku").text(),
        }
        out.write(msgspec.json.encode(record) + b"\n")
        origin = "/".join(url.split("/", 3)[:3])
        fresh = []
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
            if target not in seen and target.startswith(origin):
                seen.add(target)
                fresh.append(target)
        if fresh:
            await context.add_requests(fresh)

    await crawler.run(args.url)
    out.close()


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(main())
