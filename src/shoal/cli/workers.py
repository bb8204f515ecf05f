"""shoal workers: who works on the queue, and on what."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import click

from shoal.cli.command import Command
from shoal.cli.options import as_json, click_options
from shoal.cli.pick import listing
from shoal.cli.show import ago, clean, count, document, line, paint, size, stamp, table
from shoal.config import Settings
from shoal.core.lane import Mark
from shoal.queue.base import Queue


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
        marks, now = sorted(await queue.workers(), key=_place), await queue.now()
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


def _place(mark: Mark) -> tuple[str, int, str]:
    """node-1, node-2, node-10."""
    number = mark.id.rpartition("-")[2]
    return mark.name, int(number) if number.isdecimal() else 0, mark.id


def state_of(mark: Mark, now: int, stale_after: float) -> str:
    """working, idle, paused or draining, as it is or was just asked to be; stale after a set silence."""
    if now - mark.seen_at > stale_after * 1e6:
        return "stale"
    if mark.asked:
        return {"drain": "draining", "pause": "paused"}.get(mark.asked, mark.state)
    return mark.state


def mixed_code(marks: Iterable[Mark]) -> list[str]:
    """A sentence for every scraper of which workers have different versions."""
    versions: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for mark in marks:
        for pair in mark.code.split():
            name, equals, version = pair.rpartition("=")
            if equals:
                versions[name][version].append(mark.id)
    return [
        f"Workers differ in the code of {clean(name)}: "
        + ", ".join(f"{clean(version)} on {_some(ids)}" for version, ids in found.items())
        for name, found in versions.items()
        if len(found) > 1
    ]


def _some(ids: list[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} and {len(ids) - 1} more"


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
    table(heads, rows, right="pid leased done failed memory")


def worker_document(mark: Mark, now: int, stale_after: float) -> dict[str, Any]:
    """A worker as machines see it; the keys are stable."""
    return {
        "id": mark.id,
        "name": mark.name,
        "host": mark.host,
        "pid": mark.pid,
        "version": mark.version,
        "serves": list(mark.serves),
        "code": dict(pair.rpartition("=")[::2] for pair in mark.code.split() if "=" in pair),
        "state": state_of(mark, now, stale_after),
        "asked": mark.asked,
        "doing": mark.doing,
        "leased": mark.leased,
        "done": mark.done,
        "failed": mark.failed,
        "memory": mark.memory,
        "started_at": stamp(mark.started_at),
        "seen_at": stamp(mark.seen_at),
        "seen_seconds_ago": round(max(0.0, (now - mark.seen_at) / 1e6), 1),
    }
