"""shoal cache list, show and clear: the responses that runs share."""

from __future__ import annotations

import sys

import click

from shoal.cli.command import Command, Group
from shoal.cli.console import clean, count, format_duration, print_json, print_line, print_table, size
from shoal.cli.find_run import show_listing, with_queue
from shoal.cli.options import as_json, click_options
from shoal.commands.action_log import log_command
from shoal.config.load import Settings
from shoal.core.url import canonical
from shoal.errors import UsageError
from shoal.fetch.cached_response import unpack_response
from shoal.queue.base import Queue
from shoal.sources.url_text import with_scheme
from shoal.view.cache import clear_cache, entries_of_url, entry_document, stats_document

EMPTY = "The cache is empty: runs with --cache fill it."


@click.group(
    cls=Group,
    examples="""
    shoal run urls.txt -o pages.csv --cache 1h     use what was fetched within 1 h
    shoal cache list --host shop.example
    shoal cache show https://shop.example/item/7 > page.html
    shoal cache clear --host shop.example
    """,
)
def cache() -> None:
    """Responses that runs share (--cache)."""


@cache.command("list", cls=Command, examples="shoal cache list --host shop.example -n 20")
@click.option("--host", default="", metavar="HOST", help="Only responses of this host.")
@click.option("-n", "--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="Maximum rows.")
@as_json
@click_options("look")
def list_(settings: Settings, host: str, limit: int, as_json: bool) -> int:
    """List stored responses, the newest first."""

    async def job(queue: Queue) -> None:
        stats, found = await queue.cache_stats(), await queue.cache_list(host=host, limit=limit)
        if as_json:
            print_json({**stats_document(stats), "responses": [entry_document(entry) for entry in found]})
            return
        if not stats.entries:
            print_line(EMPTY)
            return
        rows = [
            (
                clean(entry.url),
                f"{format_duration(entry.age)} ago",
                format_duration(entry.fresh_for) if entry.fresh_for else "–",
                size(entry.size),
            )
            for entry in found
        ]
        print_table(("url", "stored", "fresh for", "size"), rows, right="size")
        print_line(f"{count(stats.entries, 'response')} in all, {size(stats.bytes)}.")

    empty = {"entries": 0, "bytes": 0, "oldest": 0.0, "responses": []}
    return show_listing(settings, job, named=None, as_json=as_json, empty=empty)


@cache.command("show", cls=Command, examples="shoal cache show https://shop.example/item/7 --headers")
@click.argument("url")
@click.option("--headers", is_flag=True, help="Status and headers instead of the page.")
@as_json
@click_options("look")
def show(settings: Settings, url: str, headers: bool, as_json: bool) -> int:
    """Write a stored response to stdout, byte for byte."""
    wanted = canonical(with_scheme(url))

    async def job(queue: Queue) -> None:
        entries = await entries_of_url(queue, wanted)
        (entry,) = await queue.cache_get([entries[0].key]) if entries else (None,)
        response = unpack_response(entry.data, wanted) if entry is not None else None
        if entry is None or response is None:
            raise UsageError(f"no response of {clean(url)} is in the cache", hint="shoal cache list shows what is")
        if as_json:
            print_json({**entry_document(entry), "status": response.status, "headers": response.headers})
        elif headers:
            print_line(f"{response.status} {clean(response.url)}")
            for name, value in response.headers:
                print_line(f"{clean(name)}: {clean(value)}")
        else:
            sys.stdout.buffer.write(response.body)
            sys.stdout.buffer.flush()

    return with_queue(settings, job) or 0


@cache.command("clear", cls=Command, examples="shoal cache clear https://shop.example/item/7")
@click.argument("url", required=False)
@click.option("--host", default="", metavar="HOST", help="Everything of this host.")
@as_json
@click_options("look")
def clear(settings: Settings, url: str | None, host: str, as_json: bool) -> int:
    """Remove stored responses: of a URL, of a host, or all. They are fetched again when they are needed."""
    if url and host:
        raise UsageError("a URL and --host were both given", hint="give one of them, or neither to clear everything")
    wanted = canonical(with_scheme(url)) if url else ""

    async def job(queue: Queue) -> None:
        gone = await clear_cache(queue, host=host, url=wanted)
        if gone:
            await log_command(queue, "clear cache", wanted or host or "all hosts", count=gone)
        if as_json:
            print_json({"count": gone})
        else:
            print_line(f"Removed {count(gone, 'response')} from the cache.")

    return show_listing(settings, job, named=None, as_json=as_json, empty={"count": 0})
