"""AppendWriter: files that grow row by row while the run goes on.

A position is kept beside the state and written only after the file was made durable up to there, so
what a crash left behind that position is cut off and copied again.
"""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from shoal.store.append_file import fingerprint
from shoal.store.base import AppendFormat, Checkpoint, RecordReader, run_in_thread
from shoal.store.cells import new_columns
from shoal.store.output_state import OutputState
from shoal.store.record_batches import RecordBatches

COMMIT_EVERY = 1.0
CHEAP_REWRITE = 0.25  # seconds for writing a file anew, any time
REWRITE_PAUSE_FACTOR = 20  # times as long as a dearer rewriting took, before the next one


class AppendWriter:
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        queue: RecordReader,
        run: int,
        state: OutputState,
        make_format: Callable[[Path, Checkpoint], AppendFormat],
        *,
        checkpoint: Checkpoint | None,
        form: Checkpoint = Checkpoint(),
        header: tuple[str, ...] = (),
    ) -> None:
        """form: how rows are to be written; a file that is written otherwise is written anew.

        header: the columns of a table without rows, where they are known.
        """
        self._queue = queue
        self._run = run
        self._state = state
        self._make_format = make_format
        self._form = form
        self._header = header
        self._checkpoint = self._start_file() if checkpoint is None else checkpoint
        self._output = make_format(state.path, self._checkpoint)
        self._batches = RecordBatches(queue, run)
        self._committed = time.monotonic()
        self._rewrite_due = 0.0

    @property
    def rows(self) -> int:
        return self._checkpoint.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self._checkpoint.columns

    async def drain(self) -> int:
        return await self._copy(cheap_only=True)

    async def finish(self) -> int:
        new = await self._copy(cheap_only=False)
        if self._header and not self._checkpoint.rows and not self._checkpoint.columns:
            await run_in_thread(self._write_header)
        return new

    async def _copy(self, cheap_only: bool) -> int:
        if not self._state.path.exists():  # somebody has removed it: all of it is written again
            self._output.close()
            self._checkpoint = self._start_file()
            self._output = self._make_format(self._state.path, self._checkpoint)
        before = self._checkpoint.rows
        if self._checkpoint.form != self._form and self._checkpoint.size:
            await self._rewrite_wider()
        while batch := await self._batches.next_after(self._checkpoint.seq):
            data = [record.data for record in batch]
            if await run_in_thread(self._output.missing_columns, data):
                if cheap_only and time.monotonic() < self._rewrite_due:
                    break
                await self._rewrite_wider()
                continue
            await run_in_thread(self._output.write, data)
            self._checkpoint = msgspec.structs.replace(
                self._checkpoint, seq=batch[-1].seq, rows=self._checkpoint.rows + len(batch)
            )
            if time.monotonic() - self._committed > COMMIT_EVERY:
                await run_in_thread(self._commit)
        if self._checkpoint.rows != before:
            await run_in_thread(self._commit)
        return self._checkpoint.rows - before

    def close(self) -> None:
        self._output.close()

    async def _rewrite_wider(self) -> None:
        """Write the whole file anew with every column there is, and put it in the old one's place."""
        began = time.monotonic()
        columns, last = self._checkpoint.columns, 0
        async for batch in RecordBatches(self._queue, self._run).all():
            columns += await run_in_thread(new_columns, columns, [record.data for record in batch])
            last = batch[-1].seq
        checkpoint = msgspec.structs.replace(self._form, columns=columns)
        output = self._make_format(self._state.begin_temporary(), checkpoint)
        try:
            async for batch in RecordBatches(self._queue, self._run).all(until=last):
                await run_in_thread(output.write, [record.data for record in batch])
                checkpoint = msgspec.structs.replace(checkpoint, seq=batch[-1].seq, rows=checkpoint.rows + len(batch))
            await run_in_thread(self._replace, output, checkpoint)
        except BaseException:
            if output is not self._output:
                output.close()
            with contextlib.suppress(OSError):
                self._state.temporary_path.unlink()
            raise
        seconds = time.monotonic() - began
        self._rewrite_due = began + REWRITE_PAUSE_FACTOR * seconds if seconds > CHEAP_REWRITE else 0.0

    def _replace(self, output: AppendFormat, checkpoint: Checkpoint) -> None:
        size = output.flush()
        other = self._state.temporary_path
        checkpoint = msgspec.structs.replace(checkpoint, size=size, fingerprint=fingerprint(other, size))
        shutil.copymode(self._state.path, other)
        self._state.replace(checkpoint, previous=self._checkpoint)
        self._checkpoint = checkpoint
        self._output.close()
        self._output = output

    def _write_header(self) -> None:
        self._output.close()
        self._checkpoint = msgspec.structs.replace(self._checkpoint, columns=self._header)
        self._output = self._make_format(self._state.path, self._checkpoint)
        self._output.write([])
        self._commit()

    def _commit(self) -> None:
        size = self._output.flush()
        path = self._state.path
        self._checkpoint = msgspec.structs.replace(self._checkpoint, size=size, fingerprint=fingerprint(path, size))
        self._state.save(self._checkpoint)
        self._committed = time.monotonic()

    def _start_file(self) -> Checkpoint:
        """Say whose the file is before its first byte is written."""
        self._state.save(self._form)
        return self._form
