"""The loop watchdog: a thread that says what blocks a server's event loop, and hears signals while it is blocked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

from shoal.logs import log

BLOCKED_AFTER = 5.0  # seconds without a turn of the loop after which it is said
STOP_GRACE = 5.0  # seconds that a loop has to hear that it should stop
TICK = 0.25
LOG_TIMEOUT = 1.0  # seconds for writing a line: what blocks the loop may be the log itself
MAX_FRAMES = 40
EXIT_BLOCKED = 1
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class LoopWatchdog:
    """Of the loop that it is started in. What it counts is read by /metrics."""

    def __init__(self, blocked_after: float = BLOCKED_AFTER, stop_grace: float = STOP_GRACE) -> None:
        self._blocked_after = blocked_after
        self._stop_grace = stop_grace
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread = 0
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._answered = threading.Event()  # the loop has had a turn since it was asked last
        self._silent = 0.0  # seconds for which it has not
        self._silent_since_stop: float | None = None  # None: nobody has asked us to stop
        self._stop: Callable[[], None] = lambda: None
        self._signals: socket.socket | None = None  # brings the numbers of signals
        self.blocked_count = 0
        self.blocked_seconds = 0.0

    def start(self) -> None:
        """Watch the running loop."""
        self._loop = asyncio.get_running_loop()
        self._loop_thread = threading.get_ident()
        self._answered.set()
        self._thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(TICK + LOG_TIMEOUT)

    @contextlib.contextmanager
    def stop_on_signals(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` in the loop on SIGTERM and Ctrl-C; if the loop does not hear it, the process exits.

        Around start and close, in the main thread.
        """
        self._stop = stop
        reader, writer = socket.socketpair()
        with reader, writer:
            reader.settimeout(TICK)
            writer.setblocking(False)
            self._signals = reader
            for number in STOP_SIGNALS:
                signal.signal(number, _keep_alive)
            # Python's handler in C writes there, whatever the main thread does; a loop's own end is read by the loop.
            before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
            try:
                yield
            finally:
                signal.set_wakeup_fd(before)

    def _watch(self) -> None:
        at, processor = time.monotonic(), time.process_time()
        while not self._ended.is_set():
            self._wait()
            now, used = time.monotonic(), time.process_time()
            self._tick(counted_seconds(now - at, used - processor))
            at, processor = now, used

    def _wait(self) -> None:
        """For a moment, or until a signal comes."""
        if self._signals is None:
            self._ended.wait(TICK)
            return
        with contextlib.suppress(TimeoutError):
            if set(self._signals.recv(64)) & set(STOP_SIGNALS):
                self._silent_since_stop = self._silent_since_stop or 0.0
                self._call(self._stop)

    def _tick(self, elapsed: float) -> None:
        if self._answered.is_set():
            if self._silent >= self._blocked_after:
                self._log("event_loop.unblocked", seconds=round(self._silent, 1))
            self._silent = 0.0
            if self._silent_since_stop is not None:
                self._silent_since_stop = 0.0
            self._answered.clear()
            self._call(self._answered.set)
            return
        before, self._silent = self._silent, self._silent + elapsed
        if before < self._blocked_after <= self._silent:
            self.blocked_count += 1
            self.blocked_seconds += before
            self._log("event_loop.blocked", seconds=round(self._silent, 1), traceback=self._stack())
        if self._silent >= self._blocked_after:
            self.blocked_seconds += elapsed
        self._exit_if_deaf(elapsed)

    def _exit_if_deaf(self, elapsed: float) -> None:
        if self._silent_since_stop is None:
            return
        self._silent_since_stop += elapsed
        if self._silent_since_stop >= self._stop_grace:
            self._log("event_loop.abandoned", seconds=round(self._silent, 1), traceback=self._stack())
            os._exit(EXIT_BLOCKED)  # as if it was killed: what was answered is in the queue

    def _call(self, function: Callable[[], None]) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(function)

    def _stack(self) -> str:
        """Where the loop's thread is now; code only, no values."""
        frame = sys._current_frames().get(self._loop_thread)
        return "".join(traceback.format_stack(frame)[-MAX_FRAMES:]) if frame is not None else ""

    def _log(self, event: str, **fields: object) -> None:
        writing = threading.Thread(target=log, args=(event, "warning"), kwargs=fields, daemon=True)
        writing.start()
        writing.join(LOG_TIMEOUT)


def counted_seconds(elapsed: float, computed: float) -> float:
    """How much of the time since the last look counts, given how much of it the process computed.

    A process that stood still as a whole (suspended, or without a processor) blames nobody; one that computed
    meanwhile did so in a call that lets no other thread run.
    """
    return min(elapsed, max(2 * TICK, computed))


def _keep_alive(number: int, frame: object) -> None:
    """In place of what Python or the system would do: the watchdog hears of it."""
