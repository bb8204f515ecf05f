"""Snapshot: rows of a table or of another run, kept as JSON lines, because they may change before all are fetched."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec

from shoal.errors import ActionRequired

SAMPLE_ROWS = 30
_UNFINISHED = ".rows-"
_unsafe_chars = re.compile(r"[^A-Za-z0-9_.-]+")
_encode = msgspec.json.Encoder(enc_hook=str).encode


def snapshot_path(folder: Path, label: str, identity: Sequence[str]) -> Path:
    """Where the rows of a source are kept; the same source has the same place."""
    digest = hashlib.sha256("\0".join(identity).encode()).hexdigest()[:8]
    return folder / f"{_unsafe_chars.sub('-', label)[:80]}-{digest}.jsonl"


def remove_old_snapshots(folder: Path, days: float) -> None:
    """Those that no command has used for so long."""
    before = time.time() - days * 86_400.0
    found = [*folder.glob("*-????????.jsonl"), *folder.glob(f"{_UNFINISHED}*")] if folder.is_dir() else []
    for path in found:
        if path.stat().st_mtime < before:
            path.unlink(missing_ok=True)


def first_rows(path: Path) -> list[dict[str, Any]]:
    """Some, to judge by which of their fields holds URLs."""
    with path.open("rb") as file:
        return [msgspec.json.decode(line) for line in islice(file, SAMPLE_ROWS)]


class Snapshot:
    """Rows on their way into a file, which is there only when all of them are."""

    def __init__(self, path: Path) -> None:
        self.rows = 0
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)  # only its owner may read it
        except OSError as error:
            raise _not_written(path, error) from error
        self._file, self._temporary = os.fdopen(handle, "wb"), Path(name)

    def add(self, row: dict[str, Any] | bytes) -> None:
        """A row, or one that is JSON already."""
        try:
            self._file.write((row if isinstance(row, bytes) else _encode(row)) + b"\n")
        except OSError as error:
            raise _not_written(self._path, error) from error
        self.rows += 1

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self.rows:
                self._file.flush()
                os.fsync(self._file.fileno())
                self._temporary.replace(self._path)
        except OSError as problem:
            raise _not_written(self._path, problem) from problem
        finally:
            self._file.close()
            self._temporary.unlink(missing_ok=True)


def _not_written(path: Path, error: OSError) -> ActionRequired:
    return ActionRequired(
        f"{path.parent} cannot be written: {error.strerror}", hint="free some space, or check its owner and mode"
    )
