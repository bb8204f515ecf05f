"""RecordBatches: a run's records read batch by batch, none larger than memory should hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from shoal.store.base import RecordLike, RecordReader

BATCH_SIZE = 1000
FIRST_BATCH = 50  # before it is known how large the records are
MAX_BATCH_BYTES = 4_000_000


class RecordBatches:
    def __init__(self, queue: RecordReader, run: int) -> None:
        self._queue = queue
        self._run = run
        self._limit = FIRST_BATCH

    async def next_after(self, seq: int) -> Sequence[RecordLike]:
        """The next records behind `seq`; none if there are no more."""
        found = await self._queue.records(self._run, after=seq, limit=min(self._limit, BATCH_SIZE))
        if found:
            size = sum(len(record.data) for record in found) // len(found)
            self._limit = max(1, min(BATCH_SIZE, 4 * self._limit, MAX_BATCH_BYTES // max(1, size)))
        return found

    async def all(self, *, after: int = 0, until: int | None = None) -> AsyncIterator[Sequence[RecordLike]]:
        """All records there are, or those up to `until`."""
        while batch := await self.next_after(after):
            after = batch[-1].seq
            if until is not None and after >= until:
                if wanted := [record for record in batch if record.seq <= until]:
                    yield wanted
                return
            yield batch
