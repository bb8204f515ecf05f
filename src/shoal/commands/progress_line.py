"""Progress of an in-process run as one line that changes: below a notebook's cell, or on a terminal."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from shoal.config.load import is_dumb_terminal
from shoal.core.forecast import forecast
from shoal.runs.progress import RunInfo, RunProgress, RunSummary
from shoal.view.formatting import count, format_time_left
from shoal.view.rates import RateMeter

REDRAW_INTERVAL = 0.25
LINE_INTERVAL = 5.0  # where lines stay

Show = Callable[[str], None]


class ProgressLine:
    """Shows a run by a function that replaces the line before."""

    def __init__(
        self,
        show: Show,
        end: Callable[[], None] = lambda: None,
        *,
        interval: float = REDRAW_INTERVAL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._end = end
        self._clock = clock
        self._rates = RateMeter()
        self._interval = interval
        self._shown = -math.inf
        self._last: RunProgress | None = None

    def start(self, info: RunInfo) -> None: ...

    def update(self, progress: RunProgress) -> None:
        now = self._clock()
        self._rates.add(now, progress.stats.done)
        self._last = progress
        if now - self._shown >= self._interval:
            self._shown = now
            self._show(self._line(progress))

    def message(self, text: str) -> None: ...

    def finish(self, summary: RunSummary) -> None: ...

    def close(self) -> None:
        """Show where it ended, and leave it there."""
        if self._last is not None:
            self._show(self._line(self._last))
            self._end()

    def _line(self, progress: RunProgress) -> str:
        stats, rate = progress.stats, self._rates.per_second
        ahead = forecast(stats, progress.lanes, rate=rate, now=progress.now)
        parts = [
            f"{count(stats.done + stats.dead + stats.cancelled)} of {count(stats.seen, 'page')}",
            f"{rate:.1f} pages/s",
            count(stats.records, "record"),
            f"{count(stats.dead)} failed" if stats.dead else "",
            "paused" if progress.paused else format_time_left(ahead),
        ]
        return " · ".join(part for part in parts if part)


def progress_line(wanted: bool | None, stream: TextIO | None = None) -> ProgressLine | None:
    """What shows the progress here; None: where nobody would see it, unless it is asked for."""
    if wanted is False:
        return None
    if (display := _notebook_display()) is not None:
        return _in_notebook(display)
    stream = stream or sys.stderr
    is_terminal = stream.isatty() and not is_dumb_terminal()
    if is_terminal:
        return _on_terminal(stream)
    return _in_lines(stream) if wanted else None


def _notebook_display() -> Any:
    """The module that shows things below a cell, if this is a notebook."""
    ipython = sys.modules.get("IPython")  # a notebook has it loaded; nobody else needs it for this
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from importlib import import_module

    return import_module("IPython.display")


def _in_notebook(display: Any) -> ProgressLine:
    handle: list[Any] = []

    def show(line: str) -> None:
        data = {"text/plain": line}
        if handle:
            handle[0].update(data, raw=True)
        else:
            handle.append(display.display(data, raw=True, display_id=True))

    return ProgressLine(show)


def _on_terminal(stream: TextIO) -> ProgressLine:
    def show(line: str) -> None:
        room = max(1, shutil.get_terminal_size().columns - 1)
        stream.write(f"\r{line[:room]}\x1b[K")
        stream.flush()

    def end() -> None:
        stream.write("\n")
        stream.flush()

    return ProgressLine(show, end)


def _in_lines(stream: TextIO) -> ProgressLine:
    def show(line: str) -> None:
        stream.write(f"{line}\n")
        stream.flush()

    return ProgressLine(show, interval=LINE_INTERVAL)
