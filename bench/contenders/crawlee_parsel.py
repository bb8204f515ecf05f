"""Crawlee's ParselCrawler with its queue in SQLite or in memory, at a fixed concurrency, robots respected."""

from __future__ import annotations

import argparse
import logging
import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from crawlee import ConcurrencySettings, service_locator
from crawlee.configuration import Configuration
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.storage_clients import MemoryStorageClient, SqlStorageClient, StorageClient


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", action="append", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--state", required=True)
    parser.add_argument("--storage", choices=("sql", "memory"), default="memory")
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--delay", type=float, default=0.0)
    return parser.parse_args()


def storage(args: argparse.Namespace) -> StorageClient:
    if args.storage == "memory":
        return MemoryStorageClient()
    Path(args.state).mkdir(exist_ok=True)
    warnings.simplefilter("ignore")  # it says at every start that it is experimental
    return SqlStorageClient(connection_string=f"sqlite+aiosqlite:///{args.state}/crawlee.db")


def options(args: argparse.Namespace) -> dict[str, Any]:
    """What every Crawlee contender is given; at a fixed concurrency its autoscaler never holds it back."""
    configuration = Configuration(storage_dir=args.state, log_level="ERROR", available_memory_ratio=1.0)
    service_locator.set_configuration(configuration)
    pace = {"max_tasks_per_minute": 60 * len(args.url) / args.delay} if args.delay else {}
    return {
        "configuration": configuration,
        "concurrency_settings": ConcurrencySettings(
            min_concurrency=args.concurrency,
            max_concurrency=args.concurrency,
            desired_concurrency=args.concurrency,
            **pace,
        ),
        "respect_robots_txt_file": True,
        "use_session_pool": False,
        "retry_on_blocked": False,
        "status_message_logging_interval": timedelta(hours=1),
        "configure_logging": False,
    }


async def main() -> None:
    args = arguments()
    client = storage(args)
    service_locator.set_storage_client(client)
    crawler = ParselCrawler(storage_client=client, **options(args))

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        page = context.selector
        await context.push_data(
            {
                "url": context.request.url,
                "title": page.css("h1::text").get(),
                "price": page.css(".detail .price::text").get(),
                "sku": page.css(".sku::text").get(),
            }
        )
        await context.enqueue_links(selector="a")

    await crawler.run(args.url)
    dataset = await crawler.get_dataset()
    with Path(args.out).open("wb") as out:
        async for item in dataset.iterate_items():
            out.write(msgspec.json.encode(item) + b"\n")


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    uvloop.run(main())
