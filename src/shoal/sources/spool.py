"""Spool: what came through a pipe, kept in a file, because a pipe cannot be read again after a crash."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from shoal.errors import ActionRequired, UsageError

CHUNK = 1 << 20
MAX_SIZE = 4 << 30
PREFIX = "stdin-"


def spool(folder: Path, stream: BinaryIO | None = None, *, limit: int = MAX_SIZE) -> Path:
    """Copy a stream (stdin) to its end; the name of the file says what is in it, so it is its identity."""
    stream = stream or sys.stdin.buffer
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary_name = tempfile.mkstemp(prefix=".stdin-", dir=folder)
    except OSError as error:
        raise ActionRequired(
            f"{folder} cannot be written: {error.strerror}", hint="check its owner and mode"
        ) from error
    temporary = Path(temporary_name)
    try:
        with os.fdopen(handle, "wb") as file:
            name = _copy_stream(stream, file, limit)
            file.flush()
            os.fsync(file.fileno())
        path = folder / f"{PREFIX}{name}.txt"
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ActionRequired(f"stdin cannot be stored in {folder}: {error.strerror}", hint="free some space") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _copy_stream(stream: BinaryIO, file: BinaryIO, limit: int) -> str:
    digest = hashlib.sha256()
    size = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        if size > limit:
            raise UsageError(
                f"stdin has more than {limit:,} bytes", hint="put the list into a file: shoal run urls.txt …"
            )
        digest.update(chunk)
        file.write(chunk)
    if not size:
        raise UsageError("stdin was empty", hint="cat urls.txt | shoal run - -o out.csv")
    return digest.hexdigest()[:24]
