"""Relay: carries records from the queue, where settling put them, to a store of their own.

The store moves a run's position in the commit that takes the records, and refuses records that do not
follow that position; only then the queue lets go of them. So any number of relays may run, and one that
dies anywhere leaves neither a lost nor a doubled record.

A server that lost its last seconds gives numbers a second time, to other records. Therefore what lies
below the position is compared with what the store has before the queue lets go of it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec import structs

from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import StoreRefused
from shoal.logs import log
from shoal.queue.base import Queue, StoredRecord
from shoal.runs.queue_identity import has_moved, result_origin
from shoal.runs.result_location import announce_results
from shoal.store.results.base import TASK_NUMBER_MASK, Origin, ResultBackend, StorePosition, TaskRecord

FIRST_BATCH, MAX_BATCH = 100, 1000  # records at a time: before it is known how large they are, and then
MAX_BATCH_BYTES = 4_000_000
MAX_RUNS = 10_000
LATE_RECORDS_WITHIN = 600.0  # seconds after its end in which a run may still bring records
RELIST_EVERY = 60.0  # seconds after which runs that ended are looked at again, of which there are ever more


class Relay:
    def __init__(self, queue: Queue, store: ResultBackend) -> None:
        self._queue = queue
        self._store = store
        self._announced = False
        self._origins: dict[int, Origin] = {}
        self._emptied: dict[int, int] = {}  # runs that ended and are empty, with when that was
        self._active_runs: frozenset[int] = frozenset()  # runs that had not ended when we last looked
        self._ended: list[Run] = []  # those that had, and may still bring records
        self._relist_due = float("-inf")

    async def pending(self, run: Run) -> int:
        """How many of a run's records the store may not have yet; a run is finished when none is left.

        Those of a run that has moved away are not ours to bring.
        """
        waiting = _pending_records(await self._queue.stats(run.id))
        return 0 if waiting and await has_moved(self._queue, run) else waiting

    async def drain(self, run: Run, *, seconds: float = float("inf")) -> int:
        """Carry what waits; says how many records this relay brought. Stops early if another is at it."""
        stats = await self._queue.stats(run.id)
        if not _pending_records(stats) or await has_moved(self._queue, run):
            return 0
        origin = await self._origin(run)
        at = await self._store.position(origin)
        check_same_store(run, stats, at, self._store.label)
        if not self._announced:  # before the queue lets go of anything, so that no reader is left in the dark
            await announce_results(self._queue, self._store)
            self._announced = True
        end, copied, limit, after = time.monotonic() + seconds, 0, FIRST_BATCH, 0
        while records := await self._queue.records(run.id, after=after, limit=limit):
            limit = batch_limit(records)
            already_stored = [record for record in records if record.seq <= at.seq]
            if already_stored and not await self._matches_store(origin, at, already_stored):
                at, after = await self._store.position(origin), 0
                continue
            after = already_stored[-1].seq if already_stored else at.seq
            if new := records[len(already_stored) :]:
                if not await self._store.append(origin, at.seq, new):
                    break
                copied += len(new)
                after = new[-1].seq
                at = structs.replace(at, seq=after)
            await self._queue.trim(run.id, after)
            if time.monotonic() > end:
                break
        return copied

    async def drain_all(self, *, seconds: float = 5.0) -> int:
        """Carry what waits in all runs, also in those that ended, for about so many seconds."""
        end, copied = time.monotonic() + seconds, 0
        refused: StoreRefused | None = None
        now = await self._queue.now()
        for run in await self._runs():
            if self._emptied.get(run.id) == run.changed_at:
                continue
            rest = end - time.monotonic()
            if rest < 0:
                self._relist_due = float("-inf")
                break
            try:
                copied += await self.drain(run, seconds=rest)
            except StoreRefused as error:  # of this run only: the others are not kept waiting
                refused = refused or error
                continue
            if _is_settled(run, now) and not await self.pending(run):
                self._emptied[run.id] = run.changed_at
        if refused:
            raise refused
        return copied

    async def _runs(self) -> list[Run]:
        """Those that go on, and those that ended; of these, all are listed only when there may be others."""
        active = await self._queue.runs(states=("running", "paused"), limit=MAX_RUNS)
        before, self._active_runs = self._active_runs, frozenset(run.id for run in active)
        if not before <= self._active_runs or time.monotonic() >= self._relist_due:
            self._relist_due = time.monotonic() + RELIST_EVERY
            found = await self._queue.runs(limit=MAX_RUNS)
            known = {run.id for run in found}
            self._emptied = {run: when for run, when in self._emptied.items() if run in known}
            self._origins = {run: origin for run, origin in self._origins.items() if run in known}
            self._ended = [run for run in found if self._emptied.get(run.id) != run.changed_at]
        return active + [run for run in self._ended if run.id not in self._active_runs]

    async def _origin(self, run: Run) -> Origin:
        if run.id not in self._origins:
            self._origins[run.id] = await result_origin(self._queue, run)
        return self._origins[run.id]

    async def _matches_store(self, origin: Origin, at: StorePosition, already_stored: Sequence[StoredRecord]) -> bool:
        """Whether the store has these very records; if not, the queue was set back, and they count as new.

        One that the store lacks was removed there by somebody.
        """
        kept = await self._store.read(origin, after=already_stored[0].seq + at.shift - 1, limit=len(already_stored))
        known = {one.seq - at.shift: one for one in kept}
        for record in already_stored:
            one = known.get(record.seq)
            if one is not None and _content(one) != _content(record):
                log("store.set_back", "warning", run=origin.run, seq=record.seq)
                await self._store.rebase(origin, at, record.seq - 1)
                return False
        return True


def _content(record: TaskRecord) -> tuple[int, bytes]:
    return record.task & TASK_NUMBER_MASK, record.data


def check_same_store(run: Run, stats: Stats, at: StorePosition, place: str) -> None:
    """A store that lacks what the queue has let go of is not the one it went to."""
    if at.rows < stats.trimmed:
        raise StoreRefused(
            f"{stats.trimmed:,} records of run {run.name} went to a store, and {place}"
            f" has {at.rows:,} of them: it is another one, or was restored",
            hint="use the store that has them (--store); the others wait in the queue meanwhile",
        )


def _pending_records(stats: Stats) -> int:
    return stats.records - stats.trimmed


def _is_settled(run: Run, now: int) -> bool:
    return run.state in ("finished", "cancelled") and now - run.changed_at > LATE_RECORDS_WITHIN * 1e6


def batch_limit(records: Sequence[StoredRecord]) -> int:
    """How many records of this size make a slice that memory should hold."""
    size = sum(len(record.data) for record in records) // len(records)
    return max(1, min(MAX_BATCH, MAX_BATCH_BYTES // max(1, size)))
