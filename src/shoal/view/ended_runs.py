"""Ended runs: the sum of their accounts, so that totals do not fall when a run ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from shoal.core.run import RunState
from shoal.core.stats import Stats, sum_stats
from shoal.queue.base import Queue

ENDED_STATES: tuple[RunState, ...] = ("finished", "cancelled")
MAX_RUNS = 10_000  # the newest that ended; older ones are left out
BATCH_SIZE = 200  # runs in one question, so that others get their turn
REFRESH_INTERVAL = 300.0  # seconds until all are counted anew: some may have been removed


class EndedRuns:
    """Remembers the accounts of runs that ended, which hardly change any more."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._accounts: dict[int, Stats] = {}
        self._unfinished: set[int] = set()
        self._refresh_at = 0.0

    async def total(self, unfinished: Sequence[int], latest: Mapping[int, Stats]) -> Stats:
        """The sum over all that have ended. latest: accounts of some of them that were just read."""
        if time.monotonic() >= self._refresh_at:
            self._accounts = await self._read_all()
            self._refresh_at = time.monotonic() + REFRESH_INTERVAL
        just_ended = [id for id in self._unfinished.difference(unfinished) if id not in latest]
        self._unfinished = set(unfinished)
        if just_ended:
            self._accounts.update(zip(just_ended, await self._queue.stats_of(just_ended), strict=True))
        self._accounts.update(latest)
        for id in self._unfinished & self._accounts.keys():
            del self._accounts[id]  # revived: it is counted among the others
        return sum_stats(list(self._accounts.values()))

    async def _read_all(self) -> dict[int, Stats]:
        found: dict[int, Stats] = {}
        before = 0
        while len(found) < MAX_RUNS:
            runs = await self._queue.runs(states=ENDED_STATES, before=before, limit=BATCH_SIZE)
            numbers = [run.id for run in runs]
            found.update(zip(numbers, await self._queue.stats_of(numbers), strict=True))
            if len(runs) < BATCH_SIZE:
                break
            before = numbers[-1]
            await asyncio.sleep(0)
        return found
