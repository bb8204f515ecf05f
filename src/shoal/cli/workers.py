"""shoal workers: who works on the queue, and on what."""

from __future__ import annotations

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import listing
from shoal.cli.show import ago, count, document, line, paint, size, table
from shoal.config import Settings
from shoal.core.lane import Mark
from shoal.queue.base import Queue
from shoal.view.documents import worker_document
from shoal.view.workers import mixed_code as mixed_code
from shoal.view.workers import place
from shoal.view.workers import state_of as state_of


@click.command(
    cls=Command,
    examples="""
    shoal workers                 all of them, also those that fell silent
    shoal workers --json | jq -r '.[] | select(.state == "stale") | .id'
    """,
)
@as_json
@click_options("look")
def workers(settings: Settings, as_json: bool) -> int:
    """List the workers of this queue: where they are, what they do, when they were last heard of."""

    async def job(queue: Queue) -> None:
        marks, now = sorted(await queue.workers(), key=place), await queue.now()
        warnings = mixed_code(mark for mark in marks if state_of(mark, now, settings.stale_after) != "stale")
        if as_json:
            document([worker_document(mark, now, settings.stale_after) for mark in marks])
        elif not marks:
            line("Nobody works on this queue.")
            line("  try: shoal worker FILE.py")
        else:
            _show(marks, now, settings.stale_after)
        for words in () if as_json else warnings:
            line(paint(words, "yellow"))

    return listing(settings, job, named=None, as_json=as_json, empty=[])


def _show(marks: list[Mark], now: int, stale_after: float) -> None:
    rows = [
        (
            mark.id,
            mark.host,
            mark.pid,
            mark.version,
            state_of(mark, now, stale_after),
            mark.doing or "",
            count(mark.leased),
            count(mark.done),
            count(mark.failed),
            size(mark.memory) if mark.memory else "",
            ago(mark.seen_at, now),
            ", ".join(mark.serves),
        )
        for mark in marks
    ]
    heads = (
        "worker", "host", "pid", "version", "state", "doing", "leased", "done", "failed", "memory",
        "seen", "serves",
    )  # fmt: skip
    spare = "version pid host serves memory doing"
    table(heads, rows, right="pid leased done failed memory", spare=spare)
