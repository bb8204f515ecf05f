"""shoal runs."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import listing
from shoal.cli.show import ago, clean, count, document, line, table
from shoal.config import Settings
from shoal.queue.base import Queue
from shoal.view.documents import run_document as run_document
from shoal.view.standing import alive, standing


@click.command(
    cls=Command,
    examples="""
    shoal runs                 all runs kept here, newest first
    shoal runs --json | jq -r '.[] | select(.state == "paused") | .name'
    """,
)
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many.")
@as_json
@click_options("look")
def runs(settings: Settings, limit: int, as_json: bool) -> int:
    """List the runs kept here, newest first."""

    async def job(queue: Queue) -> None:
        listed = await queue.runs(limit=limit)
        found = list(zip(listed, await queue.stats_of([run.id for run in listed]), strict=True))
        if as_json:
            document([run_document(run, stats) for run, stats in found])
            return
        now = await queue.now()
        if not found:
            line("No runs here yet.")
            return
        marks = await alive(queue, settings)
        rows = [
            (
                run.name,
                clean(run.scraper),
                await standing(queue, settings, run, marks),
                count(stats.done),
                count(stats.dead),
                count(stats.open),
                count(stats.records),
                ago(run.created_at, now),
            )
            for run, stats in found
        ]
        heads = ("run", "scraper", "state", "done", "dead", "open", "records", "begun")
        table(heads, rows, right="done dead open records")

    return listing(settings, job, named=None, as_json=as_json, empty=[])
