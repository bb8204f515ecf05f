"""StartRate: how many tasks the processes of one worker start per second, counted in a small file that they share."""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

CATCH_UP = 1.0  # seconds whose tasks may be started at once; never less than one
ROUNDING = 1e-6  # of a task
_next_at = struct.Struct("d")  # when the next may start, on the clock that all processes of a machine share


class StartLimit(Protocol):
    """How many more tasks a worker may start, beside what lanes allow."""

    def take(self, wanted: int) -> int:
        """So many of them may be claimed now."""
        ...

    def give_back(self, count: int) -> None:
        """So many were not there to be claimed."""
        ...

    def wait_seconds(self) -> float:
        """Seconds until it is worth asking again."""
        ...


class StartRate:
    def __init__(self, path: Path, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._spacing = 1.0 / per_second
        self._clock = clock

    def take(self, wanted: int) -> int:
        taken = 0

        def move(next_at: float, now: float) -> float:
            nonlocal taken
            next_at = max(next_at, now - max(0.0, CATCH_UP - self._spacing))
            if next_at > now + 2 * self._spacing:  # of before this machine was last started
                next_at = now
            taken = max(0, min(wanted, 1 + int((now - next_at) / self._spacing + ROUNDING))) if next_at <= now else 0
            return next_at + taken * self._spacing

        self._change(move)
        return taken

    def give_back(self, count: int) -> None:
        if count:
            self._change(lambda next_at, now: next_at - count * self._spacing)

    def wait_seconds(self) -> float:
        return max(0.0, self._read() - self._clock())

    def close(self) -> None:
        os.close(self._file)

    def _read(self) -> float:
        data = os.pread(self._file, _next_at.size, 0)
        found: float = _next_at.unpack(data)[0] if len(data) == _next_at.size else 0.0
        return found

    def _change(self, change: Callable[[float, float], float]) -> None:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            os.pwrite(self._file, _next_at.pack(change(self._read(), self._clock())), 0)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
