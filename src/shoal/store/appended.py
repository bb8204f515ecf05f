"""Appended: files that grow row by row while the run goes on.

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

from shoal.store.base import Ledger, Mark, Sink, apart
from shoal.store.cells import new_columns
from shoal.store.place import Place
from shoal.store.rows import fingerprint
from shoal.store.slices import Slices

COMMIT_EVERY = 1.0
CHEAP = 0.25  # seconds for writing a file anew, any time
PATIENCE = 20  # times as long as a dearer rewriting took, before the next one


class Appended:
    notes: tuple[str, ...] = ()

    def __init__(
        self,
        queue: Ledger,
        run: int,
        place: Place,
        sink: Callable[[Path, Mark], Sink],
        *,
        mark: Mark | None,
        safe: bool = False,
    ) -> None:
        self._queue = queue
        self._run = run
        self._place = place
        self._form = sink
        self._safe = safe
        self._mark = self._begin() if mark is None else mark
        self._sink = sink(place.path, self._mark)
        self._slices = Slices(queue, run)
        self._committed = time.monotonic()
        self._widen_due = 0.0

    @property
    def rows(self) -> int:
        return self._mark.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self._mark.columns

    async def drain(self) -> int:
        return await self._copy(patient=True)

    async def finish(self) -> int:
        return await self._copy(patient=False)

    async def _copy(self, patient: bool) -> int:
        if not self._place.path.exists():  # somebody has removed it: all of it is written again
            self._sink.close()
            self._mark = self._begin()
            self._sink = self._form(self._place.path, self._mark)
        before = self._mark.rows
        if self._mark.safe != self._safe and self._mark.size:
            await self._widen()
        while slice_ := await self._slices.after(self._mark.seq):
            data = [record.data for record in slice_]
            if await apart(self._sink.wider, data):
                if patient and time.monotonic() < self._widen_due:
                    break
                await self._widen()
                continue
            await apart(self._sink.write, data)
            self._mark = msgspec.structs.replace(
                self._mark, seq=slice_[-1].seq, rows=self._mark.rows + len(slice_)
            )
            if time.monotonic() - self._committed > COMMIT_EVERY:
                await apart(self._commit)
        if self._mark.rows != before:
            await apart(self._commit)
        return self._mark.rows - before

    def close(self) -> None:
        self._sink.close()

    async def _widen(self) -> None:
        """Write the whole file anew with every column there is, and put it in the old one's place."""
        began = time.monotonic()
        columns, last = self._mark.columns, 0
        async for slice_ in Slices(self._queue, self._run).all():
            columns += await apart(new_columns, columns, [record.data for record in slice_])
            last = slice_[-1].seq
        mark = Mark(columns=columns, safe=self._safe)
        sink = self._form(self._place.beside, mark)
        try:
            async for slice_ in Slices(self._queue, self._run).all(until=last):
                await apart(sink.write, [record.data for record in slice_])
                mark = msgspec.structs.replace(mark, seq=slice_[-1].seq, rows=mark.rows + len(slice_))
            await apart(self._replace, sink, mark)
        except BaseException:
            if sink is not self._sink:
                sink.close()
            with contextlib.suppress(OSError):
                self._place.beside.unlink()
            raise
        took = time.monotonic() - began
        self._widen_due = began + PATIENCE * took if took > CHEAP else 0.0

    def _replace(self, sink: Sink, mark: Mark) -> None:
        size = sink.flush()
        other = self._place.beside
        mark = msgspec.structs.replace(mark, size=size, print=fingerprint(other, size))
        shutil.copymode(self._place.path, other)
        self._place.replace(mark, was=self._mark)
        self._mark = mark
        self._sink.close()
        self._sink = sink

    def _commit(self) -> None:
        size = self._sink.flush()
        path = self._place.path
        self._mark = msgspec.structs.replace(self._mark, size=size, print=fingerprint(path, size))
        self._place.keep(self._mark)
        self._committed = time.monotonic()

    def _begin(self) -> Mark:
        """Say whose the file is before its first byte is written."""
        mark = Mark(safe=self._safe)
        self._place.keep(mark)
        return mark
