"""Free runs: those whose tasks need no pace, so that they may be published ahead, one task per message."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from shoal.config.run_settings import SETTINGS_KEY
from shoal.core.route import read_route
from shoal.core.run import Run, RunState
from shoal.core.typed_task import TYPE_PREFIX
from shoal.errors import UsageError
from shoal.queue.base import Queue
from shoal.runs.identity import is_server_run, is_single_process

REFRESH_SECONDS = 0.5
PACED_SECONDS = 60.0  # for which a run is left to claims after one of its tasks had a pace after all
MAX_RUNS = 2_000
MAX_RULES = 10_000  # that are remembered: runs are looked at often
RUNNING: tuple[RunState, ...] = ("running",)


def is_free(run: Run) -> bool:
    """Whether a run asks for no delay and no limit at all, by no rule either; typed tasks do so of themselves."""
    if is_single_process(run) or is_server_run(run):
        return False
    if run.scraper.startswith(TYPE_PREFIX):
        return True
    given = run.spec.get(SETTINGS_KEY)
    if not isinstance(given, dict) or given.get("rate"):
        return False
    if given.get("delay") != 0 or given.get("in_flight") != 0:
        return False
    rules = given.get("routes") or []
    return isinstance(rules, list) and all(isinstance(line, str) and _is_carried(line) for line in rules)


@lru_cache(maxsize=MAX_RULES)
def _is_carried(rule: str) -> bool:
    """Whether messages can bring what a rule is for: its priority, TTL and acknowledgement, on hosts without a pace."""
    try:
        route = read_route(rule)
    except UsageError:  # of another version: claims bring it
        return False
    return not (route.needs or route.session or route.spacing or route.in_flight)


class FreeRuns:
    def __init__(self, ledger: Queue) -> None:
        self._ledger = ledger
        self._runs: tuple[Run, ...] = ()
        self._refreshed_at = float("-inf")
        self._paced_until: dict[int, float] = {}
        self._now = 0.0

    async def refresh(self, now: float) -> tuple[Run, ...]:
        """The free runs that go on, as they were half a second ago at most."""
        self._now = now
        if now - self._refreshed_at >= REFRESH_SECONDS:
            running = await self._ledger.runs(states=RUNNING, limit=MAX_RUNS)
            self._runs = tuple(run for run in running if is_free(run))
            self._refreshed_at = now
            self._paced_until = {run: until for run, until in self._paced_until.items() if until > now}
        return self.current

    def forget(self) -> None:
        """Runs have changed: the next look is at the ledger."""
        self._refreshed_at = float("-inf")

    @property
    def current(self) -> tuple[Run, ...]:
        return tuple(run for run in self._runs if run.id not in self._paced_until)

    @property
    def all(self) -> tuple[Run, ...]:
        """Also those that are left to claims for now: some of their tasks may have been published."""
        return self._runs

    @property
    def scrapers(self) -> frozenset[str]:
        return frozenset(run.scraper for run in self.current)

    def note_pace(self, run: int) -> None:
        """A task of it came with a pace: another run has slowed its host."""
        self._paced_until[run] = self._now + PACED_SECONDS

    def without(self, serves: Collection[str] | None, every: Collection[Run]) -> Collection[str] | None:
        """The names of a claim without free scrapers, whose tasks come by messages; `every`: all runs that go on."""
        free = {run.scraper for run in self.current}
        if not free or (serves is not None and not free.intersection(serves)):
            return serves
        carried = {run.id for run in self.current}
        others = [
            run.name
            for run in every
            if run.id not in carried and (serves is None or run.name in serves or run.scraper in serves)
        ]
        kept = () if serves is None else (name for name in serves if name not in free)
        return tuple({*others, *kept})
