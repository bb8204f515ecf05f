"""A history sample: what the fleet did between two observations, and its state at the second."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

import msgspec

from shoal.core.counters import (
    COSTS,
    Counters,
    LaneCounters,
    WorkerCounters,
    add_buckets,
    add_counts,
    combine,
    difference,
)
from shoal.core.lane import LaneState, WorkerStatus
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.runs.identity import SERVER_MODE, is_server_run
from shoal.worker.pool.final_counts import MAX_DOCUMENTS, MAX_PER_DOCUMENT, counters_of

MAX_RUNS, MAX_HOSTS, MAX_WORKERS = 50, 30, 64  # in one sample: the busiest
BASELINE_WORKERS = 1_000  # whose figures are compared with those before; of others only the pages are known
BASELINE_LANES = 60  # hosts of a worker that are remembered
WORKERS_WITH_LANES = 256  # workers of which they are
# Workers that ended and are remembered as counted: as many as can have left final counts.
MAX_ENDED_WORKERS = MAX_DOCUMENTS * MAX_PER_DOCUMENT
ENDED_RETENTION = 600.0  # seconds; longer while it or its final counts are still there
BASELINE_ENDED_RUNS = 50  # runs that ended and may go on again
NEW_WITHIN = 30.0  # seconds: what is new and no older than this has all its counts from now


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
    code_errors: int = 0  # of those failed: the code is to blame, not the host
    transferred: int = 0  # bytes sent and received, and what else its pages have cost
    proxy_bytes: int = 0
    cpu_us: int = 0
    browser_us: int = 0


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
    noticed: int = 0  # pages that count although they look like block pages
    took: list[int] = []  # attempts by seconds, as in core.counters.SECONDS
    took_sum: float = 0.0
    asks: int = 0  # questions to the queue, and the seconds they took
    ask_seconds: float = 0.0
    ready: int = 0  # without delayed
    held: int = 0  # of these, so many wait for their host's turn
    delayed: int = 0
    leased: int = 0
    unfinished: int = 0  # runs
    workers: dict[str, int] = {}  # of the fleet, by state
    server_processes: int = 0  # processes of servers, which work on runs that were left to these
    own: int = 0  # attempts at pages of such runs; they are in the sums as well
    memory: int = 0
    most_memory: int = 0  # of one worker
    lag: float = 0.0
    runs: dict[str, RunPoint] = {}
    hosts: dict[str, HostPoint] = {}
    by_worker: dict[str, WorkerPoint] = {}


P = TypeVar("P", RunPoint, HostPoint, WorkerPoint)


class RunBaseline(msgspec.Struct, array_like=True, gc=False):
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
    own: bool = False  # it was left to servers


class Baseline(msgspec.Struct):
    """What the next sample is measured against."""

    at: float = 0.0  # seconds; 0: there was none
    runs: dict[int, RunBaseline] = {}
    workers: dict[str, WorkerCounters] = {}
    ended: dict[str, int] = {}  # workers whose final counts are in the sums, and since when
    total: Counters = msgspec.field(default_factory=Counters)  # all that was ever counted


class Observation(msgspec.Struct):
    """What was seen of the fleet at one moment."""

    now: int  # the store's clock
    runs: Sequence[tuple[Run, Stats]]  # unfinished ones, and those that ended since
    # Of those alive; looked at before the final counts, so that nobody is in neither.
    statuses: Sequence[WorkerStatus]
    states: Mapping[str, int]  # workers of the fleet by state
    lanes: Sequence[LaneState] = ()
    final_counts: Sequence[WorkerCounters] = ()
    silent: Sequence[str] = ()  # workers that have not been heard of for long; they may come back


RUN_COUNTERS = ("done", "dead", "retries", "records", "bytes", "lost", "stale")
POINT_COUNTERS = ("done", "dead", "retries", "records", "bytes")


def measure(base: Baseline, observation: Observation) -> tuple[Sample, Baseline]:
    """What happened since the base, and the base of the next."""
    at = observation.now / 1e6
    made = Sample(int(at), span=round(at - base.at, 1) if base.at else 0.0)
    found = list(worker_deltas(base, observation.now, observation.statuses, observation.final_counts))
    after = Baseline(at, ended=_ended_workers(base, observation), total=total_counters(base, found))
    _measure_runs(made, base, after, observation, base.at or at - NEW_WITHIN)
    _measure_workers(made, after, observation, found)
    for id in observation.silent:
        if id in base.workers and len(after.workers) < BASELINE_WORKERS:
            after.workers.setdefault(id, base.workers[id])
    return made, after


def total_counters(base: Baseline, found: Iterable[WorkerDelta]) -> Counters:
    """All that workers have ever counted; it begins with what those of the first look had by then."""
    made, alive = base.total, 0
    for delta in found:
        alive += delta.status is not None
        if delta.status is None or alive <= BASELINE_WORKERS:
            made = combine(made, delta.increase if base.at else delta.now.counters)
            made.lag, made.lanes = 0.0, {}
    return made


class WorkerDelta(msgspec.Struct, gc=False):
    """What a worker has counted, and how much of it is new since the last observation."""

    now: WorkerCounters
    was: WorkerCounters
    status: WorkerStatus | None = None  # None: it has ended
    increase: Counters = msgspec.field(default_factory=Counters)

    def __post_init__(self) -> None:
        self.increase = difference(self.was.counters, self.now.counters)


def worker_deltas(
    base: Baseline,
    now: int,
    statuses: Iterable[WorkerStatus],
    final_counts: Sequence[WorkerCounters],
    *,
    lanes: int = WORKERS_WITH_LANES,
) -> Iterator[WorkerDelta]:
    """Everybody once: whoever has left final counts appears with those alone, until they are added.

    lanes: so many of those alive with their hosts, which takes the most time.
    """
    # It may have begun to count before it was first heard of.
    young = base.at - NEW_WITHIN if base.at else now / 1e6 - NEW_WITHIN
    gone = base.ended.keys() | {one.id for one in final_counts}
    for place, status in enumerate(statuses):
        if status.id in gone:
            continue
        found = counters_of(status)
        _round(found.counters)
        was = base.workers.get(status.id)
        if was is None or was.started_at != status.started_at:
            new = was is not None or status.started_at / 1e6 >= young
            was = WorkerCounters(status.id, status.started_at) if new else found
        if place >= lanes:
            found.counters.lanes = {}
        yield WorkerDelta(found, was, status)
    for one in final_counts:
        if one.id not in base.ended:
            found = one
            _round(found.counters)
            new = one.started_at / 1e6 >= young
            was = base.workers.get(one.id) or (WorkerCounters(one.id, one.started_at) if new else found)
            yield WorkerDelta(found, was)


def _ended_workers(base: Baseline, observation: Observation) -> dict[str, int]:
    """Whoever is still there would else be counted anew."""
    now, left = observation.now // 1_000_000, [one.id for one in observation.final_counts]
    there = {*left, *(status.id for status in observation.statuses)}
    kept = {id: at for id, at in base.ended.items() if now - at < ENDED_RETENTION or id in there}
    kept = {**dict.fromkeys(left, now), **kept}
    return dict(islice(kept.items(), MAX_ENDED_WORKERS))


def _measure_runs(made: Sample, base: Baseline, after: Baseline, observation: Observation, before: float) -> None:
    points: dict[str, RunPoint] = {}
    ended = 0
    for run, stats in observation.runs:
        now = RunBaseline(
            run.name,
            open=run.state in ("running", "paused"),
            own=is_server_run(run),
            # What failed, whether its dead letter is still there or not: a removal is nothing that happened to a page.
            **{name: stats.failed if name == "dead" else getattr(stats, name) for name in RUN_COUNTERS},
        )
        was = base.runs.get(run.id)
        if was is None:
            was = RunBaseline(run.name) if run.created_at / 1e6 >= before else now
        increase = {name: max(0, getattr(now, name) - getattr(was, name)) for name in RUN_COUNTERS}
        for name, number in increase.items():
            setattr(made, name, getattr(made, name) + number)
        if now.own:
            made.own += increase["done"] + increase["retries"] + increase["dead"]
        ended += not now.open
        if now.open or ended <= BASELINE_ENDED_RUNS:
            after.runs[run.id] = now
        if now.open:
            waiting = stats.ready - stats.delayed
            made.ready += waiting
            made.held += max(0, waiting - stats.claimable)
            made.delayed += stats.delayed
            made.leased += stats.leased
            made.unfinished += 1
        if now.open or any(increase.values()):
            point = RunPoint(**{name: increase[name] for name in POINT_COUNTERS})
            if now.open:
                point.ready, point.delayed = stats.ready - stats.delayed, stats.delayed
                point.leased, point.claimable = stats.leased, stats.claimable
            points[run.name] = point
    made.runs = _busiest(points, MAX_RUNS, _run_activity)


def _measure_workers(made: Sample, after: Baseline, observation: Observation, found: Iterable[WorkerDelta]) -> None:
    made.workers = {state: number for state, number in observation.states.items() if number}
    made.server_processes = sum(SERVER_MODE in status.serves for status in observation.statuses)
    points: dict[str, WorkerPoint] = {}
    lanes: dict[str, HostPoint] = {}
    for delta in found:
        now, was, status = delta.now, delta.was, delta.status
        if status is None or len(after.workers) < BASELINE_WORKERS:
            increase = delta.increase
            made.failed = add_counts(made.failed, increase.failed)
            made.took = add_buckets(made.took, increase.took)
            made.took_sum = round(made.took_sum + increase.took_sum, 3)
            made.noticed += increase.noticed
            made.asks += increase.asks
            made.ask_seconds = round(made.ask_seconds + increase.ask_seconds, 3)
            for name, lane in increase.lanes.items():
                _add_lane(lanes, name, lane)
            if status is not None:
                _update_baseline(after, delta)
        point = points[now.id] = WorkerPoint(max(0, now.done - was.done), max(0, now.failed - was.failed))
        if status is not None:
            point.memory, point.leased, point.lag = status.memory, status.leased, round(now.counters.lag, 4)
            made.memory += status.memory
            made.most_memory = max(made.most_memory, status.memory)
            made.lag = max(made.lag, now.counters.lag)
    for lane_state in observation.lanes:
        if lane_state.ready or lane_state.name in lanes:
            lanes.setdefault(lane_state.name, HostPoint()).ready = lane_state.ready
    made.hosts = _busiest(lanes, MAX_HOSTS, _host_activity)
    made.by_worker = _busiest(points, MAX_WORKERS, _worker_activity)


def _update_baseline(after: Baseline, delta: WorkerDelta) -> None:
    """What the next look at this worker is compared with."""
    told = delta.was.counters.lanes | delta.now.counters.lanes
    # A host that is told of no more may be again: what it had then must not count twice.
    counters = msgspec.structs.replace(delta.now.counters, lanes=dict([*told.items()][-BASELINE_LANES:]))
    after.workers[delta.now.id] = msgspec.structs.replace(delta.now, counters=counters)


def _round(counters: Counters) -> None:
    """As they are kept: seconds to the millisecond."""
    counters.took_sum, counters.ask_seconds = round(counters.took_sum, 3), round(counters.ask_seconds, 3)


def _add_lane(lanes: dict[str, HostPoint], name: str, increase: LaneCounters) -> None:
    if not (increase.done or increase.failed):
        return
    point = lanes.setdefault(name, HostPoint())
    point.done += increase.done
    point.failed += increase.failed
    point.seconds = round(point.seconds + increase.seconds, 3)
    point.bytes += increase.bytes
    point.code_errors += increase.code_errors
    for name in COSTS:
        setattr(point, name, getattr(point, name) + getattr(increase, name))


def merge(samples: Sequence[Sample]) -> Sample:
    """Samples that follow one another as one: what was done is summed, how it stood is that of the last."""
    last = samples[-1]
    made = msgspec.structs.replace(last)
    for name in (*RUN_COUNTERS, "span", "took_sum", "own", "asks", "ask_seconds", "noticed"):
        setattr(made, name, sum(getattr(one, name) for one in samples))
    made.lag = max(one.lag for one in samples)
    made.most_memory = max(one.most_memory for one in samples)
    for one in samples[:-1]:
        made.failed = add_counts(made.failed, one.failed)
        made.took = add_buckets(made.took, one.took)
    made.runs = _busiest(_sum_points((one.runs for one in samples), POINT_COUNTERS), MAX_RUNS, _run_activity)
    fields = ("done", "failed", "seconds", "bytes", "code_errors", *COSTS)
    made.hosts = _busiest(_sum_points((one.hosts for one in samples), fields), MAX_HOSTS, _host_activity)
    worked = _sum_points((one.by_worker for one in samples), ("done", "failed"))
    made.by_worker = _busiest(worked, MAX_WORKERS, _worker_activity)
    return made


def _sum_points(series: Iterable[Mapping[str, P]], sums: Sequence[str]) -> dict[str, P]:
    """The points of several samples by name: these fields summed, the others as they were last."""
    made: dict[str, P] = {}
    for points in series:
        for name, point in points.items():
            copy, was = msgspec.structs.replace(point), made.get(name)
            for field in sums if was is not None else ():
                setattr(copy, field, getattr(copy, field) + getattr(was, field))
            made[name] = copy
    return made


def _busiest(points: dict[str, P], most: int, busy: Callable[[P], tuple[int, int]]) -> dict[str, P]:
    if len(points) <= most:
        return points
    names = sorted(points, key=lambda name: busy(points[name]), reverse=True)[:most]
    return {name: points[name] for name in names}


def _run_activity(point: RunPoint) -> tuple[int, int]:
    return point.done + point.retries + point.dead, point.leased


def _host_activity(point: HostPoint) -> tuple[int, int]:
    return point.done + point.failed, point.ready


def _worker_activity(point: WorkerPoint) -> tuple[int, int]:
    return point.done + point.failed, point.leased
