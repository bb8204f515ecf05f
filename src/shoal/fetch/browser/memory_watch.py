"""MemoryWatch: looks at the memory of a browser while pages are open, and ends the page that takes most in time.

In a thread: a page can take hundreds of megabytes while the event loop is busy with something else.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import threading

from shoal.fetch.browser.memory_gauge import MemoryGauge
from shoal.fetch.browser.process_tree import biggest_renderer, descendants, with_new_children

log = logging.getLogger("shoal.fetch")

INTERVAL = 0.1  # seconds between two looks
CLOSE_INTERVAL = 0.02  # where much is taken already
CLOSE_FROM = 0.5  # of the limit
HIGH = 0.7  # of the limit, at which a page is ended: a page can take a lot until the next look
FULL_LOOK_SECONDS = 5.0


class MemoryWatch:
    def __init__(self, pid: int, limit: int) -> None:
        self._pid = pid
        self._limit = limit
        self._gauge = MemoryGauge()
        self._pids: list[int] = []
        self._full_look_in = 0.0  # seconds
        self._ended: threading.Event | None = None  # of the thread that looks now
        self.most = 0  # bytes, seen so far
        self.pages_ended = 0

    def start(self) -> None:
        if self._ended is None:
            self._ended = threading.Event()
            threading.Thread(target=self._watch, args=(self._ended,), name="browser-memory", daemon=True).start()

    def stop(self) -> None:
        if self._ended is not None:
            self._ended.set()
            self._ended = None

    def taken(self, limit: int) -> int:
        """Bytes now, while nobody watches: exactly where it may be more than the limit."""
        return self._gauge.total(descendants(self._pid), limit)

    def _watch(self, ended: threading.Event) -> None:
        interval = INTERVAL
        while not ended.wait(interval):
            taken = self._look(interval)
            interval = CLOSE_INTERVAL if taken > CLOSE_FROM * self._limit else INTERVAL

    def _look(self, interval: float) -> int:
        # To look at all threads of all processes takes milliseconds, which is too much for each time.
        self._full_look_in -= interval
        if self._full_look_in <= 0:
            self._pids, self._full_look_in = descendants(self._pid), FULL_LOOK_SECONDS
        else:
            self._pids = with_new_children(self._pids)
        taken = self._gauge.total(self._pids, int(HIGH * self._limit))
        self.most = max(self.most, taken)
        if taken > HIGH * self._limit:
            guilty = biggest_renderer(self._pids) or self._pid
            self.pages_ended += 1
            log.warning("browser_memory", extra={"bytes": taken, "limit": self._limit, "pid": guilty})
            with contextlib.suppress(OSError):
                os.kill(guilty, signal.SIGKILL)
        return taken
