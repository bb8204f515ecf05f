"""Crawlee's sitemap loader reads an index and all it leads to; URLs are counted."""

from __future__ import annotations

import asyncio
import sys

from crawlee.http_clients import ImpitHttpClient
from crawlee.request_loaders import SitemapRequestLoader


async def main() -> None:
    count = 0
    client = ImpitHttpClient()
    async with (
        client,
        SitemapRequestLoader(
            [sys.argv[1]], http_client=client, max_buffer_size=1_000, enqueue_strategy="all"
        ) as loader,
    ):
        while not await loader.is_finished():
            request = await loader.fetch_next_request()
            if request is not None:
                count += 1
                await loader.mark_request_as_handled(request)
    print(count)


asyncio.run(main())
