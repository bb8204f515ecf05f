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
from shoal.cli.options import click_options
from shoal.cli.pick import RUN_HELP, pick, run_argument, with_queue
from shoal.cli.progress import LiveUi
from shoal.cli.show import cells, cut, line, width
from shoal.config import Settings, dumb_terminal
from shoal.core.forecast import lane_seconds
from shoal.core.run import Run
from shoal.errors import QueueUnavailable, Usage
from shoal.queue.base import Queue
from shoal.view.documents import watch_document
from shoal.view.rates import Rates
from shoal.view.status import Status, gather, limits, other_code
from shoal.view.words import account, ago, clean, count, least_words, left_words, pace, queue_words, under_way

EVERY = 1.0
LINE_EVERY = 5.0
LANES = 200
WORKERS_SHOWN, HOSTS_SHOWN, LIMITS_SHOWN = 12, 8, 4
PATIENCE = 60.0
SILENCE = 3.0  # seconds after which people are told that nothing is heard


@click.command(
    cls=Command,
    epilog=RUN_HELP,
    examples="""
    shoal watch                           the newest run
    shoal watch k3f --json | jq .pending  one JSON document a line
    """,
)
@run_argument
@click.option("--every", type=click.FloatRange(0.1), metavar="SECONDS", help="How often it looks.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document a line.")
@click_options("look")
def watch(settings: Settings, run: str | None, every: float | None, as_json: bool) -> int:
    """Follow RUN until it ends: workers, hosts, and what limits it.

    Ctrl-C only stops watching. Exit status: that of the run, 0 complete, 3 finished with pages that failed
    or cancelled; 4 if watching was stopped before.
    """
    shown: Display
    if as_json:
        shown = Documents(sys.stdout)
    elif sys.stdout.isatty() and not dumb_terminal():
        shown = Screen(sys.stdout)
    else:
        shown = Lines(sys.stdout)

    async def job(queue: Queue) -> int:
        return await follow(queue, settings, await pick(queue, run), shown, every or shown.every)

    try:
        return with_queue(settings, job)
    except KeyboardInterrupt:
        shown.close()
        return 4


class Display(Protocol):
    every: float

    def show(self, found: Status) -> None: ...

    def message(self, text: str) -> None: ...

    def close(self) -> None: ...


async def follow(queue: Queue, settings: Settings, run: Run, shown: Display, every: float) -> int:
    """Look and show until the run has ended; a server that is away for a while is waited for."""
    rates, reached, away = Rates(), time.monotonic(), False

    def say(why: str) -> None:
        nonlocal away
        if not away:
            shown.message(f"the queue does not answer, trying again{why}")
        away = True

    while True:
        looking = asyncio.create_task(look(queue, settings, run, rates))
        if not (await asyncio.wait([looking], timeout=SILENCE))[0]:
            say("; what is shown is old")
        try:
            found = await looking
        except QueueUnavailable as error:
            if time.monotonic() - reached > PATIENCE:
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
            return 3 if found.run.state == "cancelled" or found.stats.dead else 0
        await asyncio.sleep(every)


async def look(queue: Queue, settings: Settings, run: Run, rates: Rates) -> Status:
    """Everything there is to show, in a few questions that cost the queue little."""
    known = await queue.runs(name=run.name, limit=1)
    if not known:
        raise Usage(f"run {run.name} was removed", hint="shoal runs lists what there is")
    rates.note(time.monotonic(), (await queue.stats(run.id)).done)
    return await gather(queue, settings, known[0], rate=rates.pages, lanes=LANES, dead=False)


class Documents:
    """One JSON document a line."""

    every = LINE_EVERY

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, found: Status) -> None:
        line(json.dumps(watch_document(found), ensure_ascii=False), self._stream)
        self._stream.flush()

    def message(self, text: str) -> None:
        line(clean(text), sys.stderr)

    def close(self) -> None: ...


class Lines:
    """One plain line now and then, for logs and pipes."""

    every = LINE_EVERY

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def show(self, found: Status) -> None:
        stats = found.stats
        parts = [
            f"{found.run.name} {found.state}",
            _counts(found),
            f"{found.rate or 0:.1f} pages/s",
            count(len(found.workers), "worker"),
            left_words(found.ahead),
            "adding addresses" if found.seeding else "",
        ]
        if not stats.open:
            parts = [f"{found.run.name} {found.state}", _counts(found), count(stats.records, "record")]
        self.message(" · ".join(part for part in parts if part))

    def message(self, text: str) -> None:
        line(clean(text), self._stream)
        self._stream.flush()

    def close(self) -> None: ...


class Screen(LiveUi):
    """The whole picture, drawn over in place."""

    every = EVERY

    def show(self, found: Status) -> None:
        self._draw(list(self._picture(found)))

    def _picture(self, found: Status) -> Iterator[str]:
        run, stats = found.run, found.stats
        begun = f"begun {ago(run.created_at, found.now)}"
        yield f"{run.name}  {clean(run.scraper)}  {found.state}  {begun}"
        yield self._bar(found)
        yield f"  {_counts(found)}"
        if not stats.open and run.state not in ("running", "paused"):
            yield account(stats)
            return
        yield f"  {queue_words(stats)}" + (" · addresses are still being added" if found.seeding else "")
        for _, words in limits(found)[:LIMITS_SHOWN]:
            yield f"  ! {clean(words)}"
        for words in other_code(run, found.workers):
            yield f"  ! {words}"
        yield from self._table(list(_worker_rows(found)))
        yield from self._table(list(_host_rows(found)))

    def _bar(self, found: Status) -> str:
        stats = found.stats
        ended = stats.done + stats.dead + stats.cancelled
        share = ended / stats.seen if stats.seen else 0.0
        room = 20
        full = room if share == 1 else min(room - 1, round(room * share))
        bar = self._blocks[0] * full + self._blocks[1] * (room - full)
        percent = 100 if share == 1 else min(99, round(100 * share))
        parts = [f"{percent} %", f"{found.rate or 0:.1f} pages/s", left_words(found.ahead)]
        return f"  {bar}  {'   '.join(part for part in parts if part)}"

    def _table(self, rows: list[tuple[str, ...]]) -> Iterator[str]:
        if len(rows) < 2:
            return
        sizes = [min(40, max(cells(row[at]) for row in rows)) for at in range(len(rows[0]))]
        yield ""
        for row in rows:
            parts = [cut(text, size) for text, size in zip(row, sizes, strict=True)]
            texts = [text + " " * (size - cells(text)) for text, size in zip(parts, sizes, strict=True)]
            yield cut("  " + "  ".join(texts).rstrip(), width(self._stream) - 1)


def _counts(found: Status) -> str:
    stats = found.stats
    return (
        f"pending {count(stats.ready)} · claimed {count(stats.leased)} · done {count(stats.done)}"
        f" · failed {count(stats.dead)}"
    )


def _worker_rows(found: Status) -> Iterator[tuple[str, ...]]:
    yield "worker", "state", "has", "done", "failed", "seen", "doing"
    ranked = sorted(found.workers, key=lambda mark: mark.id)
    for mark in ranked[:WORKERS_SHOWN]:
        seen = ago(mark.seen_at, found.now)
        yield (
            clean(mark.id),
            mark.state,
            count(mark.leased),
            count(mark.done),
            count(mark.failed),
            seen,
            clean(mark.doing),
        )
    if len(ranked) > WORKERS_SHOWN:
        yield f"and {count(len(ranked) - WORKERS_SHOWN)} more", "", "", "", "", "", ""


def _host_rows(found: Status) -> Iterator[tuple[str, ...]]:
    yield "host", "left", "under way", "pace", "at least", "why"
    ranked = sorted(found.lanes, key=lambda lane: -lane_seconds(lane, found.now))
    for lane in ranked[:HOSTS_SHOWN]:
        yield (
            clean(lane.name),
            count(lane.ready),
            under_way(lane),
            f"{pace(1 / lane.spacing)}/s" if lane.spacing else "free",
            least_words(lane, found.now),
            clean(lane.reason),
        )
    if len(ranked) > HOSTS_SHOWN:
        yield f"and {count(len(ranked) - HOSTS_SHOWN)} more", "", "", "", "", ""
