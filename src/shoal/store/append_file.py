"""AppendFile: a file that is appended to in whole rows, and can be cut back to where it was whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from pathlib import Path

from shoal.errors import ActionRequired, UsageError

_EDGE = 4096
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class AppendFile:
    """An output file, opened at a size up to which it is known to be whole."""

    def __init__(self, path: Path, size: int = 0, *, is_compressed: bool = False) -> None:
        self.path = path
        self._is_compressed = is_compressed
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            os.ftruncate(self._file, size)
        except OSError as error:
            raise write_error(path, error) from error
        self.size = size

    def append(self, rows: bytes) -> None:
        """Write all of it or, if that fails, none of it."""
        if self._is_compressed and rows:
            import gzip

            rows = gzip.compress(rows, 6, mtime=0)  # a member of its own: the file can be cut before it
        written = 0
        try:
            while written < len(rows):
                written += os.pwrite(self._file, memoryview(rows)[written:], self.size + written)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, self.size)
            raise write_error(self.path, error) from error
        self.size += len(rows)

    def sync(self) -> int:
        try:
            os.fsync(self._file)
        except OSError as error:
            raise write_error(self.path, error) from error
        return self.size

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def fingerprint(path: Path, size: int) -> str:
    """What a file holds up to `size`, judged by both ends; "" if it is not that long."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size < size:
                return ""
            head = file.read(min(_EDGE, size))
            file.seek(max(0, size - _EDGE))
            tail = file.read(min(_EDGE, size))
    except FileNotFoundError:
        return ""
    return hashlib.sha256(b"%d:%b%b" % (size, head, tail)).hexdigest()[:32]


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_file(path: Path) -> int:
    """Make a file durable that somebody else wrote, and say how long it is."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def set_aside(path: Path) -> Path:
    """Keep a file that is not ours under another name, and say which."""
    other = path.with_name(f"{path.name}.old")
    number = 2
    while other.exists():
        other = path.with_name(f"{path.name}.old{number}")
        number += 1
    path.replace(other)
    return other


def write_error(path: Path, error: OSError) -> ActionRequired:
    """What a person must do about a file that could not be written."""
    if error.errno in _FULL:
        return ActionRequired(
            f"no space left to write {path}; what was written is complete, and no record is lost",
            hint="free some space, then run the same command again to resume",
        )
    why = error.strerror or error
    return UsageError(f"{path} cannot be written: {why}", hint="check the folder and its permissions")
