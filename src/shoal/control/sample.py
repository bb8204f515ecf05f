"""Sample: what a fleet did between two looks, and how it stood at the second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from shoal.control.runs import HERE, here
from shoal.core.figures import Figures, LaneFigures, buckets_plus, counts_plus, decode, plus, since
from shoal.core.lane import LaneState, Mark
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.worker.farewell import KEPT, PLACES, Farewell

RUNS, HOSTS, WORKERS = 50, 30, 64  # in one sample: the busiest
BASE_WORKERS = 1_000  # whose figures are compared with those before; of others only the pages are known
BASE_LANES = 60  # hosts of a worker that are remembered
WITH_LANES = 256  # workers of which they are
ENDED = PLACES * KEPT  # workers that ended and are remembered as counted: as many as can have left a farewell
ENDED_FOR = 600.0  # seconds; longer while it or its farewell is still there
BASE_ENDED = 50  # runs that ended and may go on again
YOUNG = 30.0  # seconds: what is new and no older than this has all its counts from now


class RunPoint(msgspec.Struct, array_like=True, gc=False):
    """One run: what it did, then how it stood."""

    done: int = 0
    dead: int = 0
    retries: int = 0
    records: int = 0
    bytes: int = 0
    ready: int = 0  # without delayed
    delayed: int = 0
    leased: int = 0
    claimable: int = 0


class HostPoint(msgspec.Struct, array_like=True, gc=False):
    done: int = 0
    failed: int = 0
    seconds: float = 0.0
    bytes: int = 0
    ready: int = 0


class WorkerPoint(msgspec.Struct, array_like=True, gc=False):
    done: int = 0
    failed: int = 0
    memory: int = 0
    leased: int = 0
    lag: float = 0.0


class Sample(msgspec.Struct, omit_defaults=True):
    at: int  # seconds
    span: float = 0.0  # seconds it speaks of; 0: nothing is known of before
    done: int = 0
    dead: int = 0
    retries: int = 0
    records: int = 0
    bytes: int = 0
    lost: int = 0
    stale: int = 0
    failed: dict[str, int] = {}  # attempts, by class of error
    took: list[int] = []  # attempts by seconds, as in core.figures.SECONDS
    took_sum: float = 0.0
    asks: int = 0  # questions to the queue, and the seconds they took
    ask_seconds: float = 0.0
    ready: int = 0  # without delayed
    held: int = 0  # of these, so many wait for their host's turn
    delayed: int = 0
    leased: int = 0
    unfinished: int = 0  # runs
    workers: dict[str, int] = {}  # of the fleet, by state
    rooms: int = 0  # processes of control rooms, which work on runs that were left to these
    own: int = 0  # attempts at pages of such runs; they are in the sums as well
    memory: int = 0
    most_memory: int = 0  # of one worker
    lag: float = 0.0
    runs: dict[str, RunPoint] = {}
    hosts: dict[str, HostPoint] = {}
    by_worker: dict[str, WorkerPoint] = {}


P = TypeVar("P", RunPoint, HostPoint, WorkerPoint)


class RunBase(msgspec.Struct, array_like=True, gc=False):
    """What a run had when it was last looked at."""

    name: str
    done: int = 0
    dead: int = 0
    retries: int = 0
    records: int = 0
    bytes: int = 0
    lost: int = 0
    stale: int = 0
    open: bool = True
    own: bool = False  # it was left to control rooms


class WorkerBase(msgspec.Struct, array_like=True, gc=False):
    """What a worker had counted when it was last looked at; one that started anew counts from 0."""

    started_at: int
    done: int = 0
    failed: int = 0
    figures: Figures = msgspec.field(default_factory=Figures)


class Base(msgspec.Struct):
    """What the next sample is measured against."""

    at: float = 0.0  # seconds; 0: there was none
    runs: dict[int, RunBase] = {}
    workers: dict[str, WorkerBase] = {}
    ended: dict[str, int] = {}  # workers whose farewell is counted, and since when
    total: Figures = msgspec.field(default_factory=Figures)  # all that was ever counted


class Sight(msgspec.Struct):
    """What was seen in one look."""

    now: int  # the store's clock
    runs: Sequence[tuple[Run, Stats]]  # unfinished ones, and those that ended since
    marks: Sequence[Mark]  # of those alive; looked at before the farewells, so that nobody is in neither
    states: Mapping[str, int]  # workers of the fleet by state
    lanes: Sequence[LaneState] = ()
    farewells: Sequence[Farewell] = ()
    silent: Sequence[str] = ()  # workers that have not been heard of for long; they may come back


COUNTS = ("done", "dead", "retries", "records", "bytes", "lost", "stale")
POINTS = ("done", "dead", "retries", "records", "bytes")


def measure(base: Base, sight: Sight) -> tuple[Sample, Base]:
    """What happened since the base, and the base of the next."""
    at = sight.now / 1e6
    made = Sample(int(at), span=round(at - base.at, 1) if base.at else 0.0)
    found = list(lives(base, sight.now, sight.marks, sight.farewells))
    after = Base(at, ended=_ended(base, sight), total=total(base, found))
    _runs(made, base, after, sight, base.at or at - YOUNG)
    _workers(made, after, sight, found)
    for id in sight.silent:
        if id in base.workers and len(after.workers) < BASE_WORKERS:
            after.workers.setdefault(id, base.workers[id])
    return made, after


def total(base: Base, found: Iterable[Life]) -> Figures:
    """All that workers have ever counted; it begins with what those of the first look had by then."""
    made, alive = base.total, 0
    for life in found:
        alive += life.mark is not None
        if life.mark is None or alive <= BASE_WORKERS:
            made = plus(made, life.grown if base.at else life.now.figures)
            made.lag, made.lanes = 0.0, {}
    return made


class Life(msgspec.Struct, gc=False):
    """A worker as a look finds it: what it has counted, and what of that is known already."""

    id: str
    now: WorkerBase
    was: WorkerBase
    mark: Mark | None = None  # None: it has ended
    grown: Figures = msgspec.field(default_factory=Figures)

    def __post_init__(self) -> None:
        self.grown = since(self.was.figures, self.now.figures)


def lives(
    base: Base, now: int, marks: Iterable[Mark], farewells: Sequence[Farewell], *, lanes: int = WITH_LANES
) -> Iterator[Life]:
    """Everybody once: whoever has left a farewell is told of by that alone, until it is counted.

    lanes: so many of those alive with their hosts, which takes the most time.
    """
    # It may have begun to count before it was first heard of.
    young = base.at - YOUNG if base.at else now / 1e6 - YOUNG
    gone = base.ended.keys() | {one.id for one in farewells}
    for place, mark in enumerate(marks):
        if mark.id in gone:
            continue
        found = WorkerBase(mark.started_at, mark.done, mark.failed, _kept(decode(mark.figures)))
        was = base.workers.get(mark.id)
        if was is None or was.started_at != mark.started_at:
            new = was is not None or mark.started_at / 1e6 >= young
            was = WorkerBase(mark.started_at) if new else found
        if place >= lanes:
            found.figures.lanes = {}
        yield Life(mark.id, found, was, mark)
    for one in farewells:
        if one.id not in base.ended:
            found = WorkerBase(one.started_at, one.done, one.failed, _kept(one.figures))
            new = one.started_at / 1e6 >= young
            was = base.workers.get(one.id) or (WorkerBase(one.started_at) if new else found)
            yield Life(one.id, found, was)


def _ended(base: Base, sight: Sight) -> dict[str, int]:
    """Whoever is still there would else be counted anew."""
    now, left = sight.now // 1_000_000, [one.id for one in sight.farewells]
    there = {*left, *(mark.id for mark in sight.marks)}
    kept = {id: at for id, at in base.ended.items() if now - at < ENDED_FOR or id in there}
    kept = {**dict.fromkeys(left, now), **kept}
    return dict(islice(kept.items(), ENDED))


def _runs(made: Sample, base: Base, after: Base, sight: Sight, before: float) -> None:
    points: dict[str, RunPoint] = {}
    ended = 0
    for run, stats in sight.runs:
        now = RunBase(
            run.name, open=_open(run), own=here(run), **{name: getattr(stats, name) for name in COUNTS}
        )
        was = base.runs.get(run.id)
        if was is None:
            was = RunBase(run.name) if run.created_at / 1e6 >= before else now
        grown = {name: max(0, getattr(now, name) - getattr(was, name)) for name in COUNTS}
        for name, number in grown.items():
            setattr(made, name, getattr(made, name) + number)
        if now.own:
            made.own += grown["done"] + grown["retries"] + grown["dead"]
        ended += not now.open
        if now.open or ended <= BASE_ENDED:
            after.runs[run.id] = now
        if now.open:
            waiting = stats.ready - stats.delayed
            made.ready += waiting
            made.held += max(0, waiting - stats.claimable)
            made.delayed += stats.delayed
            made.leased += stats.leased
            made.unfinished += 1
        if now.open or any(grown.values()):
            point = RunPoint(**{name: grown[name] for name in POINTS})
            if now.open:
                point.ready, point.delayed = stats.ready - stats.delayed, stats.delayed
                point.leased, point.claimable = stats.leased, stats.claimable
            points[run.name] = point
    made.runs = _most(points, RUNS, _busy_run)


def _open(run: Run) -> bool:
    return run.state in ("running", "paused")


def _workers(made: Sample, after: Base, sight: Sight, found: Iterable[Life]) -> None:
    made.workers = {state: number for state, number in sight.states.items() if number}
    made.rooms = sum(HERE in mark.serves for mark in sight.marks)
    points: dict[str, WorkerPoint] = {}
    lanes: dict[str, HostPoint] = {}
    for life in found:
        now, was, mark = life.now, life.was, life.mark
        if mark is None or len(after.workers) < BASE_WORKERS:
            grown = life.grown
            made.failed = counts_plus(made.failed, grown.failed)
            made.took = buckets_plus(made.took, grown.took)
            made.took_sum = round(made.took_sum + grown.took_sum, 3)
            made.asks += grown.asks
            made.ask_seconds = round(made.ask_seconds + grown.ask_seconds, 3)
            for name, lane in grown.lanes.items():
                _add_lane(lanes, name, lane)
            if mark is not None:
                _remember(after, life)
        point = points[life.id] = WorkerPoint(max(0, now.done - was.done), max(0, now.failed - was.failed))
        if mark is not None:
            point.memory, point.leased, point.lag = mark.memory, mark.leased, round(now.figures.lag, 4)
            made.memory += mark.memory
            made.most_memory = max(made.most_memory, mark.memory)
            made.lag = max(made.lag, now.figures.lag)
    for lane_state in sight.lanes:
        if lane_state.ready or lane_state.name in lanes:
            lanes.setdefault(lane_state.name, HostPoint()).ready = lane_state.ready
    made.hosts = _most(lanes, HOSTS, _busy_host)
    made.by_worker = _most(points, WORKERS, _busy_worker)


def _remember(after: Base, life: Life) -> None:
    """What the next look at this worker is compared with."""
    told = life.was.figures.lanes | life.now.figures.lanes
    # A host that is told of no more may be again: what it had then must not count twice.
    figures = msgspec.structs.replace(life.now.figures, lanes=dict([*told.items()][-BASE_LANES:]))
    after.workers[life.id] = msgspec.structs.replace(life.now, figures=figures)


def _kept(figures: Figures) -> Figures:
    """As they are kept: seconds to the millisecond."""
    figures.took_sum, figures.ask_seconds = round(figures.took_sum, 3), round(figures.ask_seconds, 3)
    return figures


def _add_lane(lanes: dict[str, HostPoint], name: str, grown: LaneFigures) -> None:
    if not (grown.done or grown.failed):
        return
    point = lanes.setdefault(name, HostPoint())
    point.done += grown.done
    point.failed += grown.failed
    point.seconds = round(point.seconds + grown.seconds, 3)
    point.bytes += grown.bytes


def merge(samples: Sequence[Sample]) -> Sample:
    """Samples that follow one another as one: what was done is summed, how it stood is that of the last."""
    last = samples[-1]
    made = msgspec.structs.replace(last)
    for name in (*COUNTS, "span", "took_sum", "own", "asks", "ask_seconds"):
        setattr(made, name, sum(getattr(one, name) for one in samples))
    made.lag = max(one.lag for one in samples)
    made.most_memory = max(one.most_memory for one in samples)
    for one in samples[:-1]:
        made.failed = counts_plus(made.failed, one.failed)
        made.took = buckets_plus(made.took, one.took)
    made.runs = _most(_points((one.runs for one in samples), POINTS), RUNS, _busy_run)
    fields = ("done", "failed", "seconds", "bytes")
    made.hosts = _most(_points((one.hosts for one in samples), fields), HOSTS, _busy_host)
    worked = _points((one.by_worker for one in samples), ("done", "failed"))
    made.by_worker = _most(worked, WORKERS, _busy_worker)
    return made


def _points(series: Iterable[Mapping[str, P]], sums: Sequence[str]) -> dict[str, P]:
    """The points of several samples by name: these fields summed, the others as they were last."""
    made: dict[str, P] = {}
    for points in series:
        for name, point in points.items():
            copy, was = msgspec.structs.replace(point), made.get(name)
            for field in sums if was is not None else ():
                setattr(copy, field, getattr(copy, field) + getattr(was, field))
            made[name] = copy
    return made


def _most(points: dict[str, P], most: int, busy: Callable[[P], tuple[int, int]]) -> dict[str, P]:
    if len(points) <= most:
        return points
    names = sorted(points, key=lambda name: busy(points[name]), reverse=True)[:most]
    return {name: points[name] for name in names}


def _busy_run(point: RunPoint) -> tuple[int, int]:
    return point.done + point.retries + point.dead, point.leased


def _busy_host(point: HostPoint) -> tuple[int, int]:
    return point.done + point.failed, point.ready


def _busy_worker(point: WorkerPoint) -> tuple[int, int]:
    return point.done + point.failed, point.leased
