"""Series: what charts are drawn from has few points, and each says what happened in its time."""

from __future__ import annotations

import math
import random

import pytest

from shoal.control.history import Series
from shoal.control.history_sample import HostPoint, RunPoint, Sample, WorkerPoint
from shoal.core.counters import DURATION_BOUNDS, bucket_index, empty_buckets
from shoal.view.series import POINTS, binned, busiest, fleet_series, host_series, quantile, run_series, worker_series

NOW = 1_750_000_000


def sample(at: int, done: int = 10, **more: object) -> Sample:
    return Sample(at, **{"span": 10.0, "done": done, "workers": {"working": 2}} | more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("hours", "points", "step"),
    [(0.25, 300, 10), (1, 300, 20), (1, 60, 60), (6, 300, 120), (24, 300, 300), (24, 50, 1800), (24, 24, 3600)],
)
def test_no_chart_has_more_points_than_asked_for_and_none_is_lost(hours: float, points: int, step: int) -> None:
    every = [sample(at) for at in range(NOW - int(hours * 3600) + 2 * step, NOW, 10)]
    series = Series(float(NOW), tuple(every))
    times, bins = binned(series, hours, points)
    assert times[1] - times[0] == step and len(times) == len(bins) <= points
    assert times[-1] == NOW // step * step
    assert sum(one.done for one in bins if one) == 10 * len(every)
    document = fleet_series(series, hours, points)
    assert [value for value in document["ok"] if value is not None] == [1.0] * sum(one is not None for one in bins)


def test_times_at_which_nobody_looked_are_gaps() -> None:
    document = fleet_series(Series(float(NOW), (sample(NOW - 300), sample(NOW - 5))), 0.25)
    assert document["ok"].count(1.0) == 2 and document["ok"].count(None) == len(document["ok"]) - 2
    assert {len(document[name]) for name in ("ok", "failed", "p50", "memory")} == {len(document["times"])}
    assert len(fleet_series(Series(float(NOW)), 24)["ok"]) <= POINTS


def test_a_sample_of_several_slots_stands_for_all_of_them() -> None:
    at = NOW // 10 * 10
    samples = tuple(sample(at - back, done=30, span=30.0) for back in (63, 33, 3))
    document = fleet_series(Series(float(NOW), samples), 0.25)
    assert document["ok"][-10:-1] == [1.0] * 9
    assert document["ok"].count(1.0) == 9


def test_a_run_a_host_and_a_worker_have_their_own() -> None:
    one = sample(
        NOW - 5,
        runs={"r": RunPoint(20, 1, 5, 40, 900, ready=30, delayed=2, leased=4, claimable=10)},
        hosts={"h": HostPoint(30, 10, 20.0, 100, 7)},
        by_worker={"w": WorkerPoint(20, 5, 1_000, 3, 0.1)},
    )
    series = Series(float(NOW), (one,))
    run, host, worker = run_series(series, "r", 1), host_series(series, "h", 1), worker_series(series, "w", 1)

    def value(values: list[float | None]) -> float | None:
        (found,) = [it for it in values if it is not None]
        return found

    assert (value(run["ok"]), value(run["retries"]), value(run["queue"]["held"])) == (2.0, 0.5, 20)
    assert (value(host["failed"]), value(host["seconds"]), value(host["ready"])) == (1.0, 0.5, 7)
    assert (value(worker["ok"]), value(worker["memory"])) == (2.0, 1_000)
    assert set(run_series(series, "other", 1)["ok"]) == {None}
    assert busiest(series, 60, "runs") == ["r"] and busiest(series, 60, "by_worker") == ["w"]


def test_errors_are_the_most_frequent_classes_and_the_rest_together() -> None:
    failed = {f"http.{n}xx" if n in (4, 5) else f"c{n}": n * 10 for n in range(1, 10)}
    document = fleet_series(Series(float(NOW), (sample(NOW - 5, failed=failed),)), 1)
    sums = {name: sum(it or 0 for it in values) for name, values in document["errors"].items()}
    assert list(sums) == ["c9", "c8", "c7", "c6", "http.5xx", "http.4xx", "other"]
    assert sums["other"] == 6.0 and sum(sums.values()) == sum(failed.values()) / 10


def test_quantiles_from_buckets_lie_in_the_bucket_of_the_true_one() -> None:
    dice = random.Random(5)
    for _ in range(50):
        values = sorted(dice.expovariate(dice.choice((0.2, 2, 20))) for _ in range(dice.randrange(1, 400)))
        took = empty_buckets(DURATION_BOUNDS)
        for value in values:
            took[bucket_index(DURATION_BOUNDS, value)] += 1
        for share in (0.5, 0.95):
            true = values[max(0, math.ceil(len(values) * share) - 1)]
            found = quantile(took, share)
            assert found is not None
            assert (
                abs(
                    bucket_index(DURATION_BOUNDS, found) - bucket_index(DURATION_BOUNDS, min(true, DURATION_BOUNDS[-1]))
                )
                <= 1
            )
    assert quantile([], 0.5) is None and quantile(empty_buckets(DURATION_BOUNDS), 0.5) is None


@pytest.mark.parametrize("hours", [0.25, 1, 24, 168])
def test_the_axis_begins_where_the_data_begin(hours: float) -> None:
    """A minute of data is not a dot at the edge of an hour, or of a week."""
    young = Series(float(NOW), tuple(sample(NOW - ago) for ago in range(55, 0, -10)))
    times, bins = binned(young, hours)
    assert times[1] - times[0] == 10 and 60 <= times[-1] - times[0] <= 90
    assert sum(one is not None for one in bins) == 6
    old = Series(float(NOW), (sample(NOW - 900_000), *young.samples))
    assert times[0] > binned(old, hours)[0][0], "who has more is shown more, as far as was asked for"
