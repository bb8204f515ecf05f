"""shoal map: the URLs of a site, from its sitemaps."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import click

from shoal.cli.command import Command
from shoal.cli.console import print_line
from shoal.cli.options import click_options
from shoal.config.load import Settings
from shoal.errors import UsageError
from shoal.view.formatting import count

MAX_PROBLEMS = 20  # that are told one by one


@click.command(
    cls=Command,
    examples="""
    shoal map example.com                      one URL per line
    shoal map example.com --since 7d           what changed in the last week
    shoal map example.com/sitemap.xml --json   with dates, as JSON lines
    shoal map example.com | shoal run - -o pages.csv
    """,
)
@click.argument("site", metavar="SITE")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Stop after so many URLs.")
@click.option("--since", metavar="DATE", help="Only what has changed since: a date, or how long ago (7d).")
@click.option("--json", "as_json", is_flag=True, help="JSON lines: url, lastmod, sitemap.")
@click_options("run", without=("sitemap_since", "workers", "concurrency"))
def map(settings: Settings, site: str, limit: int | None, since: str | None, as_json: bool) -> int:
    """List the URLs of a site, one per line, without fetching a page.

    SITE is a site (example.com), or one of its sitemaps or feeds. Only robots.txt, which names the sitemaps, and the
    sitemaps themselves are fetched, at the pace that runs keep.

    Exit status: 0 all sitemaps were read, 3 some of them could not be read, 2 there is none, or wrong usage.
    """
    return asyncio.run(_list(settings, site, limit, since or "", as_json))


async def _list(settings: Settings, site: str, limit: int | None, since: str, as_json: bool) -> int:
    from shoal.app import pace_rule
    from shoal.cli.fetch_page import PageFetcher
    from shoal.commands.site_map import SiteMap
    from shoal.config.load import SETTINGS
    from shoal.core.url import lane_of
    from shoal.launch.run_context import sitemap_since
    from shoal.sources.url_text import with_scheme

    given = SETTINGS["sitemap_since"].read(since, "--since")
    fetcher, pace = PageFetcher(settings), pace_rule(settings)
    now = asyncio.get_running_loop().time

    async def pause(url: str) -> None:
        await asyncio.sleep(max(pace(lane_of(url)).spacing, await fetcher.crawl_delay(url)))

    listing = SiteMap(fetcher.response, pause, settings.scope, sitemap_since(given)(time.time()))
    told, began = 0, now()
    try:
        async for one in listing.urls(with_scheme(site)):
            told += 1
            shown = {"url": one.url, "lastmod": one.lastmod or None, "sitemap": one.sitemap}
            print_line(json.dumps(shown, ensure_ascii=False) if as_json else one.url)
            if told == limit:
                break
    finally:
        await fetcher.close()
    return _report(listing.read, told, listing.problems, now() - began)


def _report(read: int, told: int, problems: list[str], seconds: float) -> int:
    for problem in problems[:MAX_PROBLEMS]:
        print_line(f"! {problem}", sys.stderr)
    if len(problems) > MAX_PROBLEMS:
        print_line(f"! and {count(len(problems) - MAX_PROBLEMS, 'more problem')}", sys.stderr)
    if not read:
        raise UsageError(
            "no sitemap was found", hint="name one: shoal map https://…/sitemap.xml; or follow links: shoal run"
        )
    print_line(f"{count(told, 'URL')} in {count(read, 'sitemap')}, {seconds:.1f} s", sys.stderr)
    return 3 if problems else 0
