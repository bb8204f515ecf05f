"""shoal watch: a run as it goes, wherever its workers are."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from typing import Protocol, TextIO

import click

from shoal.cli.command import Command
from shoal.cli.console import display_width, print_line, terminal_width, truncate
from shoal.cli.find_run import RUN_HELP, find_run, run_argument, with_queue
from shoal.cli.hints import pasteable
from shoal.cli.options import click_options
from shoal.cli.progress import LiveUi
from shoal.config.load import Settings, is_dumb_terminal
from shoal.core.forecast import lane_seconds
from shoal.core.run import Run
from shoal.errors import QueueUnavailable, UsageError
from shoal.queue.base import Queue
from shoal.view.documents import watch_document
from shoal.view.formatting import (
    ago,
    clean,
    count,
    format_account,
    format_in_flight,
    format_least_time,
    format_open_tasks,
    format_pace,
    format_time_left,
)
from shoal.view.rates import RateMeter
from shoal.view.status import Status, code_version_warnings, gather_status, host_reason, limiting_factors

REDRAW_INTERVAL = 1.0
LINE_INTERVAL = 5.0
MAX_LANES = 200
WORKERS_SHOWN, HOSTS_SHOWN, LIMITS_SHOWN = 12, 8, 4
TIMEOUT = 60.0
SILENCE_TIMEOUT = 3.0  # seconds after which people are told that nothing is heard


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal watch                           the newest run
    shoal watch k3f --json | jq .pending  one JSON document per line
    """,
)
@run_argument
@click.option("--every", type=click.FloatRange(0.1), metavar="SECONDS", help="How often to refresh.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document per line.")
@click_options("look")
def watch(settings: Settings, run: str | None, every: float | None, as_json: bool) -> int:
    """Watch RUN until it ends: workers, hosts, and what limits it.

    Ctrl-C only stops watching. Exit status: that of the run, 0 complete, 3 finished with pages that failed
    or cancelled; 4 if watching was stopped before that.
    """
    shown: WatchDisplay
    if as_json:
        shown = JsonDisplay(sys.stdout)
    elif sys.stdout.isatty() and not is_dumb_terminal():
        shown = LiveDisplay(sys.stdout)
    else:
        shown = PlainDisplay(sys.stdout)

    async def job(queue: Queue) -> int:
        return await follow(queue, settings, await find_run(queue, run), shown, every or shown.every)

    try:
        return with_queue(settings, job)
    except KeyboardInterrupt:
        shown.close()
        return 4


class WatchDisplay(Protocol):
    every: float

    def show(self, found: Status) -> None: ...

    def message(self, text: str) -> None: ...

    def close(self) -> None: ...


async def follow(queue: Queue, settings: Settings, run: Run, shown: WatchDisplay, every: float) -> int:
    """Look and show until the run has ended; a server that is away for a while is waited for."""
    rates, reached, away = RateMeter(), time.monotonic(), False

    def say(why: str) -> None:
        nonlocal away
        if not away:
            shown.message(f"the queue does not answer, retrying{why}")
        away = True

    while True:
        looking = asyncio.create_task(poll_status(queue, settings, run, rates))
        if not (await asyncio.wait([looking], timeout=SILENCE_TIMEOUT))[0]:
            say("; the data shown is old")
        try:
            found = await looking
        except QueueUnavailable as error:
            if time.monotonic() - reached > TIMEOUT:
                raise
            say(f": {error}")
            await asyncio.sleep(every)
            continue
        if away:
            shown.message("the queue answers again")
        reached, away = time.monotonic(), False
        shown.show(found)
        if found.run.state in ("finished", "cancelled"):
            shown.close()
            return 3 if found.run.state == "cancelled" or found.stats.failed else 0
        await asyncio.sleep(every)


async def poll_status(queue: Queue, settings: Settings, run: Run, rates: RateMeter) -> Status:
    """Everything there is to show, in a few questions that cost the queue little."""
    known = await queue.runs(name=run.name, limit=1)
    if not known:
        raise UsageError(f"run {run.name} was removed", hint="shoal runs lists them")
    rates.add(time.monotonic(), (await queue.stats(run.id)).done)
    return await gather_status(queue, settings, known[0], rate=rates.per_second, lanes=MAX_LANES, dead=False)


class JsonDisplay:
    """One JSON document per line."""

    every = LINE_INTERVAL

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, found: Status) -> None:
        print_line(json.dumps(watch_document(found), ensure_ascii=False), self._stream)
        self._stream.flush()

    def message(self, text: str) -> None:
        print_line(clean(text), sys.stderr)

    def close(self) -> None: ...


class PlainDisplay:
    """One plain line now and then, for logs and pipes."""

    every = LINE_INTERVAL

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, found: Status) -> None:
        stats = found.stats
        parts = [
            f"{found.run.name} {found.state}",
            _counts(found),
            f"{found.rate or 0:.1f} pages/s",
            count(len(found.workers), "worker"),
            format_time_left(found.forecast),
            "adding URLs" if found.seeding else "",
        ]
        if not stats.open:
            parts = [f"{found.run.name} {found.state}", _counts(found), count(stats.records, "record")]
        self.message(" · ".join(part for part in parts if part))

    def message(self, text: str) -> None:
        print_line(clean(text), self._stream)
        self._stream.flush()

    def close(self) -> None: ...


class LiveDisplay(LiveUi):
    """The whole picture, drawn over in place."""

    every = REDRAW_INTERVAL

    def show(self, found: Status) -> None:
        self._draw(list(self._picture(found)))

    def _picture(self, found: Status) -> Iterator[str]:
        run, stats = found.run, found.stats
        begun = f"started {ago(run.created_at, found.now)}"
        yield f"{run.name}  {clean(run.scraper)}  {found.state}  {begun}"
        yield self._bar(found)
        yield f"  {_counts(found)}"
        if not stats.open and run.state not in ("running", "paused"):
            yield format_account(stats)
            return
        yield f"  {format_open_tasks(stats)}" + (" · URLs are still being added" if found.seeding else "")
        for _, words in limiting_factors(found)[:LIMITS_SHOWN]:
            yield f"  ! {clean(words)}"
        for words in code_version_warnings(run, found.workers):
            yield f"  ! {pasteable(words)}"
        yield from self._table(list(_worker_rows(found)))
        yield from self._table(list(_host_rows(found)))

    def _bar(self, found: Status) -> str:
        stats = found.stats
        ended = stats.done + stats.failed + stats.cancelled
        share = ended / stats.seen if stats.seen else 0.0
        room = 20
        full = room if share == 1 else min(room - 1, round(room * share))
        bar = self._blocks[0] * full + self._blocks[1] * (room - full)
        percent = 100 if share == 1 else min(99, round(100 * share))
        parts = [f"{percent} %", f"{found.rate or 0:.1f} pages/s", format_time_left(found.forecast)]
        return f"  {bar}  {'   '.join(part for part in parts if part)}"

    def _table(self, rows: list[tuple[str, ...]]) -> Iterator[str]:
        if len(rows) < 2:
            return
        sizes = [min(40, max(display_width(row[at]) for row in rows)) for at in range(len(rows[0]))]
        yield ""
        for row in rows:
            parts = [truncate(text, size) for text, size in zip(row, sizes, strict=True)]
            texts = [text + " " * (size - display_width(text)) for text, size in zip(parts, sizes, strict=True)]
            yield truncate("  " + "  ".join(texts).rstrip(), terminal_width(self._stream) - 1)


def _counts(found: Status) -> str:
    stats = found.stats
    return (
        f"pending {count(stats.ready)} · claimed {count(stats.leased)} · done {count(stats.done)}"
        f" · failed {count(stats.failed)}"
    )


def _worker_rows(found: Status) -> Iterator[tuple[str, ...]]:
    yield "worker", "state", "has", "done", "failed", "seen", "doing"
    ranked = sorted(found.workers, key=lambda status: status.id)
    for status in ranked[:WORKERS_SHOWN]:
        seen = ago(status.seen_at, found.now)
        yield (
            clean(status.id),
            status.state,
            count(status.leased),
            count(status.done),
            count(status.failed),
            seen,
            clean(status.activity),
        )
    if len(ranked) > WORKERS_SHOWN:
        yield f"and {count(len(ranked) - WORKERS_SHOWN)} more", "", "", "", "", "", ""


def _host_rows(found: Status) -> Iterator[tuple[str, ...]]:
    yield "host", "left", "in progress", "rate limit", "at least", "why"
    ranked = sorted(found.lanes, key=lambda lane: -lane_seconds(lane, found.now))
    for lane in ranked[:HOSTS_SHOWN]:
        yield (
            clean(lane.name),
            count(lane.ready),
            format_in_flight(lane),
            format_pace(lane.spacing),
            format_least_time(lane, found.now),
            host_reason(found, lane),
        )
    if len(ranked) > HOSTS_SHOWN:
        yield f"and {count(len(ranked) - HOSTS_SHOWN)} more", "", "", "", "", ""
