"""Lines: one address a line; blank lines and lines that begin with # are no entries."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.sources.base import TOO_LONG, Entry, Unit
from shoal.sources.text import TextFile

SHOWN = 200  # characters of a line that is too long


class Lines:
    unit: Unit = "line"

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self.name = file.name

    def __iter__(self) -> Iterator[Entry]:
        for number, text, whole in self._file.lines():
            text = text.strip()
            if not whole:
                yield Entry(number, text[:SHOWN] + "…", problem=TOO_LONG)
            elif text and not text.startswith("#"):
                yield Entry(number, text)

    def close(self) -> None:
        self._file.close()
