"""shoal runs."""

from __future__ import annotations

from typing import Any

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import alive, listing, standing
from shoal.cli.show import ago, clean, count, document, line, stamp, table
from shoal.config import Settings
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue


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
        found = [(run, await queue.stats(run.id)) for run in await queue.runs(limit=limit)]
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


def run_document(run: Run, stats: Stats) -> dict[str, Any]:
    """A run as machines see it; the keys are stable."""
    return {
        "name": run.name,
        "scraper": run.scraper,
        "state": run.state,
        "created_at": stamp(run.created_at),
        "finished_at": stamp(run.finished_at),
        "max_pages": run.max_pages,
        "seen": stats.seen,
        "done": stats.done,
        "dead": stats.dead,
        "cancelled": stats.cancelled,
        "open": stats.open,
        "ready": stats.ready,
        "delayed": stats.delayed,
        "leased": stats.leased,
        "claimable": stats.claimable,
        "records": stats.records,
        "retries": stats.retries,
        "lost": stats.lost,
        "stale": stats.stale,
        "bytes": stats.bytes,
        "skipped": dict(stats.skipped),
        "balanced": stats.balanced,
    }
