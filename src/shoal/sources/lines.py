"""LineSource: one URL per line; lines that begin with # are no entries."""

from __future__ import annotations

from collections.abc import Iterator

from shoal.sources.base import BLANK, TOO_LONG, Unit, UrlEntry
from shoal.sources.text import TextFile

PREVIEW_CHARS = 200  # characters of a line that is too long


class LineSource:
    unit: Unit = "line"
    columns: tuple[str, ...] = ()

    def __init__(self, file: TextFile) -> None:
        self._file = file
        self.name = file.name

    def __iter__(self) -> Iterator[UrlEntry]:
        for number, text, is_complete in self._file.lines():
            text = text.strip()
            if not is_complete:
                yield UrlEntry(number, text[:PREVIEW_CHARS] + "…", problem=TOO_LONG)
            elif not text.startswith("#"):
                yield UrlEntry(number, text, problem="" if text else BLANK)

    def close(self) -> None:
        self._file.close()
