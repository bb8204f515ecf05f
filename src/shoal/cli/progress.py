"""Progress of a run: a few live lines on a terminal, one plain line now and then elsewhere."""

from __future__ import annotations

import io
import logging
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from shoal.cli.console import (
    clean,
    count,
    display_width,
    paint,
    print_line,
    safe_for_terminal,
    terminal_width,
    truncate,
    wrap,
)
from shoal.cli.hints import pasteable, print_hint
from shoal.cli.run_summary import summary_lines
from shoal.config.load import is_dumb_terminal
from shoal.core.forecast import Forecast, forecast
from shoal.core.stats import Stats
from shoal.runs.progress import RunInfo, RunProgress, RunSummary, RunUi
from shoal.version import __version__
from shoal.view.formatting import (
    format_host_limit,
    format_open_tasks,
    format_retry,
    format_slowest_host,
    format_time_left,
)
from shoal.view.rates import RateMeter as RateMeter

REDRAW_INTERVAL = 0.1
LINE_INTERVAL = 5.0
IDLE_LINE_INTERVAL = 60.0  # when nothing has moved
MISSING_SHOWN = 2  # combinations of capabilities that no worker has

Clock = Callable[[], float]


def run_ui(stream: TextIO | None = None, *, live: bool = True) -> RunUi:
    """The display that fits where the output goes; live=False: one that leaves the terminal to others."""
    stream = stream or sys.stderr
    if not live or not stream.isatty() or is_dumb_terminal():
        return PlainUi(stream)
    ui = LiveUi(stream)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
            handler.setStream(LogsAboveDisplay(ui.message))
    return ui


class LogsAboveDisplay(io.TextIOBase):
    """Where logs go while a display is drawn: above it, not through it."""

    def __init__(self, message: Callable[[str], None]) -> None:
        self._message = message

    def write(self, text: str) -> int:
        for part in filter(None, text.splitlines()):
            self._message(part)
        return len(text)


class PlainUi:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._rates = RateMeter()
        self._shown = -math.inf
        self._known: Stats | None = None
        self._max_pages = 0

    def start(self, info: RunInfo) -> None:
        self._max_pages = info.run.max_pages
        for text in header_lines(info):
            self.message(text)
        self._shown = self._clock()  # a run that ends at once needs no line of its own on the way

    def update(self, progress: RunProgress) -> None:
        now = self._clock()
        self._rates.add(now, progress.stats.done)
        at_rest = self._known == progress.stats
        if now - self._shown < (IDLE_LINE_INTERVAL if at_rest else LINE_INTERVAL):
            return
        self._shown, self._known = now, progress.stats
        rate = self._rates.per_second
        ahead = forecast_progress(progress, rate, self._max_pages)
        parts = [
            f"{count(progress.stats.done)} of {count(progress.stats.seen)} pages",
            f"{rate:.1f} pages/s",
            count(progress.stats.records, "record"),
            format_open_tasks(progress.stats),
            *held_parts(progress),
            "paused" if progress.paused else "" if progress.stuck else format_time_left(ahead),
        ]
        self.message(" · ".join(part for part in parts if part))
        for view in progress.stuck:
            self.message(f"  {format_retry(view, progress.now)}")
        for words in progress.missing[:MISSING_SHOWN]:
            self.message(f"  {words}")

    def message(self, text: str) -> None:
        try:
            print_hint(clean(text), self._stream)
            self._stream.flush()
        except BrokenPipeError:
            # Whoever read along has gone (head, less); the crawl has not.
            self._stream = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the run

    def finish(self, summary: RunSummary) -> None:
        for text in summary_lines(summary):
            self.message(text)

    def close(self) -> None:
        self._stream.flush()


class LiveUi:
    """A few lines that are drawn over in place. The cursor is never hidden, so nothing can be left hidden."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._rates = RateMeter()
        self._drawn: list[str] = []
        self._shown = -math.inf
        self._max_pages = 0
        self._name = ""
        self._blocks = "█░" if "utf" in (stream.encoding or "").lower() else "#-"

    def start(self, info: RunInfo) -> None:
        self._name = info.run.name
        self._max_pages = info.run.max_pages
        for text in header_lines(info):
            self.message(text)

    def update(self, progress: RunProgress) -> None:
        now = self._clock()
        self._rates.add(now, progress.stats.done)
        if now - self._shown >= REDRAW_INTERVAL:
            self._shown = now
            self._draw(self._lines(progress))

    def message(self, text: str) -> None:
        kept = self._drawn
        self._draw([])
        print_line(wrap(pasteable(clean(text)), self._stream, "  "), self._stream)
        self._draw(kept)

    def finish(self, summary: RunSummary) -> None:
        self._draw([])
        for text in summary_lines(summary):
            print_hint(clean(text), self._stream)
        self.close()

    def close(self) -> None:
        self._drawn = []
        self._stream.flush()

    def _draw(self, lines: list[str]) -> None:
        """Replace what was drawn, in one write, so that nothing flickers."""
        room = max(1, terminal_width(self._stream))
        # A terminal made narrower has wrapped the old lines: go up by the rows they take now.
        rows = sum(max(1, math.ceil(display_width(old) / room)) for old in self._drawn)
        up = f"\x1b[{rows}F" if rows else ""
        lines = [truncate(safe_for_terminal(text), room - 1) for text in lines]
        body = "".join(f"{self._painted(text)}\x1b[K\n" for text in lines)
        self._stream.write(f"{up}{body}\x1b[J")
        self._stream.flush()
        self._drawn = lines

    def _painted(self, text: str) -> str:
        full = self._blocks[0]
        begin, end = text.find(full), text.rfind(full) + 1
        if begin < 0:
            return text
        return text[:begin] + paint(text[begin:end], "green", self._stream) + text[end:]

    def _lines(self, progress: RunProgress) -> list[str]:
        stats, rate = progress.stats, self._rates.per_second
        ahead = forecast_progress(progress, rate, self._max_pages)
        ended = stats.done + stats.failed + stats.cancelled
        total = max(stats.seen, 1)
        if self._max_pages:
            total = max(ended, min(total, self._max_pages))
        share = min(1.0, ended / total)
        percent = 100 if share == 1 else min(99, round(100 * share))
        parts = [
            f"{count(ended)}/{count(total)}  {percent} %",
            f"{rate:.1f} pages/s",
            "" if progress.paused or progress.stuck else format_time_left(ahead),
        ]
        tail = "   ".join(part for part in parts if part)
        room = max(0, min(30, terminal_width(self._stream) - display_width(tail) - 6))
        full = round(room * share) if share == 1 else min(room - 1, round(room * share))
        bar = self._blocks[0] * full + self._blocks[1] * (room - full)
        lines = [f"  {bar}  {tail}" if room >= 5 else f"  {tail}"]
        failed = [f"failed {count(stats.failed)}"] if stats.failed else []
        figures = [f"ok {count(stats.done)}", f"records {count(stats.records)}", *failed]
        lines.append("  " + " · ".join([*figures, format_open_tasks(stats)]))
        if progress.paused:
            return [*lines, pasteable(f"  paused: shoal resume {self._name} resumes it")]
        if ahead.lane and (ahead.seconds or 0) > 5:
            lines.append(f"  {format_slowest_host(ahead)}")
        lines += [f"  {format_retry(view, progress.now)}" for view in progress.stuck]
        lines += [f"  {words}" for words in progress.missing[:MISSING_SHOWN]]
        return lines + [f"  {pasteable(part)}" for part in held_parts(progress, 2)]


def held_parts(progress: RunProgress, most: int = 1) -> list[str]:
    """What keeps hosts below the pace that was asked for, those that need the longest first."""
    shown = [format_host_limit(limit, progress.now) for limit in progress.limits[:most]]
    held = sum(lane.held_until > progress.now for lane in progress.lanes)
    more = held - sum(limit.kind == "held" for limit in progress.limits[:most])
    return (
        [*shown, f"{'and ' if shown else ''}{count(more, 'more host' if shown else 'host')} slowed down"]
        if more > 0
        else shown
    )


def forecast_progress(progress: RunProgress, rate: float, max_pages: int) -> Forecast:
    return forecast(
        progress.stats,
        progress.lanes,
        rate=rate,
        now=progress.now,
        max_pages=max_pages,
        found_at=progress.found_at,
        seeding=progress.seeding,
    )


def header_lines(info: RunInfo) -> list[str]:
    stats = info.stats
    lines = [f"shoal {__version__} · run {info.run.name} · state in {info.state}"]
    lines += info.notes
    if info.resumed:
        ended = stats.done + stats.failed + stats.cancelled
        lines.append(
            f"Continuing run {info.run.name}: {count(ended)} of {count(stats.seen)} pages"
            " already done.   --fresh starts over"
        )
    asked = ["robots.txt obeyed" if info.robots else "robots.txt ignored", info.pace]
    parts = [
        *(["no site is asked while saved pages are read again"] if info.is_reread else asked),
        f"{count(info.workers, 'worker')} × {info.concurrency} at once",
    ]
    lines.append(" · ".join(part for part in parts if part))
    if info.output:
        lines.append(f"Records go to {info.output}")
    return lines
