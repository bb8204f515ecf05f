"""shoal runs."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.console import ago, clean, count, print_json, print_line, print_table
from shoal.cli.find_run import show_listing
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.queue.base import Queue
from shoal.view.documents import run_document as run_document
from shoal.view.run_state import display_state, live_workers


@click.command(
    cls=Command,
    examples="""
    shoal runs                 all runs, newest first
    shoal runs --json | jq -r '.[] | select(.state == "paused") | .name'
    """,
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="Maximum rows.")
@as_json
@click_options("look")
def runs(settings: Settings, limit: int, as_json: bool) -> int:
    """List runs, newest first."""

    async def job(queue: Queue) -> None:
        listed = await queue.runs(limit=limit)
        found = list(zip(listed, await queue.stats_of([run.id for run in listed]), strict=True))
        if as_json:
            print_json([run_document(run, stats) for run, stats in found])
            return
        now = await queue.now()
        if not found:
            print_line("No runs here yet.")
            return
        statuses = await live_workers(queue, settings)
        rows = [
            (
                run.name,
                clean(run.scraper),
                await display_state(queue, settings, run, statuses),
                count(stats.done),
                count(stats.failed),
                count(stats.open),
                count(stats.records),
                ago(run.created_at, now),
            )
            for run, stats in found
        ]
        heads = ("run", "scraper", "state", "done", "failed", "open", "records", "started")
        print_table(heads, rows, right="done failed open records")
        for name in dict.fromkeys(name for _, stats in found for name in stats.away):
            print_hint(f"shard {clean(name)} is away: what it has is missing here, or as last known (shoal shards)")

    return show_listing(settings, job, named=None, as_json=as_json, empty=[])
