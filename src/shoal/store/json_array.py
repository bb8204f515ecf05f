"""JSON: one array of records, one record a line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.store import jsonl
from shoal.store.append_file import AppendFile


class JsonArrayFile:
    needs_scan = False
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._rows: AppendFile | None = None

    def scan(self, records: Sequence[bytes]) -> None:
        pass

    def begin(self, path: Path) -> None:
        self._rows = AppendFile(path)

    def write(self, records: Sequence[bytes]) -> None:
        if self._rows is not None:
            self._rows.append(encode(records, first=self._rows.size == 0))

    def end(self) -> None:
        if self._rows is not None:
            self._rows.append(end(empty=self._rows.size == 0))

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()


def encode(records: Sequence[bytes], *, first: bool) -> bytes:
    """Records of an array that is written in pieces; `first`: nothing of it is there yet."""
    lines = b",\n".join(map(jsonl.line, records))
    return (b"[\n" if first else b",\n") + lines if lines else b""


def end(*, empty: bool) -> bytes:
    return b"[]\n" if empty else b"\n]\n"
