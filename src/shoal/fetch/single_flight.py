"""SingleFlight: of equal requests on one machine, one is sent, and the others wait for what comes of it.

Within a process they wait for each other; between processes a byte of one lock file stands for each key. The kernel
frees what a process held that died, so nobody waits for the dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path

MAX_WAIT = 90.0  # seconds; whoever has waited for so long sends a request of their own
_POLL_MIN, _POLL_MAX = 0.005, 0.1
MAX_UNSHARED = 10_000  # keys that are remembered as not worth waiting for
_OFFSET_BYTES = 7  # of a key: where its byte lies in the file, which stays empty


class SingleFlight:
    def __init__(self, lock_file: Path | None = None, *, max_wait: float = MAX_WAIT) -> None:
        """lock_file: what the processes of this machine agree by; None: there is only this one."""
        self._path = lock_file
        self._file = -1
        self._max_wait = max_wait
        self._locks: dict[bytes, tuple[asyncio.Lock, int]] = {}  # with how many hold it or wait for it
        self._unshared: OrderedDict[bytes, None] = OrderedDict()

    @contextlib.asynccontextmanager
    async def turn(self, key: bytes) -> AsyncIterator[None]:
        """Be the only one on this machine with this key, unless it was said that nobody need wait for it."""
        if key in self._unshared:
            yield
            return
        end = time.monotonic() + self._max_wait
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = (lock, users + 1)
        is_mine = is_locked = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(asyncio.get_running_loop().time() + self._max_wait):
                    await lock.acquire()
                    is_mine = True
            if is_mine and key in self._unshared:  # whoever was first has found out
                lock.release()
                is_mine = False
            if is_mine:
                is_locked = await self._lock_machine(key, end)
            yield
        finally:
            if is_locked:
                fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _offset(key))
            if is_mine:
                lock.release()
            lock, users = self._locks.pop(key)
            if users > 1:
                self._locks[key] = (lock, users - 1)

    def mark_unshared(self, key: bytes) -> None:
        """What comes of this request is for whoever asked: from here on nobody waits for it."""
        self._unshared[key] = None
        self._unshared.move_to_end(key)
        if len(self._unshared) > MAX_UNSHARED:
            self._unshared.popitem(last=False)

    def mark_shared(self, key: bytes) -> None:
        self._unshared.pop(key, None)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    async def _lock_machine(self, key: bytes, end: float) -> bool:
        if self._path is None:
            return False
        pause = _POLL_MIN
        while True:
            try:
                if self._file < 0:
                    self._path.parent.mkdir(parents=True, exist_ok=True)
                    self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _offset(key))
                return True
            except (BlockingIOError, PermissionError):  # another process has it
                if time.monotonic() > end:
                    return False
            except OSError:  # a file system without locks: each process for itself
                return False
            await asyncio.sleep(pause)
            pause = min(_POLL_MAX, 2 * pause)


def _offset(key: bytes) -> int:
    return int.from_bytes(key[:_OFFSET_BYTES], "big")
