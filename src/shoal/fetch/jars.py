"""Jars: the cookies of a run, shared by its worker processes and kept for when it goes on.

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

from shoal import locks
from shoal.fetch.cookies import Cookie, Cookies, Sessions

LARGE = 1_000_000  # bytes of a file that is worth writing anew
GROWTH = 4  # times its size when it was last opened
SAME_EXPIRY = 60.0  # seconds by which a cookie may live longer without that being news

_Line = tuple[str, Cookie]  # the session and what was set; one that has expired was taken back
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode


class SharedSessions:
    def __init__(self, file: Path) -> None:
        self._path = file
        self._jars = Sessions()
        self._file = -1  # not opened yet
        self._read = 0  # bytes of it that we know
        self._large = LARGE
        self._broken = False
        self._own = SharedJar(self, "")
        self._bell = Bell(file.with_name(f"{file.name}.bell"))

    def jar(self, name: str) -> SharedJar:
        return SharedJar(self, name) if name else self._own

    def up_to_date(self, name: str) -> Cookies:
        """The cookies of a session, with what other processes have heard."""
        if not self._broken and self._bell.rung():
            try:
                self._catch_up()
            except OSError:
                self._broken = True  # they go on as our own
        return self._jars.jar(name)

    def add(self, name: str, cookies: Iterable[Cookie], now: float) -> None:
        jar = self._jars.jar(name)
        fresh = [cookie for cookie in cookies if _is_news(cookie, jar.like(cookie))]
        for cookie in fresh:
            jar.keep(cookie, now)
        if not fresh or self._broken:
            return
        # The newline before it ends what somebody may have left half written.
        data = b"\n" + b"".join(_encode((name, cookie)) + b"\n" for cookie in fresh)
        try:
            self._append(data)
            if self._read > self._large:
                self._write_anew(now)
        except OSError:
            self._broken = True

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _append(self, data: bytes) -> None:
        while True:
            self._catch_up()
            os.write(self._file, data)
            if os.fstat(self._file).st_nlink:
                self._catch_up()
                self._bell.ring()
                return

    def _catch_up(self) -> None:
        if self._file < 0:
            self._open()
        told = os.fstat(self._file)
        if not told.st_nlink:  # written anew by another process: that file has all of it
            self.close()
            self._open()
            told = os.fstat(self._file)
        if told.st_size > self._read:
            self._take(os.pread(self._file, told.st_size - self._read, self._read))

    def _open(self) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o600)
        self._read = 0
        self._large = max(LARGE, GROWTH * os.fstat(self._file).st_size)

    def _take(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1  # the rest is still being written
        self._read += end
        for line in data[:end].split(b"\n"):
            if line:
                with contextlib.suppress(msgspec.MsgspecError):
                    name, cookie = _decode(line)
                    self._jars.jar(name).keep(cookie, 0.0)

    def _write_anew(self, now: float) -> None:
        """Only what still counts; what others add meanwhile is carried over."""
        old = os.dup(self._file)
        if not locks.take(old):  # somebody else is at it
            os.close(old)
            return
        try:
            known = self._read
            half = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
            lines = (
                _encode((name, cookie)) + b"\n"
                for name, jar in self._jars.items()
                for cookie in jar
                if cookie.expires is None or cookie.expires > now
            )
            half.touch(mode=0o600)
            half.write_bytes(b"".join(lines))
            half.replace(self._path)
            late = os.pread(old, os.fstat(old).st_size - known, known)
            self.close()
            self._open()
            if late:
                os.write(self._file, b"\n" + late)
            self._bell.ring()
        finally:
            locks.release(old)


class Bell:
    """Memory that processes share, to say that there is news: far cheaper than asking the file each time."""

    def __init__(self, file: Path) -> None:
        self._path = file
        self._map: mmap.mmap | None = None
        self._heard = b""

    def rung(self) -> bool:
        """Whether there was news since the last time; the first time there always is."""
        if self._map is None and not self._open():
            return True
        assert self._map is not None
        told = self._map[:8]
        if told == self._heard:
            return False
        self._heard = told
        return True

    def ring(self) -> None:
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


class SharedJar:
    """The cookies of one session."""

    __slots__ = ("_name", "_sessions")

    def __init__(self, sessions: SharedSessions, name: str) -> None:
        self._sessions = sessions
        self._name = name

    def header(self, url: str, now: float) -> str:
        return self._sessions.up_to_date(self._name).header(url, now)

    def store(self, url: str, lines: Iterable[str], now: float) -> None:
        jar = self._sessions.up_to_date(self._name)
        for line in lines:
            cookie = jar.admitted(url, line, now)
            if cookie is not None:
                self._sessions.add(self._name, (cookie,), now)


def _is_news(cookie: Cookie, before: Cookie | None) -> bool:
    if before is None:
        return True
    if (cookie.value, cookie.secure, cookie.host_only) != (before.value, before.secure, before.host_only):
        return True
    if cookie.expires is None or before.expires is None:
        return cookie.expires != before.expires
    return abs(cookie.expires - before.expires) > SAME_EXPIRY
