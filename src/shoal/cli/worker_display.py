"""What a worker shows while it works: a live line on a terminal, else a plain one now and then."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TextIO

from shoal.cli.console import clean, count, print_line, safe_for_terminal, size, terminal_width, truncate, wrap
from shoal.cli.progress import IDLE_LINE_INTERVAL, LINE_INTERVAL, REDRAW_INTERVAL, LogsAboveDisplay, RateMeter
from shoal.commands.worker_ui import WorkerSnapshot
from shoal.config.load import is_dumb_terminal


def worker_ui(stream: TextIO) -> WorkerUi:
    live = stream.isatty() and not is_dumb_terminal()
    ui = WorkerUi(stream, live=live)
    if live:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                handler.setStream(LogsAboveDisplay(ui.message))
    return ui


class WorkerUi:
    def __init__(self, stream: TextIO, *, live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._live = live
        self._clock = clock
        self._rates = RateMeter()
        self._shown = clock() if not live else -math.inf
        self._known: tuple[int, ...] = ()
        self._drawn = ""

    def message(self, text: str) -> None:
        drawn = self._drawn
        self._draw("")
        print_line(wrap(clean(text), self._stream, "  "), self._stream)
        self._stream.flush()
        self._draw(drawn)

    def update(self, snapshot: WorkerSnapshot) -> None:
        now, totals = self._clock(), snapshot.totals
        self._rates.add(now, totals.done)
        if self._live:
            if now - self._shown >= REDRAW_INTERVAL:
                self._shown = now
                self._draw(self._words(snapshot))
            return
        state = (totals.done, totals.failed, totals.children, snapshot.reachable)
        if now - self._shown >= (IDLE_LINE_INTERVAL if state == self._known else LINE_INTERVAL):
            self._shown, self._known = now, state
            self.message(self._words(snapshot))

    def close(self) -> None:
        self._draw("")
        self._stream.flush()

    def _words(self, snapshot: WorkerSnapshot) -> str:
        totals = snapshot.totals
        parts = [
            # First: a narrow terminal cuts the end.
            "" if snapshot.reachable else "the queue does not answer",
            f"{count(totals.done)} done",
            f"{self._rates.per_second:.1f} pages/s",
            f"{count(totals.failed)} failed" if totals.failed else "",
            f"{count(totals.claimed)} claimed",
            count(totals.children, "process").replace("processs", "processes"),
            f"memory {size(totals.memory)}" if totals.memory else "",
        ]
        return " · ".join(part for part in parts if part)

    def _draw(self, text: str) -> None:
        if not self._live:
            return
        text = truncate(safe_for_terminal(text), max(1, terminal_width(self._stream) - 1))
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()
        self._drawn = text
