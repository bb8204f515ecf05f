"""RunList: the runs that a worker of the fleet serves, refreshed at intervals, as runs come and go.

Tasks are claimed by the names of scrapers, so that a run is worked on the moment it begins, and by the names
of runs with templates. While there is a run under such a name that is not for us, they are claimed by the names of
runs only.
"""

from __future__ import annotations

from collections.abc import Callable

from shoal.core.run import Run
from shoal.queue.base import Queue
from shoal.queue.reconnect import TRANSIENT_ERRORS

REFRESH_INTERVAL = 2.0  # seconds after which the list is looked at again while there is work
FRESH_AGE = 0.05  # a list so young is fresh
BACKLOG_INTERVAL = 2.0  # how often the records are counted that wait for the store
MAX_RUNS = 10_000


class RunList:
    """`can_serve` says whether we have the code for a run; those refused later are left to others."""

    def __init__(
        self,
        queue: Queue,
        can_serve: Callable[[Run], bool],
        *,
        clock: Callable[[], float],
        scraper_names: tuple[str, ...] = (),  # without any, runs are always claimed one by one
        store_backlog_limit: int = 0,  # records that may wait for the store; 0: there is none
        on_run_ended: Callable[[int], None] | None = None,
    ) -> None:
        self._queue = queue
        self._can_serve = can_serve
        self._clock = clock
        self._scraper_names = scraper_names
        self._has_foreign_runs = False  # one of the scrapers has a run that is not ours
        self._store_backlog_limit = store_backlog_limit
        self._on_run_ended = on_run_ended
        self._refused: set[int] = set()
        self._runs: dict[int, Run] = {}
        self._scraper_and_run_names = scraper_names
        self._backlogged: frozenset[int] = frozenset()
        self._refreshed_at = self._backlog_checked_at = -1e9

    @property
    def runs(self) -> tuple[Run, ...]:
        """Ours that were not ended when we last looked."""
        return tuple(self._runs.values())

    def find(self, run: int) -> Run | None:
        return self._runs.get(run)

    def refuse(self, run: Run) -> None:
        """Ask for no more work of this run."""
        self._runs.setdefault(run.id, run)
        self._refused.add(run.id)

    async def names_to_claim(self, *, fresh: bool) -> tuple[str, ...]:
        age = self._clock() - self._refreshed_at
        if age > (FRESH_AGE if fresh and not self._claims_by_scraper else REFRESH_INTERVAL):
            try:
                await self.refresh()
            except TRANSIENT_ERRORS:
                if not self._runs:
                    raise
        if self._claims_by_scraper:
            return self._scraper_and_run_names
        return tuple(run.name for run in self._runs.values() if self._is_claimable(run.id))

    @property
    def _claims_by_scraper(self) -> bool:
        return bool(self._scraper_names) and not self._has_foreign_runs and all(map(self._is_claimable, self._runs))

    def _is_claimable(self, run: int) -> bool:
        return run not in self._refused and run not in self._backlogged

    async def refresh(self) -> None:
        """See which runs there are now."""
        found = await self._queue.runs(states=("running", "paused"), limit=MAX_RUNS)
        self._refreshed_at = self._clock()
        before, self._runs = self._runs, {run.id: run for run in found if self._can_serve(run)}
        # Runs with templates have names of their own.
        others = (run.name for run in self.runs if run.scraper not in self._scraper_names)
        self._scraper_and_run_names = (*self._scraper_names, *others)
        self._has_foreign_runs = any(run.scraper in self._scraper_names and run.id not in self._runs for run in found)
        self._refused &= {run.id for run in found}
        if self._on_run_ended is not None:
            for gone in before.keys() - self._runs.keys():
                self._on_run_ended(gone)
        if self._store_backlog_limit and self._refreshed_at - self._backlog_checked_at > BACKLOG_INTERVAL:
            self._backlogged = await self._runs_over_backlog()
            self._backlog_checked_at = self._refreshed_at

    async def _runs_over_backlog(self) -> frozenset[int]:
        """Runs with so many records on their way to the store that no more should be made."""
        backlogged = set()
        for run in self._runs:
            stats = await self._queue.stats(run)
            if stats.records - stats.trimmed > self._store_backlog_limit:
                backlogged.add(run)
        return frozenset(backlogged)
