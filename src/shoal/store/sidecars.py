"""Sidecars: what did not become a record, in files of their own next to the output."""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from shoal.core.run import Run
from shoal.core.task import Attempt
from shoal.store.append_file import AppendFile, set_aside, sync_folder, write_error
from shoal.store.base import run_in_thread
from shoal.store.csv import CsvEncoder
from shoal.store.formats import output_suffix
from shoal.store.split_writer import without_field

FAILED_COLUMNS = ("url", "cause", "status", "message", "attempts", "at")
ORIGIN_COLUMNS = ("line", "input")  # of URLs that came from a list
REJECTED_COLUMNS = ("line", "input", "reason")
LIST_ROW = "row"  # of a task's meta: what else stood in its line
BATCH_SIZE = 200


class FailedTask(Protocol):
    """A task that was given up."""

    @property
    def id(self) -> int: ...
    @property
    def url(self) -> str: ...
    @property
    def cause(self) -> str: ...
    @property
    def attempts(self) -> int: ...
    @property
    def finished_at(self) -> int: ...
    @property
    def history(self) -> tuple[Attempt, ...]: ...


class DeadLetterReader(Protocol):
    """The one method of a queue that a list of failures needs."""

    async def list_tasks(
        self, run: int, *, state: Literal["dead"], after: int = 0, limit: int = 100
    ) -> Sequence[FailedTask]: ...


def sidecar_paths(output: Path | str) -> tuple[Path, Path]:
    """The files of failed and of rejected URLs that belong to an output."""
    path = Path(output)
    stem = path.name.removesuffix(path.name[len(path.name) - len(output_suffix(path)) :])
    stem = without_field(stem)
    return path.with_name(f"{stem}.failed.csv"), path.with_name(f"{stem}.rejected.csv")


async def failures(queue: DeadLetterReader, run: int) -> AsyncIterator[dict[str, Any]]:
    """Dead letters, each as a row: `line` and `input` only where they are known."""
    after = 0
    while batch := await queue.list_tasks(run, state="dead", after=after, limit=BATCH_SIZE):
        for letter in batch:
            yield failure_row(letter)
        after = batch[-1].id


async def write_failed(
    queue: DeadLetterReader,
    run: Run,
    path: Path,
    *,
    csv_safe: bool = False,
    csv_bom: bool = False,
    columns: Sequence[str] = (),
) -> int:
    """Write every dead letter of a run to a CSV file, in place of an earlier one; says how many.

    columns: of the list that its URLs came from, behind the others. Where no page failed, there is no file. A file
    that is not ours is kept under another name.
    """
    own: tuple[str, ...] = FAILED_COLUMNS
    async for found in failures(queue, run.id):
        if len(found) > len(FAILED_COLUMNS):
            own = (*FAILED_COLUMNS, *ORIGIN_COLUMNS)
            break
    other = path.with_name(f".{path.name}.shoal")
    encoder, rows, count = CsvEncoder(safe=csv_safe, bom=csv_bom), AppendFile(other), 0
    try:
        rows.append(encoder.header((*own, *columns)))
        async for found in failures(queue, run.id):
            listed = found.get(LIST_ROW) or {}
            cells = [*(found.get(name, "") for name in own), *_cells(listed, columns)]
            rows.append(encoder.lines([[str(cell) for cell in cells]]))
            count += 1
        await run_in_thread(rows.sync)
    except BaseException:
        with contextlib.suppress(OSError):
            other.unlink()
        raise
    finally:
        rows.close()
    _install(other, path, encoder.header(FAILED_COLUMNS).rstrip(), keep=count > 0)
    return count


class RejectedFile:
    """Lines of an input that were not taken, each with its reason; made when there is one to write.

    `keep`: how many bytes of the file are known to be whole, as flush() said; the rest is cut off.
    """

    def __init__(
        self,
        path: Path,
        keep: int = 0,
        *,
        csv_safe: bool = False,
        csv_bom: bool = False,
        columns: Sequence[str] = (),  # of the input, behind our own
    ) -> None:
        self.path = path
        self._encoder = CsvEncoder(safe=csv_safe, bom=csv_bom)
        self._columns = tuple(columns)
        self._header = self._encoder.header((*REJECTED_COLUMNS, *columns))
        self._pending: list[Sequence[str]] = []
        self._rows: AppendFile | None = None
        if keep and path.exists() and path.stat().st_size >= keep:
            self._rows = AppendFile(path, keep)
        else:  # removed or cut by somebody, or never there
            _remove_previous(path, self._encoder.header(REJECTED_COLUMNS).rstrip())

    def add(self, line: int, text: str, reason: str, row: Mapping[str, Any] | None = None) -> None:
        self._pending.append((str(line), text, reason, *(str(cell) for cell in _cells(row or {}, self._columns))))
        if len(self._pending) >= BATCH_SIZE:
            self._write()

    def flush(self) -> int:
        """Make what was added durable and say how many bytes the file has."""
        self._write()
        return self._rows.sync() if self._rows else 0

    def close(self) -> None:
        if self._rows:
            self._rows.close()

    def _write(self) -> None:
        if not self._pending:
            return
        if self._rows is None:
            self._rows = AppendFile(self.path)
            self._rows.append(self._header)
        self._rows.append(self._encoder.lines(self._pending))
        self._pending = []


def failure_row(letter: FailedTask) -> dict[str, Any]:
    """A dead letter as people want to read it."""
    last = letter.history[-1] if letter.history else None
    found = {
        "url": letter.url,
        "cause": letter.cause,
        "status": last.status if last and last.status else "",
        "message": last.message if last else "",
        "attempts": letter.attempts,
        "at": _time(letter.finished_at),
    }
    meta = getattr(letter, "meta", None) or {}
    if "line" in meta or "input" in meta:
        found |= {"line": meta.get("line", ""), "input": meta.get("input", letter.url)}
    if isinstance(meta.get(LIST_ROW), dict):
        found[LIST_ROW] = meta[LIST_ROW]
    return found


def _cells(row: Mapping[str, Any], columns: Sequence[str]) -> list[object]:
    """What stood in a list's row, as texts; anything else in there as it is written in JSON."""
    values = (row.get(name) for name in columns)
    return ["" if it is None else it if isinstance(it, str) else msgspec.json.encode(it).decode() for it in values]


def _time(at: int) -> str:
    return datetime.fromtimestamp(at // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _install(other: Path, path: Path, header: bytes, *, keep: bool) -> None:
    """Put a finished file in the place of an earlier one, or take both away."""
    try:
        _remove_previous(path, header, remove=not keep)
        if keep:
            other.replace(path)
        else:
            other.unlink()
        sync_folder(path.parent)
    except OSError as error:
        raise write_error(path, error) from error


def _remove_previous(path: Path, header: bytes, *, remove: bool = True) -> None:
    """Take an earlier file away; one that does not begin like ours is set aside."""
    try:
        with path.open("rb") as file:
            begin = file.read(len(codecs.BOM_UTF8) + len(header))
    except FileNotFoundError:
        return
    # Written with the mark or without: ours in both cases.
    ours = header.removeprefix(codecs.BOM_UTF8)
    if begin and not begin.removeprefix(codecs.BOM_UTF8).startswith(ours):
        set_aside(path)
    elif remove:
        path.unlink()
