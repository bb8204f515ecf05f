"""JSON lines: one record a line, as it was stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.store.append_file import AppendFile
from shoal.store.base import Checkpoint


class JsonlFile:
    def __init__(self, path: Path, checkpoint: Checkpoint, *, is_compressed: bool = False) -> None:
        self._rows = AppendFile(path, checkpoint.size, is_compressed=is_compressed)

    def missing_columns(self, records: Sequence[bytes]) -> tuple[str, ...]:
        return ()

    def write(self, records: Sequence[bytes]) -> None:
        self._rows.append(encode(records))

    def flush(self) -> int:
        return self._rows.sync()

    def close(self) -> None:
        self._rows.close()


def encode(records: Sequence[bytes]) -> bytes:
    return b"".join(line(record) + b"\n" for record in records)


def line(record: bytes) -> bytes:
    if b"\n" in record:  # JSON spread over lines by whoever wrote it
        return json.dumps(json.loads(record), ensure_ascii=False, separators=(",", ":")).encode()
    return record
