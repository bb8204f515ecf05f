"""Series: what charts are drawn from, for the fleet, a run, a host or a worker; never more than 300 points.

Every list of a document has one value a point of time; None where nobody looked at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shoal.control.history import SLOT, Series
from shoal.control.sample import Sample, merge
from shoal.core.figures import SECONDS
from shoal.view.words import stamp

POINTS = 300
HOURS = 24
STEPS = (10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600)  # seconds a point may stand for
CLASSES_SHOWN = 6  # of errors; the others are "other"

Value = float | int | None
Document = dict[str, Any]


def fleet_series(series: Series, hours: float = HOURS, points: int = POINTS) -> Document:
    """Throughput, latency, errors by class, the queue by state, workers and memory of the whole fleet."""
    times, bins = binned(series, hours, points)
    return _head(series, times) | {
        "ok": _rates(bins, lambda one: one.done),
        "failed": _rates(bins, lambda one: sum(one.failed.values())),
        "retries": _rates(bins, lambda one: one.retries),
        "dead": _rates(bins, lambda one: one.dead),
        "records": _rates(bins, lambda one: one.records),
        "bytes": _rates(bins, lambda one: one.bytes),
        "p50": _each(bins, lambda one: quantile(one.took, 0.5)),
        "p95": _each(bins, lambda one: quantile(one.took, 0.95)),
        "errors": _errors(bins),
        "queue": {
            "claimable": _each(bins, lambda one: one.ready - one.held),
            "held": _each(bins, lambda one: one.held),
            "delayed": _each(bins, lambda one: one.delayed),
            "leased": _each(bins, lambda one: one.leased),
        },
        "workers": {
            state: [one.workers.get(state, 0) if one else None for one in bins]
            for state in sorted({state for one in bins if one for state in one.workers})
        },
        "rooms": _each(bins, lambda one: one.rooms),
        "memory": _each(bins, lambda one: one.memory),
        "most_memory": _each(bins, lambda one: one.most_memory),
        "lag": _each(bins, lambda one: round(one.lag, 4)),
        "ask": _each(bins, lambda one: round(one.ask_seconds / one.asks, 5) if one.asks else None),
    }


def run_series(series: Series, run: str, hours: float = HOURS, points: int = POINTS) -> Document:
    times, bins = binned(series, hours, points)
    found = [(one, one.runs.get(run) if one else None) for one in bins]

    def rate(name: str) -> list[Value]:
        return [_rate(getattr(point, name), one) if one and point else None for one, point in found]

    def state(name: str) -> list[Value]:
        return [getattr(point, name) if point else None for _, point in found]

    return _head(series, times) | {
        "run": run,
        "ok": rate("done"),
        "dead": rate("dead"),
        "retries": rate("retries"),
        "records": rate("records"),
        "bytes": rate("bytes"),
        "queue": {
            "claimable": [
                min(point.claimable, point.ready) if point is not None else None for _, point in found
            ],
            "held": [
                max(0, point.ready - point.claimable) if point is not None else None for _, point in found
            ],
            "delayed": state("delayed"),
            "leased": state("leased"),
        },
    }


def host_series(series: Series, host: str, hours: float = HOURS, points: int = POINTS) -> Document:
    """Only of times at which the host was among the busiest."""
    times, bins = binned(series, hours, points)
    found = [(one, one.hosts.get(host) if one else None) for one in bins]
    return _head(series, times) | {
        "host": host,
        "ok": [_rate(point.done, one) if one and point else None for one, point in found],
        "failed": [_rate(point.failed, one) if one and point else None for one, point in found],
        "bytes": [_rate(point.bytes, one) if one and point else None for one, point in found],
        "seconds": [
            round(point.seconds / (point.done + point.failed), 4)
            if point and point.done + point.failed
            else None
            for _, point in found
        ],
        "ready": [point.ready if point else None for _, point in found],
    }


def worker_series(series: Series, worker: str, hours: float = HOURS, points: int = POINTS) -> Document:
    times, bins = binned(series, hours, points)
    found = [(one, one.by_worker.get(worker) if one else None) for one in bins]
    return _head(series, times) | {
        "worker": worker,
        "ok": [_rate(point.done, one) if one and point else None for one, point in found],
        "failed": [_rate(point.failed, one) if one and point else None for one, point in found],
        "memory": [point.memory if point else None for _, point in found],
        "leased": [point.leased if point else None for _, point in found],
        "lag": [point.lag if point else None for _, point in found],
    }


def busiest(series: Series, seconds: float, which: str, most: int = 8) -> list[str]:
    """The names of the runs, hosts or workers (`by_worker`) that did the most lately."""
    done: dict[str, int] = {}
    for one in series.last(seconds):
        for name, point in getattr(one, which).items():
            done[name] = done.get(name, 0) + point.done
    return sorted(done, key=lambda name: -done[name])[:most]


def binned(series: Series, hours: float, points: int = POINTS) -> tuple[list[int], list[Sample | None]]:
    """Points of time evenly spaced, and what is known of each; the newest is the last that is whole."""
    points = max(2, min(points, POINTS))
    span = max(SLOT, min(hours, HOURS) * 3600.0)
    step = next((one for one in STEPS if span / one <= points), STEPS[-1])
    last = int(series.now) // step
    count = max(2, min(points, int(span // step)))
    kept: list[list[Sample]] = [[] for _ in range(count)]
    for one in series.samples:
        at = one.at // step - (last - count + 1)
        if 0 <= at < count:
            kept[at].append(one)
    times = [(last - count + 1 + at) * step for at in range(count)]
    return times, [merge(group) if group else None for group in kept]


def quantile(took: Sequence[int], share: float) -> float | None:
    """Seconds within which so large a share was done, from buckets, as Prometheus reckons it."""
    total = sum(took)
    if not total:
        return None
    wanted, seen, below = share * total, 0.0, 0.0
    for number, bound in zip(took, SECONDS, strict=False):
        if number and seen + number >= wanted:
            return round(below + (bound - below) * (wanted - seen) / number, 4)
        seen += number
        below = bound
    return SECONDS[-1]


def _head(series: Series, times: list[int]) -> Document:
    return {
        "at": stamp(int(series.now * 1e6)),
        "step": times[1] - times[0],
        "times": times,  # seconds since 1970
    }


def _rate(number: float, one: Sample) -> float | None:
    return round(number / one.span, 3) if one.span else None


def _rates(bins: Sequence[Sample | None], value: Callable[[Sample], float]) -> list[Value]:
    return [_rate(value(one), one) if one else None for one in bins]


def _each(bins: Sequence[Sample | None], value: Callable[[Sample], Value]) -> list[Value]:
    return [value(one) if one else None for one in bins]


def _errors(bins: Sequence[Sample | None]) -> dict[str, list[Value]]:
    """Failed attempts per second, by class: the most frequent ones, and all others together."""
    sums: dict[str, int] = {}
    for one in bins:
        for name, number in one.failed.items() if one else ():
            sums[name] = sums.get(name, 0) + number
    shown = sorted((name for name in sums if name != "other"), key=lambda name: -sums[name])[:CLASSES_SHOWN]

    def rest(one: Sample) -> int:
        return sum(number for name, number in one.failed.items() if name not in shown)

    made: dict[str, list[Value]] = {
        name: [_rate(one.failed.get(name, 0), one) if one else None for one in bins] for name in shown
    }
    return made | {"other": _rates(bins, rest)} if len(sums) > len(shown) else made
