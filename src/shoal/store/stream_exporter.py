"""StreamExporter: records written one after the other to a stream that nobody can take back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shoal.core.run import Run
from shoal.store import cells, json_array, jsonl
from shoal.store.base import RecordReader
from shoal.store.csv import CsvEncoder
from shoal.store.record_batches import RecordBatches

STREAM_KINDS = ("jsonl", "csv", "tsv", "json")


class StreamExporter:
    """The columns of a table are those known at its first row; `late_columns` has those that came after."""

    def __init__(
        self,
        queue: RecordReader,
        run: Run,
        kind: str,
        write: Callable[[bytes], object],
        *,
        csv_safe: bool = False,
        csv_bom: bool = False,
    ) -> None:
        self.rows = 0
        self.late_columns: tuple[str, ...] = ()
        self._queue = queue
        self._run = run.id
        self._kind = kind
        self._write = write
        self._encoder = CsvEncoder("\t" if kind == "tsv" else ",", csv_safe, csv_bom)
        self._columns: tuple[str, ...] | None = None
        self._batches = RecordBatches(queue, run.id)
        self._seq = 0

    async def drain(self) -> int:
        before = self.rows
        while batch := await self._batches.next_after(self._seq):
            if self._columns is None:
                await self._begin()
            self._write(self._encode([record.data for record in batch]))
            self._seq, self.rows = batch[-1].seq, self.rows + len(batch)
        return self.rows - before

    async def finish(self) -> int:
        added = await self.drain()
        if self._columns is None:
            await self._begin()
        if self._kind == "json":
            self._write(json_array.end(empty=self.rows == 0))
        return added

    def close(self) -> None:
        pass

    async def _begin(self) -> None:
        self._columns = ()
        if self._kind not in ("csv", "tsv"):
            return
        async for batch in RecordBatches(self._queue, self._run).all():
            self._columns += cells.new_columns(self._columns, [record.data for record in batch])
        if self._columns:
            self._write(self._encoder.header(self._columns))

    def _encode(self, records: Sequence[bytes]) -> bytes:
        if self._kind == "jsonl":
            return jsonl.encode(records)
        if self._kind == "json":
            return json_array.encode(records, first=self.rows == 0)
        known = (*(self._columns or ()), *self.late_columns)
        self.late_columns += cells.new_columns(known, records)
        return self._encoder.encode(self._columns or (), records)
