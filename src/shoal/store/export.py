"""Export: copies a run's records into a file, goes on after any crash, and never doubles or loses one.

The file is a copy; the records themselves were made durable by the queue. A position is kept beside
the state and written only after the file was made durable up to there, so what a crash left behind
that position is cut off and copied again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal import locks
from shoal.core.run import Run
from shoal.errors import OutputTaken, RunBusy, Usage
from shoal.store.base import Ledger, Mark, Sink
from shoal.store.csv import CsvFile, new_columns
from shoal.store.jsonl import JsonLines
from shoal.store.rows import fingerprint, refused, sync_folder

SLICE = 1000
COMMIT_EVERY = 1.0

FORMATS: dict[str, Callable[[Path, Mark], Sink]] = {
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".csv": CsvFile,
}


class Position(msgspec.Struct, frozen=True):
    """What is known of an output: whose it is, how far it is whole, and what it is about to become."""

    run: str
    started: int  # when the run was created: names may come again
    path: str
    mark: Mark = Mark()
    pending: Mark | None = None  # a wider file that is about to be renamed to `path`


def check_output(path: Path) -> None:
    """Refuse an output that cannot be written, before any work is done for it."""
    if path.is_dir():
        raise Usage(f"{path} is a folder", hint="give the name of a file")
    if path.suffix.lower() not in FORMATS:
        known = ", ".join(sorted(FORMATS))
        kind = f"as {path.suffix}" if path.suffix else "to a name without an ending"
        raise Usage(f"{path.name}: records cannot be written {kind}", hint=f"a name that ends in {known}")
    if not path.parent.is_dir():
        raise Usage(f"{path}: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")


class Exporter:
    """Keeps one output file in step with the records of one run; `state` is the state's folder."""

    def __init__(
        self, queue: Ledger, run: Run, path: Path | str, state: Path, *, fresh: bool = False
    ) -> None:
        self.path = Path(path).resolve()
        check_output(self.path)
        self._queue = queue
        self._run = run
        folder = state / "exports"
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:24]
        self._place = folder / f"{name}.json"
        self._lock = _lock(folder / f"{name}.lock", self.path)
        try:
            self._mark = self._recover(fresh)
            self._sink = self._open(self.path, self._mark)
        except BaseException:
            locks.release(self._lock)
            raise
        self._committed = time.monotonic()

    @property
    def rows(self) -> int:
        return self._mark.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self._mark.columns

    async def drain(self) -> int:
        """Copy everything settled since the last time and make it durable; says how many records."""
        if self._gone():
            self._sink.close()
            self._mark = self._begin()
            self._sink = self._open(self.path, self._mark)
        before = self._mark.rows
        while slice_ := await self._queue.records(self._run.id, after=self._mark.seq, limit=SLICE):
            data = [record.data for record in slice_]
            if await asyncio.to_thread(self._sink.wider, data):
                await self._widen()
                continue
            await asyncio.to_thread(self._sink.write, data)
            self._mark = msgspec.structs.replace(
                self._mark, seq=slice_[-1].seq, rows=self._mark.rows + len(slice_)
            )
            if time.monotonic() - self._committed > COMMIT_EVERY:
                await asyncio.to_thread(self._commit)
        if self._mark.rows != before:
            await asyncio.to_thread(self._commit)
        return self._mark.rows - before

    def _gone(self) -> bool:
        """Whether somebody has removed the file meanwhile: then it is written again, all of it."""
        return not self.path.exists()

    def close(self) -> None:
        self._sink.close()
        locks.release(self._lock)

    async def _widen(self) -> None:
        """Write the whole file anew with every column there is, and put it in the old one's place."""
        columns = self._mark.columns
        last = 0
        while slice_ := await self._queue.records(self._run.id, after=last, limit=SLICE):
            columns += await asyncio.to_thread(new_columns, columns, [record.data for record in slice_])
            last = slice_[-1].seq
        other = self.path.with_name(f".{self.path.name}.shoal")
        mark = Mark(columns=columns)
        sink = self._open(other, mark)
        try:
            while mark.seq < last and (
                slice_ := await self._queue.records(self._run.id, after=mark.seq, limit=SLICE)
            ):
                slice_ = [record for record in slice_ if record.seq <= last]
                await asyncio.to_thread(sink.write, [record.data for record in slice_])
                mark = msgspec.structs.replace(mark, seq=slice_[-1].seq, rows=mark.rows + len(slice_))
            await asyncio.to_thread(self._replace, sink, other, mark)
        except BaseException:
            sink.close()
            with contextlib.suppress(OSError):
                other.unlink()
            raise

    def _replace(self, sink: Sink, other: Path, mark: Mark) -> None:
        size = sink.flush()
        mark = msgspec.structs.replace(mark, size=size, print=fingerprint(other, size))
        # Both marks are on disk before the rename: whichever file a crash leaves is recognised.
        self._keep(self._position(pending=mark))
        shutil.copymode(self.path, other)
        other.replace(self.path)
        sync_folder(self.path.parent)
        self._mark = mark
        self._keep(self._position())
        self._sink.close()
        self._sink = sink

    def _commit(self) -> None:
        size = self._sink.flush()
        self._mark = msgspec.structs.replace(self._mark, size=size, print=fingerprint(self.path, size))
        self._keep(self._position())
        self._committed = time.monotonic()

    def _position(self, pending: Mark | None = None) -> Position:
        return Position(self._run.name, self._run.created_at, str(self.path), self._mark, pending)

    def _keep(self, position: Position) -> None:
        temporary = self._place.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(msgspec.json.encode(position))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._place)
            sync_folder(self._place.parent)
        except OSError as error:
            raise refused(self._place, error) from error

    def _open(self, path: Path, mark: Mark) -> Sink:
        return FORMATS[self.path.suffix.lower()](path, mark)

    def _recover(self, fresh: bool) -> Mark:
        """Where to go on. Refuses a file that is not this run's, or was changed by someone else."""
        held = self._held()
        ours = held is not None and (held.run, held.started) == (self._run.name, self._run.created_at)
        if held is not None and ours:
            for mark in filter(None, (held.pending, held.mark)):
                if mark.size and fingerprint(self.path, mark.size) == mark.print:
                    return mark
        if self._empty():
            return self._begin()
        if ours and held is not None and not held.mark.size and not held.pending:
            return self._begin()  # begun by this run and never committed: all of it is copied again
        if not fresh:
            raise self._taken(held, ours)
        if held is None:
            self.path.replace(self.path.with_name(self.path.name + ".old"))
        else:
            self.path.unlink()
        return self._begin()

    def _begin(self) -> Mark:
        """Say whose the file is before its first byte is written."""
        self._mark = Mark()
        self._keep(self._position())
        return self._mark

    def _held(self) -> Position | None:
        try:
            return msgspec.json.decode(self._place.read_bytes(), type=Position)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _empty(self) -> bool:
        return not self.path.exists() or self.path.stat().st_size == 0

    def _taken(self, held: Position | None, ours: bool) -> OutputTaken:
        if ours:
            why = "was changed since this run wrote it"
        elif held is not None:
            why = f"holds the records of run {held.run}"
        else:
            why = "exists and was not written by this run"
        return OutputTaken(f"{self.path.name} {why}", hint="another name after -o, or --fresh to begin anew")


def _lock(place: Path, output: Path) -> int:
    handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    if not locks.take(handle):
        os.close(handle)
        raise RunBusy(
            f"{output.name} is being written by another process", hint="wait for it, or use another name"
        )
    return handle
