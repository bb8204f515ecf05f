"""Crawlee's PlaywrightCrawler: four pages at once, images, media and fonts not loaded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from browser_options import BLOCKED, FLAGS, PAGES_AT_ONCE, arguments, urls_of
from crawlee import ConcurrencySettings
from crawlee.crawlers import PlaywrightCrawler, PlaywrightCrawlingContext, PlaywrightPreNavCrawlingContext
from crawlee.storage_clients import MemoryStorageClient


async def main() -> None:
    args = arguments()
    crawler = PlaywrightCrawler(
        storage_client=MemoryStorageClient(),
        headless=True,
        browser_type="chromium",
        browser_launch_options={"executable_path": args.browser, "args": FLAGS, "chromium_sandbox": not FLAGS},
        concurrency_settings=ConcurrencySettings(
            min_concurrency=PAGES_AT_ONCE, max_concurrency=PAGES_AT_ONCE, desired_concurrency=PAGES_AT_ONCE
        ),
    )
    out = Path(args.out).open("w")  # noqa: SIM115

    @crawler.pre_navigation_hook
    async def block(context: PlaywrightPreNavCrawlingContext) -> None:
        async def decide(route) -> None:  # type: ignore[no-untyped-def]
            await (route.abort() if route.request.resource_type in BLOCKED else route.continue_())

        await context.page.route("**/*", decide)

    @crawler.router.default_handler
    async def handle(context: PlaywrightCrawlingContext) -> None:
        await context.page.wait_for_selector(".price")
        html = await context.page.content()
        out.write(json.dumps({"url": context.request.url, "size": len(html), "price": 'class="price"' in html}) + "\n")

    await crawler.run(urls_of(args))
    out.close()


asyncio.run(main())
