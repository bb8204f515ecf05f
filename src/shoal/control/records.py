"""Records: a run's records wherever they are, in the queue or already in a store of their own."""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from shoal.control.home import origin_of
from shoal.control.relay import refuse_other
from shoal.core.run import TASK_BITS, Run
from shoal.errors import Usage
from shoal.queue.base import Queue, StoredRecord
from shoal.store.results import NUMBER, Kept, Origin, Position, ResultStore


class RecordsReader:
    """Reads like the queue itself. Without a store, a run whose records went to one is refused."""

    def __init__(self, queue: Queue, store: ResultStore | None, *runs: Run) -> None:
        self._queue = queue
        self._store = store
        self._runs = {run.id: run for run in runs}
        self._origins: dict[int, Origin] = {}
        self._stored: dict[int, Position] = {}  # how far the store is known to be

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        if self._store is None:
            found = await self._queue.records(run, after=after, limit=limit, tasks=tasks)
            await self._refuse_trimmed(run)
            return found
        if tasks:
            return await self._of_tasks(self._store, run, after, limit, tasks)
        at = self._stored.get(run) or await self._position(self._store, run)
        while True:
            if after < at.last and (kept := await self._kept(self._store, run, after, limit)):
                return kept
            # The queue first: what it has let go of by then, the store's position, asked later, covers.
            found = await self._queue.records(run, after=max(0, after - at.shift), limit=limit)
            at, before = await self._position(self._store, run), at
            if at.shift == before.shift and (after >= at.last or at.last == before.last):
                return [replace(one, seq=one.seq + at.shift) for one in found]

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    async def _of_tasks(
        self, store: ResultStore, run: int, after: int, limit: int, tasks: Collection[int]
    ) -> list[StoredRecord]:
        shift = (await self._position(store, run)).shift
        queued = await self._queue.records(run, after=max(0, after - shift), limit=limit, tasks=tasks)
        found = {one.seq + shift: replace(one, seq=one.seq + shift) for one in queued}
        kept = await store.read(await self._origin(store, run), after=after, limit=limit, tasks=tasks)
        found |= {one.seq: _as_stored(run, one) for one in kept}
        return [found[seq] for seq in sorted(found)[:limit]]

    async def _position(self, store: ResultStore, run: int) -> Position:
        at = self._stored[run] = await store.position(await self._origin(store, run))
        return at

    async def _kept(self, store: ResultStore, run: int, after: int, limit: int) -> list[StoredRecord]:
        kept = await store.read(await self._origin(store, run), after=after, limit=limit)
        return [_as_stored(run, one) for one in kept]

    async def _origin(self, store: ResultStore, run: int) -> Origin:
        if run not in self._origins:
            whole = await self._run(run)
            origin = await origin_of(self._queue, whole)
            stats = await self._queue.stats(run)  # before the position, which only grows
            refuse_other(whole, stats, await store.position(origin), store.place)
            self._origins[run] = origin
        return self._origins[run]

    async def _run(self, number: int) -> Run:
        if number not in self._runs:
            self._runs |= {run.id: run for run in await self._queue.runs(limit=100_000)}
        if number not in self._runs:
            raise Usage(f"there is no run with number {number}", hint="`shoal runs` lists them")
        return self._runs[number]

    async def _refuse_trimmed(self, run: int) -> None:
        trimmed = (await self._queue.stats(run)).trimmed
        if trimmed:
            name = (await self._run(run)).name
            raise Usage(
                f"{trimmed:,} records of run {name} are in a store of their own",
                hint="name it with --store (or SHOAL_STORE)",
            )


def _as_stored(run: int, kept: Kept) -> StoredRecord:
    return StoredRecord(kept.seq, run << TASK_BITS | kept.task & NUMBER, kept.data)
