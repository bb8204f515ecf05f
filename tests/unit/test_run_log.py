"""The log and the progress of a run, both derived from data that is stored anyway."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.control.actions import LoggedAction
from shoal.control.history import Series
from shoal.control.history_sample import RunPoint, Sample
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import DeadLetterGroup
from shoal.view.progress import MAX_POINTS, progress_curve, progress_points
from shoal.view.run_log import RunLogEntry, build_run_log, paginate

BEGUN = 1_750_000_000
MICRO = 1_000_000


def run(**more: Any) -> Run:
    given = {"state": "running", "created_at": BEGUN * MICRO, "changed_at": BEGUN * MICRO} | more
    return Run(id=7, name="r", scraper="books", key="k", **given)


def series(*found: RunPoint | None, step: int = 10, name: str = "r") -> Series:
    """One sample a step from the beginning on; None: the run was not looked at."""
    samples = [
        Sample(BEGUN + (at + 1) * step, span=float(step), runs={name: point} if point else {})
        for at, point in enumerate(found)
    ]
    return Series(float(BEGUN + len(found) * step), tuple(samples))


def texts(found: list[RunLogEntry]) -> list[str]:
    return [entry.what for entry in found]


def test_what_people_did_to_a_run_is_told_and_nothing_of_others() -> None:
    at = (BEGUN + 5) * MICRO
    actions = [
        LoggedAction(at, "mara", "pause", "r"),
        LoggedAction(at + 1, "mara", "resume", "r"),
        LoggedAction(at + 2, "ben", "revive", "30064771073", {"run": "r", "count": 1}),
        LoggedAction(at + 3, "ben", "park", "r"),  # a host of that name
        LoggedAction(at + 4, "ben", "pause", "r2"),
        LoggedAction(at - 6 * MICRO, "ben", "purge", "r"),  # the one that had this name before
    ]
    found = build_run_log(run(), Stats(), actions, [], series())
    assert texts(found) == ["dead letters requeued: 1", "resumed", "paused", "started"]
    assert [entry.who for entry in found] == ["ben", "mara", "mara", ""]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"schedule": "nightly", "command": "shoal run x"}, "by the schedule nightly"),
        ({"command": "shoal run http://me:pw@a.example/"}, "by shoal run http://[hidden]@a.example/"),
        ({}, ""),
    ],
)
def test_its_beginning_says_where_it_came_from_without_secrets(spec: dict[str, Any], words: str) -> None:
    (begun,) = build_run_log(run(spec=spec), Stats(), [], [], series())
    assert "pw" not in begun.more
    assert begun.more == words


def test_its_end_is_told_with_what_came_of_it() -> None:
    ended = run(state="finished", finished_at=(BEGUN + 90) * MICRO)
    found = build_run_log(ended, Stats(done=2, dead=1, records=4), [], [], series())
    assert (found[0].what, found[0].more) == ("finished", "after 1:30: 2 pages done, 1 failed, 4 records")
    cancelled = run(state="cancelled", finished_at=(BEGUN + 90) * MICRO)
    assert texts(build_run_log(cancelled, Stats(), [], [], series()))[0] == "ended: cancelled"


def test_its_end_is_the_last_of_it_though_it_was_sampled_later() -> None:
    ended = run(state="finished", finished_at=(BEGUN + 3) * MICRO)
    found = build_run_log(ended, Stats(done=5), [], [], series(RunPoint(done=5)))
    assert texts(found) == ["finished", "the first pages were done", "started"]


def test_a_cause_is_told_when_it_was_first_seen_with_how_many_there_are_by_now() -> None:
    def group(lane: str, number: int, first: int) -> DeadLetterGroup:
        at = (BEGUN + first) * MICRO
        return DeadLetterGroup(lane, "http.404", number, f"https://{lane}/x", "", at, at + 9)

    found = build_run_log(run(), Stats(), [], [group("b.example", 5, 30), group("a.example", 2, 20)], series())
    assert (found[0].at, found[0].cause) == ((BEGUN + 20) * MICRO, "http.404")
    assert found[0].more == "at a.example; 7 by now"


def test_only_what_is_far_above_the_usual_is_a_burst() -> None:
    steady = [RunPoint(done=50, dead=2, retries=1, ready=9)] * 20
    burst = [RunPoint(done=10, dead=40, ready=9), RunPoint(done=10, dead=60, ready=9)]
    found = build_run_log(run(), Stats(), [], [], series(*steady, *burst, *steady))
    assert texts(found) == [
        "108 pages failed permanently, many more than usual",  # of the minute
        "the first pages were done",
        "started",
    ]
    assert (found[0].at, found[0].more) == ((BEGUN + 250) * MICRO, "within 1:00")


def test_a_time_with_more_pages_is_no_burst_though_more_of_them_fail() -> None:
    busy = [RunPoint(done=500, dead=25, retries=25, ready=9)] * 12
    calm = [RunPoint(done=5, ready=9)] * 90
    assert texts(build_run_log(run(), Stats(), [], [], series(*busy, *calm))) == [
        "the first pages were done",
        "started",
    ]


def test_what_was_told_once_stays_as_it_was() -> None:
    steady = RunPoint(done=50, dead=2, ready=9)
    history = [*[steady] * 200, RunPoint(done=10, dead=60, ready=9), *[steady] * 200]
    for more in (1, 7, 50):
        before = build_run_log(run(), Stats(), [], [], series(*history))
        after = build_run_log(run(), Stats(), [], [], series(*history, *[steady] * more))
        assert after == before


def test_a_run_that_stands_still_for_minutes_is_told_and_one_that_waits_for_nothing_is_not() -> None:
    busy, stands, empty = RunPoint(done=5, ready=9), RunPoint(ready=9), RunPoint()
    found = build_run_log(run(), Stats(), [], [], series(busy, *[stands] * 31, busy, *[empty] * 40))
    assert texts(found)[0] == "no page for 5:10, though there was work"
    assert len(found) == 3
    assert len(build_run_log(run(), Stats(), [], [], series(busy, *[stands] * 29, busy))) == 2


def test_of_an_older_run_the_history_does_not_know_the_first_pages() -> None:
    old = run(created_at=(BEGUN - 90_000) * MICRO)
    assert texts(build_run_log(old, Stats(), [], [], series(RunPoint(done=1))))[0] == "at work"


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_pages_of_the_log_have_every_entry_once_however_many_came_at_one_moment(size: int) -> None:
    entries = [RunLogEntry(at, f"{at}.{n}") for at in (9, 7, 7, 7, 7, 3, 2, 2) for n in range(1)]
    seen: list[RunLogEntry] = []
    before = 0
    while True:
        some, before = paginate(entries, before, size)
        assert some
        seen += some
        if not before:
            break
    assert seen == entries
    assert paginate([], 0, size) == ([], 0)


def test_progress_ends_with_what_the_store_says_and_never_falls() -> None:
    point = RunPoint(done=8, dead=2, ready=5)
    now = (BEGUN + 55) * MICRO
    found = progress_curve(run(), Stats(seen=100, done=50, dead=5), series(*[point] * 5), now, 45.0)
    assert found is not None
    assert found.line[0] == (BEGUN, 0) and found.line[-1] == (BEGUN + 55, 55)
    assert (BEGUN + 20, 25) in found.line
    numbers = [number for _, number in found.line]
    moments = [at for at, _ in found.line]
    assert numbers == sorted(numbers) and moments == sorted(moments)
    assert (found.total, found.ends) == (100, BEGUN + 100)


@pytest.mark.parametrize(
    ("more", "left", "ends"),
    [
        ({}, None, 0.0),
        ({}, 10.0, BEGUN + 110.0),
        ({}, 1e12, 0.0),  # no calendar has such a year
        ({"state": "paused"}, 10.0, 0.0),
        ({"state": "finished", "finished_at": (BEGUN + 60) * MICRO}, 0.0, 0.0),
    ],
)
def test_an_end_is_forecast_only_for_what_goes_on(more: dict[str, Any], left: float | None, ends: float) -> None:
    found = progress_curve(run(**more), Stats(seen=9, done=3), series(), (BEGUN + 100) * MICRO, left)
    assert found is not None and found.ends == ends
    assert found.last == (BEGUN + 60 if "finished_at" in more else BEGUN + 100)


def test_there_is_no_progress_to_draw_before_the_first_page() -> None:
    assert progress_curve(run(), Stats(seen=9), series(), (BEGUN + 100) * MICRO, None) is None


def test_a_day_of_samples_becomes_few_points_that_lose_nothing() -> None:
    found = progress_points(run(), series(*[RunPoint(done=1, dead=1)] * 5_000))
    assert len(found) <= MAX_POINTS + 1
    assert sum(point.done for point in found) == 5_000
    assert sum(point.span for point in found) == 50_000
    assert progress_points(run(), series(RunPoint(done=1), name="another")) == []
