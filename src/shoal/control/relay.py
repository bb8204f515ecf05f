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

from shoal.control.home import left, origin_of
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.errors import StoreRefused
from shoal.logs import log
from shoal.queue.base import Queue, StoredRecord
from shoal.store.results import NUMBER, Origin, Position, ResultStore

FIRST, MOST = 100, 1000  # records at a time: before it is known how large they are, and then
BYTES = 4_000_000
MANY = 10_000
LATE = 600.0  # seconds after its end in which a run may still bring records of pages that were under way
ALL_EVERY = 60.0  # seconds after which runs that ended are looked at again, of which there are ever more


class Relay:
    def __init__(self, queue: Queue, store: ResultStore) -> None:
        self._queue = queue
        self._store = store
        self._origins: dict[int, Origin] = {}
        self._emptied: dict[int, int] = {}  # runs that ended and are empty, with when that was
        self._going: frozenset[int] = frozenset()  # runs that had not ended when we last looked
        self._ended: list[Run] = []  # those that had, and may still bring records
        self._all_due = float("-inf")

    async def pending(self, run: Run) -> int:
        """How many of a run's records the store may not have yet; a run is finished when none is left.

        Those of a run that has moved away are not ours to bring.
        """
        waiting = _waiting(await self._queue.stats(run.id))
        return 0 if waiting and await left(self._queue, run) else waiting

    async def drain(self, run: Run, *, seconds: float = float("inf")) -> int:
        """Carry what waits; says how many records this relay brought. Stops early if another is at it."""
        stats = await self._queue.stats(run.id)
        if not _waiting(stats) or await left(self._queue, run):
            return 0
        origin = await self._origin(run)
        at = await self._store.position(origin)
        refuse_other(run, stats, at, self._store.place)
        end, brought, limit, after = time.monotonic() + seconds, 0, FIRST, 0
        while records := await self._queue.records(run.id, after=after, limit=limit):
            limit = fitting(records)
            held = [record for record in records if record.seq <= at.seq]
            if held and not await self._same(origin, at, held):
                at, after = await self._store.position(origin), 0
                continue
            after = held[-1].seq if held else at.seq
            if new := records[len(held) :]:
                if not await self._store.append(origin, at.seq, new):
                    break
                brought += len(new)
                after = new[-1].seq
                at = structs.replace(at, seq=after)
            await self._queue.trim(run.id, after)
            if time.monotonic() > end:
                break
        return brought

    async def drain_all(self, *, seconds: float = 5.0) -> int:
        """Carry what waits in all runs, also in those that ended, for about so many seconds."""
        end, brought = time.monotonic() + seconds, 0
        refused: StoreRefused | None = None
        now = await self._queue.now()
        for run in await self._runs():
            if self._emptied.get(run.id) == run.changed_at:
                continue
            rest = end - time.monotonic()
            if rest < 0:
                self._all_due = float("-inf")
                break
            try:
                brought += await self.drain(run, seconds=rest)
            except StoreRefused as error:  # of this run only: the others are not kept waiting
                refused = refused or error
                continue
            if _over(run, now) and not await self.pending(run):
                self._emptied[run.id] = run.changed_at
        if refused:
            raise refused
        return brought

    async def _runs(self) -> list[Run]:
        """Those that go on, and those that ended; of these, all are listed only when there may be others."""
        going = await self._queue.runs(states=("running", "paused"), limit=MANY)
        before, self._going = self._going, frozenset(run.id for run in going)
        if not before <= self._going or time.monotonic() >= self._all_due:
            self._all_due = time.monotonic() + ALL_EVERY
            found = await self._queue.runs(limit=MANY)
            known = {run.id for run in found}
            self._emptied = {run: when for run, when in self._emptied.items() if run in known}
            self._origins = {run: origin for run, origin in self._origins.items() if run in known}
            self._ended = [run for run in found if self._emptied.get(run.id) != run.changed_at]
        return going + [run for run in self._ended if run.id not in self._going]

    async def _origin(self, run: Run) -> Origin:
        if run.id not in self._origins:
            self._origins[run.id] = await origin_of(self._queue, run)
        return self._origins[run.id]

    async def _same(self, origin: Origin, at: Position, held: Sequence[StoredRecord]) -> bool:
        """Whether the store has these very records; if not, the queue was set back, and they count as new.

        One that the store lacks was removed there by somebody.
        """
        kept = await self._store.read(origin, after=held[0].seq + at.shift - 1, limit=len(held))
        known = {one.seq - at.shift: one for one in kept}
        for record in held:
            one = known.get(record.seq)
            if one is not None and (one.task & NUMBER, one.data) != (record.task & NUMBER, record.data):
                log("store.set_back", "warning", run=origin.run, seq=record.seq)
                await self._store.rebase(origin, at, record.seq - 1)
                return False
        return True


def refuse_other(run: Run, stats: Stats, at: Position, place: str) -> None:
    """A store that lacks what the queue has let go of is not the one it went to."""
    if at.rows < stats.trimmed:
        raise StoreRefused(
            f"{stats.trimmed:,} records of run {run.name} went to a store, and {place}"
            f" has {at.rows:,} of them: it is another one, or was set back",
            hint="name the store that has them with --store; the others wait in the queue meanwhile",
        )


def _waiting(stats: Stats) -> int:
    return stats.records - stats.trimmed


def _over(run: Run, now: int) -> bool:
    return run.state in ("finished", "cancelled") and now - run.changed_at > LATE * 1e6


def fitting(records: Sequence[StoredRecord]) -> int:
    """How many records of this size make a slice that memory should hold."""
    size = sum(len(record.data) for record in records) // len(records)
    return max(1, min(MOST, BYTES // max(1, size)))
