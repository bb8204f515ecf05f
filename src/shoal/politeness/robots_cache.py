"""RobotsCache: what the robots.txt of each site said, kept for the other worker processes of this machine.

One small file per site and product token, written whole and renamed into place. A lock file beside it
is held by whoever asks the site; the kernel frees it with its process. A cache that cannot be read or
written is no cache: then every process asks for itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from shoal.files import flock
from shoal.politeness.robots_group import RobotsGroup

MAX_FILES = 20_000
MAX_BYTES = 50 * 1024 * 1024
MAX_ENTRY_SIZE = 2 * 1024 * 1024
LOCK_TIMEOUT = 20.0  # seconds for which another process may keep us waiting
PRUNE_EVERY = 1_000  # writes of one process
_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.2
_LEFT_BEHIND = 3600.0  # age at which a lock or a half-written file that nobody holds is removed
_VERSION = 1


class CachedRobots(msgspec.Struct, frozen=True, array_like=True):
    """What is known of one robots.txt. Times are Unix times: several processes read them."""

    origin: str
    token: str
    read_at: float
    until: float  # when to ask the site again
    group: RobotsGroup | None = None  # None: it could never be read
    failures: int = 0  # in a row
    reason: str = ""
    cause: str = ""
    version: int = _VERSION


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(CachedRobots).decode


class RobotsCache:
    def __init__(self, folder: Path, *, lock_timeout: float = LOCK_TIMEOUT) -> None:
        self._folder = folder
        self._lock_timeout = lock_timeout
        self._until_prune = random.randrange(PRUNE_EVERY)

    def get(self, origin: str, token: str) -> CachedRobots | None:
        """What was last written about a site, however old."""
        try:
            with self._file(origin, token).open("rb") as file:
                found = _decode(file.read(MAX_ENTRY_SIZE + 1))
        except (OSError, msgspec.MsgspecError):
            return None
        same = (found.version, found.origin, found.token) == (_VERSION, origin, token)
        return found if same else None

    def put(self, entry: CachedRobots) -> None:
        data = _encode(entry)
        if len(data) > MAX_ENTRY_SIZE:
            return
        file = self._file(entry.origin, entry.token)
        temporary = file.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(data)
            temporary.replace(file)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._until_prune -= 1

    @asynccontextmanager
    async def fetch_lock(self, origin: str, token: str) -> AsyncIterator[None]:
        """Be the one process that asks this site; who has waited for long enough asks as well."""
        lock = self._file(origin, token).with_suffix(".lock")
        deadline = time.monotonic() + self._lock_timeout
        pause, held = _FIRST_PAUSE, self._try_lock(lock)
        while held is None and time.monotonic() < deadline:
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause, held = min(pause * 1.5, _LONGEST_PAUSE), self._try_lock(lock)
        try:
            yield
        finally:
            if held:
                with contextlib.suppress(OSError):
                    lock.unlink(missing_ok=True)  # before others can have it: see _take
                flock.release(held)

    async def prune_if_due(self) -> None:
        """Remove the oldest files where there are too many; looks only now and then."""
        if self._until_prune <= 0:
            self._until_prune = PRUNE_EVERY
            await asyncio.to_thread(self.prune)

    def prune(self) -> None:
        now, files, size = time.time(), [], 0
        with contextlib.suppress(OSError), os.scandir(self._folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    if not entry.name.endswith((".lock", ".tmp")):
                        files.append((status.st_mtime, status.st_size, entry.path))
                        size += status.st_size
                    elif now - status.st_mtime > _LEFT_BEHIND:
                        Path(entry.path).unlink(missing_ok=True)
        files.sort(reverse=True)
        while files and (len(files) > MAX_FILES or size > MAX_BYTES):
            _, gone, path = files.pop()
            size -= gone
            with contextlib.suppress(OSError):
                Path(path).unlink(missing_ok=True)

    def _file(self, origin: str, token: str) -> Path:
        return self._folder / hashlib.sha256(f"{token}\n{origin}".encode()).hexdigest()[:32]

    def _try_lock(self, lock: Path) -> int | None:
        """The open lock file, None while somebody else has it, 0 where there can be no locks."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            file = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return 0
        try:
            taken = flock.try_lock(file)
        except OSError:
            os.close(file)
            return 0
        if not taken:
            os.close(file)
            return None
        # Whoever held it before has removed the file: the name may belong to a newer one by now.
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(file), lock.stat()):
                return file
        flock.release(file)
        return None
