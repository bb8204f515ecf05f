"""Records: a run's records wherever they are, in the queue or already in a store of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from msgspec.structs import replace

from shoal.core.run import TASK_BITS, Run
from shoal.errors import UsageError
from shoal.queue.base import Queue, StoredRecord
from shoal.runs.queue_identity import result_origin
from shoal.runs.relay import check_same_store
from shoal.store.results.base import TASK_NUMBER_MASK, Origin, ResultBackend, StoredResult, StorePosition

FindStore = Callable[[], Awaitable[ResultBackend | None]]


async def _no_store() -> None:
    return None


class RecordsReader:
    """Reads like the queue itself. A run whose records went to a store is refused if that is not found.

    find_store: asked when records are met that have left the queue, unless a store was given.
    """

    def __init__(
        self, queue: Queue, store: ResultBackend | None, *runs: Run, find_store: FindStore = _no_store
    ) -> None:
        self._queue = queue
        self._store = store
        self._find_store = find_store
        self._runs = {run.id: run for run in runs}
        self._origins: dict[int, Origin] = {}
        self._positions: dict[int, StorePosition] = {}  # how far the store is known to be

    async def records(
        self, run: int, *, after: int = 0, limit: int = 1000, tasks: Collection[int] = ()
    ) -> list[StoredRecord]:
        if self._store is None:
            found = await self._queue.records(run, after=after, limit=limit, tasks=tasks)
            if not (trimmed := (await self._queue.stats(run)).trimmed):
                return found
            self._store = await self._find_store()
            if self._store is None:
                raise await self._no_store_for(run, trimmed)
        if tasks:
            return await self._records_of_tasks(self._store, run, after, limit, tasks)
        at = self._positions.get(run) or await self._position(self._store, run)
        while True:
            if after < at.last and (kept := await self._stored_records(self._store, run, after, limit)):
                return kept
            # The queue first: what it has let go of by then, the store's position, asked later, covers.
            found = await self._queue.records(run, after=max(0, after - at.shift), limit=limit)
            at, before = await self._position(self._store, run), at
            if at.shift == before.shift and (after >= at.last or at.last == before.last):
                return [replace(one, seq=one.seq + at.shift) for one in found]

    async def close(self) -> None:
        if self._store is not None:
            await self._store.close()

    async def _records_of_tasks(
        self, store: ResultBackend, run: int, after: int, limit: int, tasks: Collection[int]
    ) -> list[StoredRecord]:
        shift = (await self._position(store, run)).shift
        queued = await self._queue.records(run, after=max(0, after - shift), limit=limit, tasks=tasks)
        found = {one.seq + shift: replace(one, seq=one.seq + shift) for one in queued}
        kept = await store.read(await self._origin(store, run), after=after, limit=limit, tasks=tasks)
        found |= {one.seq: _as_stored(run, one) for one in kept}
        return [found[seq] for seq in sorted(found)[:limit]]

    async def _position(self, store: ResultBackend, run: int) -> StorePosition:
        at = self._positions[run] = await store.position(await self._origin(store, run))
        return at

    async def _stored_records(self, store: ResultBackend, run: int, after: int, limit: int) -> list[StoredRecord]:
        kept = await store.read(await self._origin(store, run), after=after, limit=limit)
        return [_as_stored(run, one) for one in kept]

    async def _origin(self, store: ResultBackend, run: int) -> Origin:
        if run not in self._origins:
            whole = await self._run(run)
            origin = await result_origin(self._queue, whole)
            stats = await self._queue.stats(run)  # before the position, which only grows
            check_same_store(whole, stats, await store.position(origin), store.label)
            self._origins[run] = origin
        return self._origins[run]

    async def _run(self, number: int) -> Run:
        if number not in self._runs:
            self._runs |= {run.id: run for run in await self._queue.runs(limit=100_000)}
        if number not in self._runs:
            raise UsageError(f"there is no run with number {number}", hint="`shoal runs` lists them")
        return self._runs[number]

    async def _no_store_for(self, run: int, trimmed: int) -> UsageError:
        name = (await self._run(run)).name
        return UsageError(
            f"records of run {name} are in another store ({trimmed:,})", hint="name it with --store (or SHOAL_STORE)"
        )


def _as_stored(run: int, kept: StoredResult) -> StoredRecord:
    return StoredRecord(kept.seq, run << TASK_BITS | kept.task & TASK_NUMBER_MASK, kept.data)
