"""shoal changes RUN."""

from __future__ import annotations

from collections.abc import AsyncIterator

import click
import msgspec

from shoal.cli.command import Command
from shoal.cli.console import clean, count, print_json, print_line
from shoal.cli.find_run import RUN_HELP, find_run, run_argument, with_queue
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.core.run import Run
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.view.changes import LISTED, PageChange, all_changes, count_changes, describe_changes

WIDTH = max(map(len, LISTED))


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal run books.py -o books.jsonl --changed-only --fresh
    shoal changes                     what changed, came and went in it
    shoal changes k3f --only gone     URLs of one kind
    shoal changes k3f --json
    """,
)
@run_argument
@click.option("--only", type=click.Choice(LISTED), help="List only these.")
@as_json
@click_options("look")
def changes(settings: Settings, run: str | None, only: str | None, as_json: bool) -> int:
    """List the pages that changed, came and went since the run before (--changed-only)."""

    async def job(queue: Queue) -> int:
        found = await find_run(queue, run)
        counts = await count_changes(queue, found)
        if counts is None:
            raise UsageError(
                f"run {found.name} did not compare its pages with an earlier run",
                hint="crawl with --changed-only, now and the next time",
            )
        listed = _chosen(queue, found, only)
        if as_json:
            pages = [msgspec.to_builtins(change) async for change in listed]
            print_json({"run": found.name, **msgspec.to_builtins(counts), "pages": pages})
            return 0
        against = f" (compared with {counts.previous})" if counts.previous else ""
        print_line(f"{found.name}: {describe_changes(counts) or 'no pages yet'}{against}")
        async for change in listed:
            print_line(f"  {change.change.ljust(WIDTH)}  {clean(change.url)}{_details(change)}")
        return 0

    return with_queue(settings, job)


async def _chosen(queue: Queue, run: Run, only: str | None) -> AsyncIterator[PageChange]:
    async for change in all_changes(queue, run):
        if only in (None, change.change):
            yield change


def _details(change: PageChange) -> str:
    """What is different about a page, in a few words."""
    words = []
    if change.fields:
        words.append(", ".join(map(clean, change.fields)))
    if change.records != change.records_before:
        words.append(f"{count(change.records, 'record')}, before {count(change.records_before)}")
    if change.links_changed:
        words.append("links")
    return f"  ({'; '.join(words)})" if change.change == "changed" and words else ""
