"""OrderedWriter: a file whose rows are in the order of a list; it is written when the run ends or stops."""

from __future__ import annotations

from collections.abc import Callable

from shoal.store.base import Checkpoint, RecordReader, RewriteFormat
from shoal.store.ordered_records import OrderedRecords
from shoal.store.output_state import OutputState
from shoal.store.rewrite_writer import RewriteWriter


class OrderedWriter:
    def __init__(
        self,
        queue: RecordReader,
        run: int,
        state: OutputState,
        make_format: Callable[[], RewriteFormat],
        *,
        checkpoint: Checkpoint | None,
        form: Checkpoint,
    ) -> None:
        self._records = OrderedRecords(queue, run, state.path.with_name(f".{state.path.name}.order"))
        self._writer = RewriteWriter(self._records, run, state, make_format, checkpoint=checkpoint, form=form)

    @property
    def rows(self) -> int:
        return self._writer.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self._writer.columns

    @property
    def notes(self) -> tuple[str, ...]:
        return self._writer.notes

    async def drain(self) -> int:
        return 0

    async def finish(self) -> int:
        await self._records.refill()
        return await self._writer.finish()

    def close(self) -> None:
        self._writer.close()
        self._records.close()
