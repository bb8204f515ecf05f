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
from typing import Protocol, TextIO

from shoal.cli.closing import closing
from shoal.cli.show import cells, clean, count, cut, line, paint, width, wrapped
from shoal.config import dumb_terminal
from shoal.control.report import Progress, RunInfo, RunUi, Summary
from shoal.core.forecast import Forecast, forecast
from shoal.core.stats import Stats
from shoal.version import __version__
from shoal.view.rates import Rates as Rates
from shoal.view.words import again_words, deciding, lane_words, left_words, queue_words

REDRAW_EVERY = 0.1
LINE_EVERY = 5.0
LINE_EVERY_AT_REST = 60.0  # when nothing has moved

Clock = Callable[[], float]


def run_ui(stream: TextIO | None = None) -> RunUi:
    """The display that fits where the output goes."""
    stream = stream or sys.stderr
    if not stream.isatty() or dumb_terminal():
        return PlainUi(stream)
    ui = LiveUi(stream)
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
            handler.setStream(Above(ui))
    return ui


class Display(Protocol):
    def message(self, text: str) -> None: ...


class Above(io.TextIOBase):
    """Where logs go while a display is drawn: above it, not through it."""

    def __init__(self, ui: Display) -> None:
        self._ui = ui

    def write(self, text: str) -> int:
        for part in filter(None, text.splitlines()):
            self._ui.message(part)
        return len(text)


class PlainUi:
    """One line every few seconds, for logs and pipes."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._rates = Rates()
        self._shown = -math.inf
        self._known: Stats | None = None
        self._max_pages = 0

    def start(self, info: RunInfo) -> None:
        self._max_pages = info.run.max_pages
        for text in opening(info):
            self.message(text)
        self._shown = self._clock()  # a run that ends at once needs no line of its own on the way

    def update(self, progress: Progress) -> None:
        now = self._clock()
        self._rates.note(now, progress.stats.done)
        at_rest = self._known == progress.stats
        if now - self._shown < (LINE_EVERY_AT_REST if at_rest else LINE_EVERY):
            return
        self._shown, self._known = now, progress.stats
        rate = self._rates.pages
        ahead = foresee(progress, rate, self._max_pages)
        held = [lane for lane in progress.lanes if lane.held_until > progress.now]
        parts = [
            f"{count(progress.stats.done)} of {count(progress.stats.seen)} pages",
            f"{rate:.1f} pages/s",
            count(progress.stats.records, "record"),
            queue_words(progress.stats),
            f"{count(len(held), 'host')} slowed down" if held else "",
            "paused" if progress.paused else "" if progress.stuck else left_words(ahead),
        ]
        self.message(" · ".join(part for part in parts if part))
        for view in progress.stuck:
            self.message(f"  {again_words(view, progress.now)}")

    def message(self, text: str) -> None:
        try:
            line(clean(text), self._stream)
            self._stream.flush()
        except BrokenPipeError:
            # Whoever read along has gone (head, less); the crawl has not.
            self._stream = Path(os.devnull).open("w")  # noqa: SIM115 - for the rest of the run

    def finish(self, summary: Summary) -> None:
        for text in closing(summary):
            self.message(text)

    def close(self) -> None:
        self._stream.flush()


class LiveUi:
    """A few lines that are drawn over in place. The cursor is never hidden, so nothing can be left hidden."""

    def __init__(self, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self._stream = stream
        self._clock = clock
        self._rates = Rates()
        self._drawn: list[str] = []
        self._shown = -math.inf
        self._max_pages = 0
        self._name = ""
        self._blocks = "█░" if "utf" in (stream.encoding or "").lower() else "#-"

    def start(self, info: RunInfo) -> None:
        self._name = info.run.name
        self._max_pages = info.run.max_pages
        for text in opening(info):
            self.message(text)

    def update(self, progress: Progress) -> None:
        now = self._clock()
        self._rates.note(now, progress.stats.done)
        if now - self._shown >= REDRAW_EVERY:
            self._shown = now
            self._draw(self._lines(progress))

    def message(self, text: str) -> None:
        kept = self._drawn
        self._draw([])
        line(wrapped(clean(text), self._stream, "  "), self._stream)
        self._draw(kept)

    def finish(self, summary: Summary) -> None:
        self._draw([])
        for text in closing(summary):
            line(wrapped(clean(text), self._stream, "    "), self._stream)
        self.close()

    def close(self) -> None:
        self._drawn = []
        self._stream.flush()

    def _draw(self, lines: list[str]) -> None:
        """Replace what was drawn, in one write, so that nothing flickers."""
        room = max(1, width(self._stream))
        # A terminal made narrower has wrapped the old lines: go up by the rows they take now.
        rows = sum(max(1, math.ceil(cells(old) / room)) for old in self._drawn)
        up = f"\x1b[{rows}F" if rows else ""
        lines = [cut(text, room - 1) for text in lines]
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

    def _lines(self, progress: Progress) -> list[str]:
        stats, rate = progress.stats, self._rates.pages
        ahead = foresee(progress, rate, self._max_pages)
        ended = stats.done + stats.dead + stats.cancelled
        total = max(stats.seen, 1)
        if self._max_pages:
            total = max(ended, min(total, self._max_pages))
        share = min(1.0, ended / total)
        percent = 100 if share == 1 else min(99, round(100 * share))
        parts = [
            f"{count(ended)}/{count(total)}  {percent} %",
            f"{rate:.1f} pages/s",
            "" if progress.paused or progress.stuck else left_words(ahead),
        ]
        tail = "   ".join(part for part in parts if part)
        room = max(0, min(30, width(self._stream) - cells(tail) - 6))
        full = round(room * share) if share == 1 else min(room - 1, round(room * share))
        bar = self._blocks[0] * full + self._blocks[1] * (room - full)
        lines = [f"  {bar}  {tail}" if room >= 5 else f"  {tail}"]
        lines.append(
            "  "
            + " · ".join(
                part
                for part in (
                    f"ok {count(stats.done)}",
                    f"records {count(stats.records)}",
                    f"failed {count(stats.dead)}" if stats.dead else "",
                    queue_words(stats),
                )
                if part
            )
        )
        if progress.paused:
            return [*lines, f"  paused: shoal resume {self._name} lets it go on"]
        if ahead.lane and (ahead.seconds or 0) > 5:
            lines.append(f"  {deciding(ahead)}")
        lines += [f"  {again_words(view, progress.now)}" for view in progress.stuck]
        return lines + _held_lines(progress)


def _held_lines(progress: Progress) -> list[str]:
    held = [lane for lane in progress.lanes if lane.held_until > progress.now]
    shown = [f"  {lane_words(lane, progress.now)}" for lane in held[:2]]
    return [*shown, f"  and {count(len(held) - 2)} more hosts slowed down"] if len(held) > 2 else shown


def foresee(progress: Progress, rate: float, max_pages: int) -> Forecast:
    return forecast(progress.stats, progress.lanes, rate=rate, now=progress.now, max_pages=max_pages)


def opening(info: RunInfo) -> list[str]:
    stats = info.stats
    lines = [f"shoal {__version__} · run {info.run.name} · state in {info.state}"]
    lines += info.notes
    if info.resumed:
        ended = stats.done + stats.dead + stats.cancelled
        lines.append(
            f"Continuing run {info.run.name}: {count(ended)} of {count(stats.seen)} pages"
            " are behind it.   --fresh starts over"
        )
    parts = [
        "robots.txt obeyed" if info.robots else "robots.txt ignored",
        info.pace,
        f"{count(info.workers, 'worker')} × {info.concurrency} at once",
    ]
    lines.append(" · ".join(part for part in parts if part))
    if info.output:
        lines.append(f"Records go to {info.output}")
    return lines
