"""Snapshot: the whole fleet at one moment, in a few questions that cost the queue little."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from shoal.config.load import Settings
from shoal.control.history import History
from shoal.control.intake_counts import IntakeCounts, intake_counts
from shoal.control.recent_rates import RunRate, recent_rates
from shoal.core.forecast import Forecast, forecast
from shoal.core.lane import LaneState, WorkerStatus
from shoal.core.run import Run, RunState
from shoal.core.session import SessionState
from shoal.core.stats import Stats, sum_stats
from shoal.queue import document_kinds as kinds
from shoal.queue.base import CacheStats, Queue
from shoal.queue.glance import glance
from shoal.runs.discovery import Discovery
from shoal.runs.host_limits import find_host_limits
from shoal.view.cache import read_stats
from shoal.view.ended_runs import ENDED_STATES, EndedRuns
from shoal.view.rates import RateMeter
from shoal.view.run_state import display_state, filter_live, live_workers_for_run, resume_hint
from shoal.view.scale import ScaleStatus, scale_status
from shoal.view.sessions import needing_person
from shoal.view.status import Status, limiting_factors

MAX_OPEN_RUNS, MAX_ENDED_RUNS, MAX_HOSTS = 200, 20, 50
MAX_COUNTED_RUNS = 2_000  # unfinished ones that are in the totals
DETAILED_RUNS, DETAILED_LANES = 20, 50  # of so many it is worked out what limits them, by so many hosts each
OLDEST_RUNS = 10  # in so many it is looked for what has waited longest
OPEN_STATES: tuple[RunState, ...] = ("running", "paused")
# Seconds that our own looks at a run must reach back to tell its rate: with so many they tell it, with fewer
# only where the queue does not know, and not where they lie further apart than the last.
ENOUGH_SECONDS, MIN_SECONDS, MAX_METERED = 4.0, 0.5, 20.0


class RunSnapshot(msgspec.Struct, frozen=True):
    """A run as it is listed."""

    run: Run
    display_state: str  # for people: running, waiting, stopped, paused, finished, cancelled, moved
    stats: Stats
    rate: float = 0.0  # pages per second lately
    failing: float = 0.0  # failed attempts per second lately
    forecast: Forecast = Forecast(None)
    seeding: bool = False
    workers: int = 0  # alive, that serve it
    # What keeps it from going faster, as status.limiting_factors says it.
    limits: tuple[tuple[str, str], ...] = ()
    hint: str = ""  # how to go on with it where nobody works on it


class Snapshot(msgspec.Struct, frozen=True):
    at: int  # the store's clock
    runs: tuple[RunSnapshot, ...] = ()  # unfinished ones, newest first, then some that ended lately
    totals: Stats = Stats()  # of all runs that are kept
    workers: tuple[WorkerStatus, ...] = ()
    hosts: tuple[LaneState, ...] = ()  # with the most ready work
    parked: tuple[LaneState, ...] = ()
    oldest_at: int = 0  # when the task that has waited longest was added; 0: nothing waits
    rate: float = 0.0
    more_runs: bool = False  # there are more unfinished runs than were looked at
    failing: float = 0.0
    unfinished: int = 0  # runs
    stale_after: float = 60.0  # seconds of silence after which a worker is stale
    worker_memory: int = 0  # bytes that a worker may have
    outbox_limit: int = 0  # records that may wait for a store beside the queue; 0: there is none
    lanes: dict[int, tuple[LaneState, ...]] = {}  # of the runs that were looked at closely
    unfinished_totals: Stats = Stats()
    cache: CacheStats = CacheStats(0, 0)
    scale: ScaleStatus = ScaleStatus()
    intake: IntakeCounts = IntakeCounts()
    sessions: dict[str, SessionState] = {}  # that wait for a person

    @property
    def alive(self) -> list[WorkerStatus]:
        return filter_live(self.workers, self.at, self.stale_after)


class RunMeters(msgspec.Struct):
    """How fast a run was seen to go: its pages, and its failed attempts."""

    pages: RateMeter
    failed: RateMeter

    def rate(self, least: float) -> RunRate | None:
        """None where our looks lie too far apart to tell of now, or by less than so many seconds."""
        if not least <= self.pages.seconds <= MAX_METERED:
            return None
        return RunRate(self.pages.per_second, self.failed.per_second)


class FleetMonitor:
    """Looks at the fleet again and again; what it remembers is how fast things go, and nothing else."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._settings = settings
        self._history = History(queue, stale_after=settings.stale_after)
        self._ended_runs = EndedRuns(queue)
        self._meters: dict[int, RunMeters] = {}
        self._rates: dict[int, RunRate] = {}
        self._ended: dict[tuple[int, int], str] = {}
        self._discovery = Discovery(queue)

    async def snapshot(self) -> Snapshot:
        queue = self._queue
        unfinished = await queue.runs(states=OPEN_STATES, limit=MAX_COUNTED_RUNS)
        ended = await queue.runs(states=ENDED_STATES, limit=MAX_ENDED_RUNS)
        counted = await queue.stats_of([run.id for run in (*unfinished, *ended)])
        at, statuses = await queue.now(), await queue.workers()
        alive = filter_live(statuses, at, self._settings.stale_after)
        known = dict(zip((run.id for run in (*unfinished, *ended)), counted, strict=True))
        await self._update_rates(time.monotonic(), at, [(run, known[run.id]) for run in unfinished])
        sown = {document.name for document in await queue.documents(kinds.SEEDING)}
        lanes = await self._lanes(unfinished, known)
        going = sum_stats([known[run.id] for run in unfinished])
        self._discovery.keep(set(lanes))
        latest = {run.id: known[run.id] for run in ended}
        shown = [
            await self._run_snapshot(run, known[run.id], at, alive, lanes.get(run.id), run.name in sown)
            for run in (*unfinished[:MAX_OPEN_RUNS], *ended)
        ]
        return Snapshot(
            at=at,
            runs=tuple(shown),
            totals=sum_stats([going, await self._ended_runs.total([run.id for run in unfinished], latest)]),
            unfinished_totals=going,
            workers=tuple(statuses),
            hosts=tuple(lane for lane in await queue.lanes(limit=MAX_HOSTS) if lane.ready or lane.in_flight),
            parked=tuple(await queue.lanes(only="parked", limit=MAX_HOSTS)),
            oldest_at=await self._oldest(unfinished, known),
            rate=sum(rate.pages for rate in self._rates.values()),
            more_runs=len(unfinished) > MAX_OPEN_RUNS,
            failing=sum(rate.failed for rate in self._rates.values()),
            unfinished=len(unfinished),
            stale_after=self._settings.stale_after,
            worker_memory=self._settings.worker_memory,
            outbox_limit=self._settings.outbox_limit if self._settings.store else 0,
            lanes=lanes,
            cache=await read_stats(queue),
            scale=await scale_status(queue),
            intake=await intake_counts(queue),
            sessions=await needing_person(queue),
        )

    def rate_of(self, run: int) -> float | None:
        """Pages per second of a run as far as it was looked at; None where nobody knows yet."""
        rate = self._rates.get(run)
        return None if rate is None else rate.pages

    async def _update_rates(self, now: float, at: int, runs: Sequence[tuple[Run, Stats]]) -> None:
        """From our own looks where these are close together, else from what the queue has."""
        self._meters = {run.id: self._meters.get(run.id) or RunMeters(RateMeter(), RateMeter()) for run, _ in runs}
        for run, found in runs:
            self._meters[run.id].pages.add(now, found.done)
            self._meters[run.id].failed.add(now, found.retries + found.failed)
        known = {id: rate for id, meters in self._meters.items() if (rate := meters.rate(ENOUGH_SECONDS)) is not None}
        unknown = [(run, found) for run, found in runs if run.id not in known and found.open]
        known |= await recent_rates(self._queue, self._history, unknown, at) if unknown else {}
        for run, _ in unknown:
            if run.id not in known and (rate := self._meters[run.id].rate(MIN_SECONDS)) is not None:
                known[run.id] = rate
        self._rates = known

    async def _lanes(self, runs: Sequence[Run], known: dict[int, Stats]) -> dict[int, tuple[LaneState, ...]]:
        busy = [run.id for run in runs if run.state == "running" and known[run.id].open][:DETAILED_RUNS]
        return {run: tuple(await self._queue.lanes(run=run, limit=DETAILED_LANES)) for run in busy}

    async def _run_snapshot(
        self,
        run: Run,
        stats: Stats,
        at: int,
        alive: list[WorkerStatus],
        lanes: tuple[LaneState, ...] | None,
        seeding: bool,
    ) -> RunSnapshot:
        queue, settings = self._queue, self._settings
        if run.state in ENDED_STATES:
            return RunSnapshot(run, await self._end_state(run), stats, forecast=Forecast(0.0))
        rates = self._rates.get(run.id) or RunRate(0.0, 0.0)
        rate = rates.pages
        workers = await live_workers_for_run(queue, settings, run, alive)
        state = await display_state(queue, settings, run, alive)
        found_at = await self._discovery.last_at(run, stats) if lanes is not None else 0
        ahead = forecast(
            stats, lanes or (), rate=rate, now=at, max_pages=run.max_pages, found_at=found_at, seeding=seeding
        )
        found = Status(
            run=run, state=state, stats=stats, now=at, lanes=list(lanes or ()), workers=workers, dead=[],
            again=[], rate=rate, seeding=seeding, hint=resume_hint(settings, run), forecast=ahead,
            more_lanes=lanes is not None and len(lanes) >= DETAILED_LANES,
            host_limits=await find_host_limits(queue, settings, run, lanes or (), at),
        )  # fmt: skip
        return RunSnapshot(
            run=run,
            display_state=state,
            stats=stats,
            rate=rate,
            failing=rates.failed,
            forecast=ahead,
            seeding=seeding and run.state == "running",
            workers=len(workers),
            limits=tuple(limiting_factors(found)),
            hint=found.hint,
        )

    async def _end_state(self, run: Run) -> str:
        """How a run ended; whether it has moved is asked once."""
        key = run.id, run.changed_at
        if key not in self._ended:
            if len(self._ended) > 10 * MAX_ENDED_RUNS:
                self._ended.clear()
            self._ended[key] = await display_state(self._queue, self._settings, run, ())
        return self._ended[key]

    async def _oldest(self, runs: Sequence[Run], known: dict[int, Stats]) -> int:
        """When what waits longest was added: older runs have older tasks."""
        waiting = [
            run.id for run in reversed(runs) if run.state == "running" and known[run.id].ready > known[run.id].delayed
        ]
        first = [await glance(self._queue.list_tasks(run, state="ready", limit=1)) for run in waiting[:OLDEST_RUNS]]
        return min((views[0].added_at for views in first if views), default=0)


async def take_snapshot(queue: Queue, settings: Settings) -> Snapshot:
    """One look."""
    return await FleetMonitor(queue, settings).snapshot()
