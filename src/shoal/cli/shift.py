"""Shift: what a worker shows while it works: a live line on a terminal, else a plain one now and then."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from typing import TextIO

from shoal.cli.progress import LINE_EVERY, LINE_EVERY_AT_REST, REDRAW_EVERY, Above, Rates
from shoal.cli.show import clean, count, cut, line, size, width, wrapped
from shoal.config import dumb_terminal
from shoal.fleetworker import Shift


def shift_ui(stream: TextIO) -> ShiftUi:
    live = stream.isatty() and not dumb_terminal()
    ui = ShiftUi(stream, live=live)
    if live:
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is stream:
                handler.setStream(Above(ui))
    return ui


class ShiftUi:
    def __init__(self, stream: TextIO, *, live: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream
        self._live = live
        self._clock = clock
        self._rates = Rates()
        self._shown = clock() if not live else -math.inf
        self._known: tuple[int, ...] = ()
        self._drawn = ""

    def message(self, text: str) -> None:
        drawn = self._drawn
        self._draw("")
        line(wrapped(clean(text), self._stream, "  "), self._stream)
        self._stream.flush()
        self._draw(drawn)

    def update(self, shift: Shift) -> None:
        now, totals = self._clock(), shift.totals
        self._rates.note(now, totals.done)
        if self._live:
            if now - self._shown >= REDRAW_EVERY:
                self._shown = now
                self._draw(self._words(shift))
            return
        state = (totals.done, totals.failed, totals.children, shift.reachable)
        if now - self._shown >= (LINE_EVERY_AT_REST if state == self._known else LINE_EVERY):
            self._shown, self._known = now, state
            self.message(self._words(shift))

    def close(self) -> None:
        self._draw("")
        self._stream.flush()

    def _words(self, shift: Shift) -> str:
        totals = shift.totals
        parts = [
            "" if shift.reachable else "the queue does not answer",  # first: a narrow terminal cuts the end
            f"{count(totals.done)} done",
            f"{self._rates.pages:.1f}/s",
            f"{count(totals.failed)} failed" if totals.failed else "",
            f"{count(totals.claimed)} claimed",
            count(totals.children, "process").replace("processs", "processes"),
            f"memory {size(totals.memory)}" if totals.memory else "",
        ]
        return " · ".join(part for part in parts if part)

    def _draw(self, text: str) -> None:
        if not self._live:
            return
        text = cut(text, max(1, width(self._stream) - 1))
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()
        self._drawn = text
