"""shoal workers: who works on the queue, and on what."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.console import ago, count, paint, print_json, print_line, print_table, size
from shoal.cli.find_run import show_listing
from shoal.cli.hints import print_hint
from shoal.cli.options import as_json, click_options
from shoal.config.load import Settings
from shoal.core.lane import WorkerStatus
from shoal.queue.base import Queue
from shoal.view.documents import worker_document
from shoal.view.workers import mixed_code_warnings as mixed_code_warnings
from shoal.view.workers import worker_sort_key
from shoal.view.workers import worker_state as worker_state


@click.command(
    cls=Command,
    examples="""
    shoal workers                 all of them, stale ones included
    shoal workers --json | jq -r '.[] | select(.state == "stale") | .id'
    """,
)
@as_json
@click_options("look")
def workers(settings: Settings, as_json: bool) -> int:
    """List the workers of this queue: where they are, what they do, when they were last seen."""

    async def job(queue: Queue) -> None:
        statuses, now = sorted(await queue.workers(), key=worker_sort_key), await queue.now()
        warnings = mixed_code_warnings(
            status for status in statuses if worker_state(status, now, settings.stale_after) != "stale"
        )
        if as_json:
            print_json([worker_document(status, now, settings.stale_after) for status in statuses])
        elif not statuses:
            print_line("No worker is connected to this queue.")
            print_hint("  try: shoal worker FILE.py")
        else:
            _show(statuses, now, settings.stale_after)
        for words in () if as_json else warnings:
            print_line(paint(words, "yellow"))

    return show_listing(settings, job, named=None, as_json=as_json, empty=[])


def _show(statuses: list[WorkerStatus], now: int, stale_after: float) -> None:
    some_have = any(status.capabilities for status in statuses)
    rows = [
        (
            status.id,
            status.host,
            status.pid,
            status.version,
            worker_state(status, now, stale_after),
            status.activity or "",
            count(status.leased),
            count(status.done),
            count(status.failed),
            size(status.memory) if status.memory else "",
            ago(status.seen_at, now),
            ", ".join(status.serves),
            *([", ".join(status.capabilities)] if some_have else []),
        )
        for status in statuses
    ]
    heads = (
        "worker", "host", "pid", "version", "state", "doing", "leased", "done", "failed", "memory",
        "seen", "serves", *(["has"] if some_have else []),
    )  # fmt: skip
    spare = "version pid host serves memory doing has"
    print_table(heads, rows, right="pid leased done failed memory", spare=spare)
