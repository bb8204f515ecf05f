"""SharedCookieJars: the cookies of a run, shared by its worker processes and kept for when it is resumed.

Every change is a line at the end of one file, and everybody reads on from where they were before each
request: whoever logs in does so for all. A file that has grown is written anew and renamed into place, by
one process at a time; nobody ever waits for a lock. Without a file the jars are this process's own.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from shoal.fetch.cookies import Cookie, CookieJar, CookieJars
from shoal.files import flock

COMPACT_MIN_SIZE = 1_000_000  # bytes of a file that is worth writing anew
COMPACT_GROWTH = 4  # times its size when it was last opened
SAME_EXPIRY = 60.0  # seconds by which a cookie may live longer without that being news

_Line = tuple[str, Cookie]  # the session and what was set; one that has expired was taken back
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


class SharedCookieJars:
    def __init__(self, file: Path) -> None:
        self._path = file
        self._jars = CookieJars()
        self._file = -1  # not opened yet
        self._read = 0  # bytes of it that we know
        self._compact_above = COMPACT_MIN_SIZE
        self._is_unavailable = False
        self._default = SharedCookieJar(self, "")
        self._changes = ChangeSignal(file.with_name(f"{file.name}.bell"))

    def jar(self, name: str) -> SharedCookieJar:
        return SharedCookieJar(self, name) if name else self._default

    def refreshed_jar(self, name: str) -> CookieJar:
        """The cookies of a session, with what other processes have heard."""
        if not self._is_unavailable and self._changes.has_changed():
            try:
                self._read_new_lines()
            except OSError:
                self._is_unavailable = True  # they go on as our own
        return self._jars.jar(name)

    def add(self, name: str, cookies: Iterable[Cookie], now: float) -> None:
        jar = self._jars.jar(name)
        changed = [cookie for cookie in cookies if is_change(cookie, jar.existing(cookie))]
        for cookie in changed:
            jar.set_cookie(cookie, now)
        if not changed or self._is_unavailable:
            return
        # The newline before it ends what somebody may have left half written.
        data = b"\n" + b"".join(_encode((name, cookie)) + b"\n" for cookie in changed)
        try:
            self._append(data)
            if self._read > self._compact_above:
                self._compact(now)
        except OSError:
            self._is_unavailable = True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, data: bytes) -> None:
        while True:
            self._read_new_lines()
            os.write(self._file, data)
            if os.fstat(self._file).st_nlink:
                self._read_new_lines()
                self._changes.notify()
                return

    def _read_new_lines(self) -> None:
        if self._file < 0:
            self._open()
        status = os.fstat(self._file)
        if not status.st_nlink:  # written anew by another process: that file has all of it
            self.close()
            self._open()
            status = os.fstat(self._file)
        if status.st_size > self._read:
            self._apply_lines(os.pread(self._file, status.st_size - self._read, self._read))

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._read = 0
        self._compact_above = max(COMPACT_MIN_SIZE, COMPACT_GROWTH * os.fstat(self._file).st_size)

    def _apply_lines(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1  # the rest is still being written
        self._read += end
        for line in data[:end].split(b"\n"):
            if line:
                with contextlib.suppress(msgspec.MsgspecError):
                    name, cookie = _decode(line)
                    self._jars.jar(name).set_cookie(cookie, 0.0)

    def _compact(self, now: float) -> None:
        """Only what still counts; what others add meanwhile is carried over."""
        old = os.dup(self._file)
        if not flock.try_lock(old):  # somebody else is at it
            os.close(old)
            return
        try:
            known = self._read
            temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
            lines = (
                _encode((name, cookie)) + b"\n"
                for name, jar in self._jars.items()
                for cookie in jar
                if cookie.expires is None or cookie.expires > now
            )
            temporary.touch(mode=0o600)
            temporary.write_bytes(b"".join(lines))
            temporary.replace(self._path)
            late = os.pread(old, os.fstat(old).st_size - known, known)
            self.close()
            self._open()
            if late:
                os.write(self._file, b"\n" + late)
            self._changes.notify()
        finally:
            flock.release(old)


class ChangeSignal:
    """Shared memory that says whether the file has changed: far cheaper than asking the file each time."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self._map: mmap.mmap | None = None
        self._last_seen = b""

    def has_changed(self) -> bool:
        """Whether there was news since the last time; the first time there always is."""
        if self._map is None and not self._open():
            return True
        assert self._map is not None
        status = self._map[:8]
        if status == self._last_seen:
            return False
        self._last_seen = status
        return True

    def notify(self) -> None:
        if self._map is not None or self._open():
            assert self._map is not None
            self._map[:8] = time.time_ns().to_bytes(8, "little")

    def _open(self) -> bool:
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.ftruncate(file, 8)
                self._map = mmap.mmap(file, 8)
            finally:
                os.close(file)
        except (OSError, ValueError):
            return False  # then the file is asked each time
        return True


class SharedCookieJar:
    """The cookies of one session."""

    __slots__ = ("_name", "_sessions")

    def __init__(self, sessions: SharedCookieJars, name: str) -> None:
        self._sessions = sessions
        self._name = name

    def header(self, url: str, now: float) -> str:
        return self._sessions.refreshed_jar(self._name).header(url, now)

    def store(self, url: str, lines: Iterable[str], now: float) -> None:
        jar = self._sessions.refreshed_jar(self._name)
        for line in lines:
            cookie = jar.parse_set_cookie(url, line, now)
            if cookie is not None:
                self._sessions.add(self._name, (cookie,), now)

    def all(self) -> Iterable[Cookie]:
        return self._sessions.refreshed_jar(self._name)

    def put(self, cookies: Iterable[Cookie], now: float) -> None:
        self._sessions.refreshed_jar(self._name)
        self._sessions.add(self._name, cookies, now)


def is_change(cookie: Cookie, before: Cookie | None) -> bool:
    if before is None:
        return True
    if (cookie.value, cookie.secure, cookie.host_only) != (before.value, before.secure, before.host_only):
        return True
    if cookie.expires is None or before.expires is None:
        return cookie.expires != before.expires
    return abs(cookie.expires - before.expires) > SAME_EXPIRY
