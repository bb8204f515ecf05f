"""Series: what charts are drawn from, for the fleet, a run, a host or a worker; never more than 300 points.

Every list of a document has one value a point of time; None where nobody looked at that time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any, TypeVar

from shoal.control.history import MAX_STRIDE, SLOT, Series
from shoal.control.history_sample import HostPoint, Sample, merge
from shoal.core.counters import DURATION_BOUNDS
from shoal.view.formatting import iso_time

POINTS = 300
HOURS = 24 * 7
STEPS = (10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800)  # seconds a point may stand for
MIN_SPAN = 60.0  # seconds that an axis shows at least
CLASSES_SHOWN = 6  # of errors; the others are "other"

Value = float | int | None
Document = dict[str, Any]
P = TypeVar("P")


def fleet_series(series: Series, hours: float = HOURS, points: int = POINTS) -> Document:
    """Throughput, latency, errors by class, the queue by state, workers and memory of the whole fleet."""
    times, bins = binned(series, hours, points)
    return _header(series, times) | {
        "ok": _rates(bins, lambda one: one.done),
        "failed": _rates(bins, lambda one: sum(one.failed.values())),
        "retries": _rates(bins, lambda one: one.retries),
        "dead": _rates(bins, lambda one: one.dead),
        "records": _rates(bins, lambda one: one.records),
        "bytes": _rates(bins, lambda one: one.bytes),
        "p50": _values(bins, lambda one: quantile(one.took, 0.5)),
        "p95": _values(bins, lambda one: quantile(one.took, 0.95)),
        "errors": _errors(bins),
        "queue": {
            "claimable": _values(bins, lambda one: one.ready - one.held),
            "held": _values(bins, lambda one: one.held),
            "delayed": _values(bins, lambda one: one.delayed),
            "leased": _values(bins, lambda one: one.leased),
        },
        "workers": {
            state: [one.workers.get(state, 0) if one else None for one in bins]
            for state in sorted({state for one in bins if one for state in one.workers})
        },
        "server_processes": _values(bins, lambda one: one.server_processes),
        "memory": _values(bins, lambda one: one.memory),
        "most_memory": _values(bins, lambda one: one.most_memory),
        "lag": _values(bins, lambda one: round(one.lag, 4)),
        "ask": _values(bins, lambda one: round(one.ask_seconds / one.asks, 5) if one.asks else None),
    }


def run_series(series: Series, run: str, hours: float = HOURS, points: int = POINTS) -> Document:
    times, bins = binned(series, hours, points)
    points_of = [(one, one.runs.get(run) if one else None) for one in bins]
    return _header(series, times) | {
        "run": run,
        "ok": _point_rates(points_of, "done"),
        **{name: _point_rates(points_of, name) for name in ("dead", "retries", "records", "bytes")},
        "queue": {
            "claimable": _point_values(points_of, lambda point: min(point.claimable, point.ready)),
            "held": _point_values(points_of, lambda point: max(0, point.ready - point.claimable)),
            "delayed": _point_values(points_of, lambda point: point.delayed),
            "leased": _point_values(points_of, lambda point: point.leased),
        },
    }


def host_series(series: Series, host: str, hours: float = HOURS, points: int = POINTS) -> Document:
    """Only of times at which the host was among the busiest."""
    times, bins = binned(series, hours, points)
    points_of = [(one, one.hosts.get(host) if one else None) for one in bins]

    def seconds(point: HostPoint) -> Value:
        attempts = point.done + point.failed
        return round(point.seconds / attempts, 4) if attempts else None

    return _header(series, times) | {
        "host": host,
        "ok": _point_rates(points_of, "done"),
        "failed": _point_rates(points_of, "failed"),
        "bytes": _point_rates(points_of, "bytes"),
        "seconds": _point_values(points_of, seconds),
        "ready": _point_values(points_of, lambda point: point.ready),
    }


def worker_series(series: Series, worker: str, hours: float = HOURS, points: int = POINTS) -> Document:
    times, bins = binned(series, hours, points)
    points_of = [(one, one.by_worker.get(worker) if one else None) for one in bins]
    return _header(series, times) | {
        "worker": worker,
        "ok": _point_rates(points_of, "done"),
        "failed": _point_rates(points_of, "failed"),
        "memory": _point_values(points_of, lambda point: point.memory),
        "leased": _point_values(points_of, lambda point: point.leased),
        "lag": _point_values(points_of, lambda point: point.lag),
    }


def busiest(series: Series, seconds: float, which: str, most: int = 8) -> list[str]:
    """The names of the runs, hosts or workers (`by_worker`) that did the most lately."""
    done: dict[str, int] = {}
    for one in series.last(seconds):
        for name, point in getattr(one, which).items():
            done[name] = done.get(name, 0) + point.done
    return sorted(done, key=lambda name: -done[name])[:most]


def binned(series: Series, hours: float, points: int = POINTS) -> tuple[list[int], list[Sample | None]]:
    """Points of time evenly spaced, and what is known of each, from the first of which anything is known.

    The newest is the last that is whole.
    """
    points = max(2, min(points, POINTS))
    span = max(SLOT, min(hours, HOURS) * 3600.0)
    if series.samples:  # an axis begins where the data do: a fleet of a minute is not a dot at the edge of an hour
        first_sample = series.samples[0]
        span = min(span, max(MIN_SPAN, series.now - first_sample.at + first_sample.span + SLOT))
    step = next((one for one in STEPS if span / one <= points), STEPS[-1])
    last = int(series.now) // step
    count = max(2, min(points, ceil(span / step) + (span < min(hours, HOURS) * 3600.0)))
    kept: list[list[Sample]] = [[] for _ in range(count)]
    for one in series.samples:
        at = one.at // step - (last - count + 1)
        if 0 <= at < count:
            kept[at].append(one)
    times = [(last - count + 1 + at) * step for at in range(count)]
    bins = [merge(group) if group else None for group in kept]
    for at, found in enumerate(bins):
        if found is not None and found.span <= 1.5 * MAX_STRIDE * SLOT:
            _fill_before(times, bins, at, found)
    return times, bins


def _fill_before(times: list[int], bins: list[Sample | None], at: int, found: Sample) -> None:
    """A sample of several slots stands for all of them."""
    begun = found.at - found.span + SLOT
    while at > 0 and bins[at - 1] is None and times[at] > begun:
        at -= 1
        bins[at] = found


def quantile(took: Sequence[int], share: float) -> float | None:
    """Seconds within which so large a share was done, from buckets, as Prometheus reckons it."""
    total = sum(took)
    if not total:
        return None
    wanted, seen, below = share * total, 0.0, 0.0
    for number, bound in zip(took, DURATION_BOUNDS, strict=False):
        if number and seen + number >= wanted:
            return round(below + (bound - below) * (wanted - seen) / number, 4)
        seen += number
        below = bound
    return DURATION_BOUNDS[-1]


def _header(series: Series, times: list[int]) -> Document:
    return {
        "at": iso_time(int(series.now * 1e6)),
        "step": times[1] - times[0],
        "times": times,  # seconds since 1970
    }


def _rate(number: float, one: Sample) -> float | None:
    return round(number / one.span, 3) if one.span else None


def _rates(bins: Sequence[Sample | None], value: Callable[[Sample], float]) -> list[Value]:
    return [_rate(value(one), one) if one else None for one in bins]


def _values(bins: Sequence[Sample | None], value: Callable[[Sample], Value]) -> list[Value]:
    return [value(one) if one else None for one in bins]


def _point_rates(points: Sequence[tuple[Sample | None, object]], name: str) -> list[Value]:
    return [_rate(getattr(point, name), one) if one and point else None for one, point in points]


def _point_values(points: Sequence[tuple[Sample | None, P | None]], value: Callable[[P], Value]) -> list[Value]:
    return [value(point) if point is not None else None for _, point in points]


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
