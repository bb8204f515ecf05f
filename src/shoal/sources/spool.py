"""Spool: what came through a pipe, kept in a file, because a pipe cannot be read again after a crash."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from pathlib import Path
from typing import BinaryIO

from shoal.errors import Act, Usage

CHUNK = 1 << 20
MAX_SIZE = 4 << 30
PREFIX = "stdin-"


def spool(folder: Path, stream: BinaryIO | None = None, *, limit: int = MAX_SIZE) -> Path:
    """Copy a stream (stdin) to its end; the name of the file says what is in it, so it is its identity."""
    stream = stream or sys.stdin.buffer
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, place = tempfile.mkstemp(prefix=".stdin-", dir=folder)
    except OSError as error:
        raise Act(f"{folder} cannot be written: {error.strerror}", hint="check its owner and mode") from error
    temporary = Path(place)
    try:
        with os.fdopen(handle, "wb") as file:
            name = _copied(stream, file, limit)
            file.flush()
            os.fsync(file.fileno())
        path = folder / f"{PREFIX}{name}.txt"
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise Act(f"what comes in cannot be kept in {folder}: {error.strerror}", hint="make room") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _copied(stream: BinaryIO, file: BinaryIO, limit: int) -> str:
    print_ = hashlib.sha256()
    size = 0
    while chunk := stream.read(CHUNK):
        size += len(chunk)
        if size > limit:
            raise Usage(
                f"more than {limit:,} bytes came in", hint="put the list into a file: shoal run urls.txt …"
            )
        print_.update(chunk)
        file.write(chunk)
    if not size:
        raise Usage("nothing came in on stdin", hint="cat urls.txt | shoal run - -o out.csv")
    return print_.hexdigest()[:24]
