"""Slices: a run's records read piece by piece, none larger than memory should hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from shoal.store.base import Ledger, Stored

SLICE = 1000
FIRST = 50  # before it is known how large the records are
BYTES = 4_000_000


class Slices:
    def __init__(self, queue: Ledger, run: int) -> None:
        self._queue = queue
        self._run = run
        self._limit = FIRST

    async def after(self, seq: int) -> Sequence[Stored]:
        """The next records behind `seq`; none if there are no more."""
        found = await self._queue.records(self._run, after=seq, limit=min(self._limit, SLICE))
        if found:
            size = sum(len(record.data) for record in found) // len(found)
            self._limit = max(1, min(SLICE, 4 * self._limit, BYTES // max(1, size)))
        return found

    async def all(self, *, after: int = 0, until: int | None = None) -> AsyncIterator[Sequence[Stored]]:
        """All records there are, or those up to `until`."""
        while slice_ := await self.after(after):
            after = slice_[-1].seq
            if until is not None and after >= until:
                yield [record for record in slice_ if record.seq <= until]
                return
            yield slice_
