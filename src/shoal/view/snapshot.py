"""Snapshot: the whole fleet at one moment, in a few questions that cost the queue little."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from shoal.config import Settings
from shoal.control.runs import SEEDING
from shoal.core.forecast import Forecast, forecast
from shoal.core.lane import LaneState, Mark
from shoal.core.run import Run, RunState
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.view.rates import Rates
from shoal.view.standing import again_hint, living, standing, still_alive
from shoal.view.status import Status, limits

OPEN_RUNS, ENDED_RUNS, HOSTS = 200, 20, 50
COUNTED_RUNS = 2_000  # unfinished ones that are in the totals
CLOSE_RUNS, CLOSE_LANES = 20, 50  # of so many it is worked out what limits them, by so many hosts each
OLD_RUNS = 10  # in so many it is looked for what has waited longest
OPEN: tuple[RunState, ...] = ("running", "paused")
ENDED: tuple[RunState, ...] = ("finished", "cancelled")


class RunLook(msgspec.Struct, frozen=True):
    """A run as it is listed."""

    run: Run
    standing: str  # for people: running, waiting, stopped, paused, finished, cancelled, moved
    stats: Stats
    rate: float = 0.0  # pages per second lately
    failing: float = 0.0  # failed attempts per second lately
    ahead: Forecast = Forecast(None)
    seeding: bool = False
    workers: int = 0  # alive, that serve it
    limits: tuple[tuple[str, str], ...] = ()  # what keeps it from going faster, as status.limits says it
    hint: str = ""  # how to go on with it where nobody works on it


class Snapshot(msgspec.Struct, frozen=True):
    at: int  # the store's clock
    runs: tuple[RunLook, ...] = ()  # unfinished ones, newest first, then some that ended lately
    totals: Stats = Stats()  # of the unfinished
    workers: tuple[Mark, ...] = ()
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

    @property
    def alive(self) -> list[Mark]:
        return still_alive(self.workers, self.at, self.stale_after)


class Pulse(msgspec.Struct):
    """How fast a run goes: its pages, and its failed attempts."""

    pages: Rates
    failed: Rates


class Lookout:
    """Looks at the fleet again and again; what it remembers is how fast things go, and nothing else."""

    def __init__(self, queue: Queue, settings: Settings) -> None:
        self._queue = queue
        self._settings = settings
        self._pulses: dict[int, Pulse] = {}
        self._ended: dict[tuple[int, int], str] = {}

    async def look(self) -> Snapshot:
        queue = self._queue
        unfinished = await queue.runs(states=OPEN, limit=COUNTED_RUNS)
        ended = await queue.runs(states=ENDED, limit=ENDED_RUNS)
        counted = await queue.stats_of([run.id for run in (*unfinished, *ended)])
        at, marks = await queue.now(), await queue.workers()
        alive = still_alive(marks, at, self._settings.stale_after)
        known = dict(zip((run.id for run in (*unfinished, *ended)), counted, strict=True))
        self._note(time.monotonic(), {run.id: known[run.id] for run in unfinished})
        sown = {paper.name for paper in await queue.papers(SEEDING)}
        lanes = await self._lanes(unfinished, known)
        shown = [
            await self._listed(run, known[run.id], at, alive, lanes.get(run.id), run.name in sown)
            for run in (*unfinished[:OPEN_RUNS], *ended)
        ]
        return Snapshot(
            at=at,
            runs=tuple(shown),
            totals=together([known[run.id] for run in unfinished]),
            workers=tuple(marks),
            hosts=tuple(lane for lane in await queue.lanes(limit=HOSTS) if lane.ready or lane.in_flight),
            parked=tuple(await queue.lanes(only="parked", limit=HOSTS)),
            oldest_at=await self._oldest(unfinished, known),
            rate=sum(pulse.pages.pages for pulse in self._pulses.values()),
            more_runs=len(unfinished) > OPEN_RUNS,
            failing=sum(pulse.failed.pages for pulse in self._pulses.values()),
            unfinished=len(unfinished),
            stale_after=self._settings.stale_after,
            worker_memory=self._settings.worker_memory,
            outbox_limit=self._settings.outbox_limit if self._settings.store else 0,
            lanes=lanes,
        )

    def rate_of(self, run: int) -> float | None:
        """Pages per second of a run as far as it was looked at; None where nobody knows yet."""
        pulse = self._pulses.get(run)
        return pulse.pages.pages if pulse is not None and pulse.pages.known else None

    def _note(self, now: float, stats: dict[int, Stats]) -> None:
        self._pulses = {run: self._pulses.get(run) or Pulse(Rates(), Rates()) for run in stats}
        for run, found in stats.items():
            self._pulses[run].pages.note(now, found.done)
            self._pulses[run].failed.note(now, found.retries + found.dead)

    async def _lanes(self, runs: Sequence[Run], known: dict[int, Stats]) -> dict[int, tuple[LaneState, ...]]:
        busy = [run.id for run in runs if run.state == "running" and known[run.id].open][:CLOSE_RUNS]
        return {run: tuple(await self._queue.lanes(run=run, limit=CLOSE_LANES)) for run in busy}

    async def _listed(
        self,
        run: Run,
        stats: Stats,
        at: int,
        alive: list[Mark],
        lanes: tuple[LaneState, ...] | None,
        seeding: bool,
    ) -> RunLook:
        queue, settings = self._queue, self._settings
        if run.state in ENDED:
            return RunLook(run, await self._end(run), stats, ahead=Forecast(0.0))
        pulse = self._pulses[run.id]
        rate = pulse.pages.pages
        workers = await living(queue, settings, run, alive)
        state = await standing(queue, settings, run, alive)
        ahead = forecast(stats, lanes or (), rate=rate, now=at, max_pages=run.max_pages)
        found = Status(
            run=run, state=state, stats=stats, now=at, lanes=list(lanes or ()), workers=workers, dead=[],
            again=[], rate=rate, seeding=seeding, hint=again_hint(settings, run), ahead=ahead,
            more_lanes=lanes is not None and len(lanes) >= CLOSE_LANES,
        )  # fmt: skip
        return RunLook(
            run=run,
            standing=state,
            stats=stats,
            rate=rate,
            failing=pulse.failed.pages,
            ahead=ahead,
            seeding=seeding and run.state == "running",
            workers=len(workers),
            limits=tuple(limits(found)),
            hint=found.hint,
        )

    async def _end(self, run: Run) -> str:
        """How a run ended; whether it has moved is asked once."""
        key = run.id, run.changed_at
        if key not in self._ended:
            if len(self._ended) > 10 * ENDED_RUNS:
                self._ended.clear()
            self._ended[key] = await standing(self._queue, self._settings, run, ())
        return self._ended[key]

    async def _oldest(self, runs: Sequence[Run], known: dict[int, Stats]) -> int:
        """When what waits longest was added: older runs have older tasks."""
        waiting = [
            run.id
            for run in reversed(runs)
            if run.state == "running" and known[run.id].ready > known[run.id].delayed
        ]
        first = [await self._queue.look(run, state="ready", limit=1) for run in waiting[:OLD_RUNS]]
        return min((views[0].added_at for views in first if views), default=0)


async def look(queue: Queue, settings: Settings) -> Snapshot:
    """One look. Rates need two: see Lookout."""
    return await Lookout(queue, settings).look()


SUMS = tuple(name for name in Stats.__struct_fields__ if name != "skipped")


def together(accounts: Sequence[Stats]) -> Stats:
    """The accounts of several runs in one."""
    skipped: dict[str, int] = {}
    for one in accounts:
        for why, number in one.skipped.items():
            skipped[why] = skipped.get(why, 0) + number
    return Stats(**{name: sum(getattr(one, name) for one in accounts) for name in SUMS}, skipped=skipped)
