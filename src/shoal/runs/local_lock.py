"""A file lock that lets one process at a time drive a run; the kernel releases it when the process dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path

from shoal.errors import QueueReadOnly, RunBusy
from shoal.files import flock

ACQUIRE_TIMEOUT = 3.0  # a killed run's workers need a moment to notice and let go


class LocalLock:
    def __init__(self, handle: int) -> None:
        self._handle = handle

    @classmethod
    async def acquire(cls, folder: Path, key: str, what: str) -> LocalLock:
        """Take the lock of the run with this key; raises RunBusy if another process keeps it."""
        place = folder / "owners"
        try:
            place.mkdir(parents=True, exist_ok=True)
            handle = os.open(place / key, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise QueueReadOnly(
                f"{place} cannot be written: {error.strerror}", hint="check its owner and mode"
            ) from error
        deadline = time.monotonic() + ACQUIRE_TIMEOUT
        while True:
            if flock.try_lock(handle):
                return cls(handle)
            if time.monotonic() > deadline:
                os.close(handle)
                raise RunBusy(
                    f"{what} is being run by another process",
                    hint="watch it with `shoal status`, or stop that process first",
                )
            await asyncio.sleep(0.05)

    @classmethod
    def is_abandoned(cls, folder: Path, key: str) -> bool:
        """Whether a process of this machine drove the run with this key, and none does now."""
        if "/" in key or "\0" in key:
            return False  # somebody else's: whoever may start runs could name any file, or a pipe to wait at
        try:
            handle = os.open(folder / "owners" / key, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(handle)
        return True

    def release(self) -> None:
        flock.release(self._handle)
