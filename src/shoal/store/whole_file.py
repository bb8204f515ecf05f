"""WholeFile: a file that could grow, written as a whole: every column is known before its first row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from shoal.store.base import AppendFormat, Checkpoint
from shoal.store.cells import new_columns


class WholeFile:
    notes: tuple[str, ...] = ()

    def __init__(
        self, make_format: Callable[[Path, Checkpoint], AppendFormat], form: Checkpoint, *, has_columns: bool
    ) -> None:
        """form: how its rows are written. has_columns: whether it is a table."""
        self.needs_scan = has_columns
        self.columns: tuple[str, ...] = ()
        self._make_format = make_format
        self._form = form
        self._output: AppendFormat | None = None

    def scan(self, records: Sequence[bytes]) -> None:
        self.columns += new_columns(self.columns, records)

    def begin(self, path: Path) -> None:
        self._output = self._make_format(path, msgspec.structs.replace(self._form, columns=self.columns))

    def write(self, records: Sequence[bytes]) -> None:
        assert self._output is not None
        self._output.write(records)

    def end(self) -> None:
        self.close()

    def close(self) -> None:
        if self._output is not None:
            self._output.close()
            self._output = None
