"""Built: files that cannot be added to. They are written anew beside the old one, which they then replace."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable

from shoal.store.base import Draft, Ledger, Mark, apart
from shoal.store.place import Place
from shoal.store.rows import fingerprint, refused, set_aside, sync_file
from shoal.store.slices import Slices


class Built:
    def __init__(
        self, queue: Ledger, run: int, place: Place, draft: Callable[[], Draft], *, mark: Mark | None
    ) -> None:
        self._queue = queue
        self._run = run
        self._place = place
        self._draft = draft
        if mark is None:
            place.keep(Mark())
        self._mark = mark or Mark()
        self.notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return self._mark.rows

    @property
    def columns(self) -> tuple[str, ...]:
        return self._mark.columns

    async def drain(self) -> int:
        return 0

    async def finish(self) -> int:
        if self._as_left() and not await self._queue.records(self._run, after=self._mark.seq, limit=1):
            return 0
        before = self._mark.rows
        draft = self._draft()
        try:
            mark = await self._write(draft)
            await apart(self._replace, draft, mark)
        except OSError as error:
            raise refused(self._place.path, error) from error
        finally:
            # What could not be written cannot be closed in good order either; it goes in any case.
            with contextlib.suppress(OSError, ValueError):
                draft.drop()
            with contextlib.suppress(OSError):
                self._place.beside.unlink()
        self.notes = draft.notes
        return max(0, self._mark.rows - before)

    def close(self) -> None:
        pass

    async def _write(self, draft: Draft) -> Mark:
        last: int | None = None
        if draft.surveys:
            last = 0
            async for slice_ in Slices(self._queue, self._run).all():
                await apart(draft.see, [record.data for record in slice_])
                last = slice_[-1].seq
        await apart(draft.begin, self._place.beside)
        seq = rows = 0
        async for slice_ in Slices(self._queue, self._run).all(until=last):
            await apart(draft.write, [record.data for record in slice_])
            seq, rows = slice_[-1].seq, rows + len(slice_)
        return Mark(seq=seq, rows=rows, columns=draft.columns)

    def _replace(self, draft: Draft, mark: Mark) -> None:
        draft.end()
        path, other = self._place.path, self._place.beside
        size = sync_file(other)
        mark = Mark(mark.seq, size, mark.rows, mark.columns, fingerprint(other, size))
        if path.exists():
            shutil.copymode(path, other)
            if not self._place.empty() and not self._as_left():
                set_aside(path)  # came here while we were at work: somebody else's
        self._place.replace(mark, was=self._mark)
        self._mark = mark

    def _as_left(self) -> bool:
        """Whether the file is the one we wrote."""
        mark = self._mark
        return bool(mark.size) and fingerprint(self._place.path, mark.size) == mark.print
