"""Roster: the runs a member of the fleet works on, looked up now and then, as runs come and go.

Work is asked for by the names of scrapers, so that a run is worked on the moment it begins. While there is
a run under such a name that is not for us, it is asked for by the names of runs instead.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.worker.settler import PASSING

EVERY = 2.0  # seconds after which the list is looked at again while there is work
FRESH = 0.05  # a list so young is fresh
STORE_EVERY = 2.0  # how often the records are counted that wait for the store
MANY = 10_000


class Roster:
    """`fits` says of a run whether we have the code for it; those refused later are left to others."""

    def __init__(
        self,
        queue: Queue,
        fits: Callable[[Run], bool],
        *,
        clock: Callable[[], float],
        names: tuple[str, ...] = (),  # of scrapers; without any, runs are always asked for one by one
        waiting_limit: int = 0,  # records that may wait for the store; 0: there is none
        ended: Callable[[int], None] | None = None,
    ) -> None:
        self._queue = queue
        self._fits = fits
        self._clock = clock
        self._names = names
        self._others = False  # there is a run under one of the names that is not ours
        self._waiting_limit = waiting_limit
        self._ended = ended
        self._refused: set[int] = set()
        self._runs: dict[int, Run] = {}
        self._full: frozenset[int] = frozenset()
        self._looked = self._counted = -1e9

    @property
    def runs(self) -> tuple[Run, ...]:
        """Ours that were not ended when we last looked."""
        return tuple(self._runs.values())

    def known(self, run: int) -> Run | None:
        return self._runs.get(run)

    def refuse(self, run: Run) -> None:
        """Ask for no more work of this run."""
        self._runs.setdefault(run.id, run)
        self._refused.add(run.id)

    async def serves(self, *, fresh: bool) -> tuple[str, ...]:
        age = self._clock() - self._looked
        if age > (FRESH if fresh and not self._by_name else EVERY):
            try:
                await self.look()
            except PASSING:
                if not self._runs:
                    raise
        if self._by_name:
            return self._names
        return tuple(run.name for run in self._runs.values() if self._is_wanted(run.id))

    @property
    def _by_name(self) -> bool:
        return bool(self._names) and not self._others and all(map(self._is_wanted, self._runs))

    def _is_wanted(self, run: int) -> bool:
        return run not in self._refused and run not in self._full

    async def look(self) -> None:
        """See which runs there are now."""
        found = await self._queue.runs(states=("running", "paused"), limit=MANY)
        self._looked = self._clock()
        before, self._runs = self._runs, {run.id: run for run in found if self._fits(run)}
        self._others = any(run.scraper in self._names and run.id not in self._runs for run in found)
        self._refused &= {run.id for run in found}
        if self._ended is not None:
            for gone in before.keys() - self._runs.keys():
                self._ended(gone)
        if self._waiting_limit and self._looked - self._counted > STORE_EVERY:
            self._full = await self._waiting()
            self._counted = self._looked

    async def _waiting(self) -> frozenset[int]:
        """Runs with so many records on their way to the store that no more should be made."""
        full = set()
        for run in self._runs:
            stats = await self._queue.stats(run)
            if stats.records - stats.trimmed > self._waiting_limit:
                full.add(run)
        return frozenset(full)
