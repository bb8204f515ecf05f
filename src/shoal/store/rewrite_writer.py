"""RewriteWriter: files that cannot be appended to. They are written anew and then replace the old one."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable

import msgspec

from shoal.store.append_file import fingerprint, set_aside, sync_file, write_error
from shoal.store.base import Checkpoint, RecordReader, RewriteFormat, run_in_thread
from shoal.store.output_state import OutputState
from shoal.store.record_batches import RecordBatches


class RewriteWriter:
    def __init__(
        self,
        queue: RecordReader,
        run: int,
        state: OutputState,
        make_format: Callable[[], RewriteFormat],
        *,
        checkpoint: Checkpoint | None,
        form: Checkpoint = Checkpoint(),
        header: tuple[str, ...] = (),
    ) -> None:
        """form: how rows are to be written; a file that is written otherwise is written anew.

        header: the columns of a table without rows.
        """
        self._queue = queue
        self._run = run
        self._state = state
        self._make_format = make_format
        self._form = form
        self._header = header
        if checkpoint is None:
            state.save(form)
        self._checkpoint = checkpoint or form
        self.notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return self._checkpoint.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self._checkpoint.columns

    async def drain(self) -> int:
        return 0

    async def finish(self) -> int:
        is_same_form = self._checkpoint.form == self._form
        if (
            is_same_form
            and self._is_unchanged()
            and not await self._queue.records(self._run, after=self._checkpoint.seq, limit=1)
        ):
            return 0
        before = self._checkpoint.rows
        output = self._make_format()
        try:
            checkpoint = await self._write(output)
            await run_in_thread(self._replace, output, checkpoint)
        except OSError as error:
            raise write_error(self._state.path, error) from error
        finally:
            # What could not be written cannot be closed in good order either; it goes in any case.
            with contextlib.suppress(OSError, ValueError):
                output.close()
            with contextlib.suppress(OSError):
                self._state.temporary_path.unlink()
        self.notes = output.notes
        return max(0, self._checkpoint.rows - before)

    def close(self) -> None:
        pass

    async def _write(self, output: RewriteFormat) -> Checkpoint:
        last: int | None = None
        if output.needs_scan:
            last = 0
            async for batch in RecordBatches(self._queue, self._run).all():
                await run_in_thread(output.scan, [record.data for record in batch])
                last = batch[-1].seq
            if not last and self._header:
                await run_in_thread(output.scan, [msgspec.json.encode(dict.fromkeys(self._header))])
        await run_in_thread(output.begin, self._state.begin_temporary())
        seq = rows = 0
        async for batch in RecordBatches(self._queue, self._run).all(until=last):
            await run_in_thread(output.write, [record.data for record in batch])
            seq, rows = batch[-1].seq, rows + len(batch)
        return msgspec.structs.replace(self._form, seq=seq, rows=rows, columns=output.columns)

    def _replace(self, output: RewriteFormat, checkpoint: Checkpoint) -> None:
        output.end()
        path, other = self._state.path, self._state.temporary_path
        size = sync_file(other)
        checkpoint = msgspec.structs.replace(checkpoint, size=size, fingerprint=fingerprint(other, size))
        if path.exists():
            shutil.copymode(path, other)
            if not self._state.is_empty() and not self._is_unchanged():
                set_aside(path)  # came here while we were at work: somebody else's
        self._state.replace(checkpoint, previous=self._checkpoint)
        self._checkpoint = checkpoint

    def _is_unchanged(self) -> bool:
        """Whether the file is the one we wrote."""
        checkpoint = self._checkpoint
        return bool(checkpoint.size) and fingerprint(self._state.path, checkpoint.size) == checkpoint.fingerprint
