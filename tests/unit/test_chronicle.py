"""Chronicle and progress: what happened to a run and how far it had come, from what is kept anyway."""

from __future__ import annotations

from typing import Any

import pytest

from shoal.control.acting import Action
from shoal.control.history import Series
from shoal.control.sample import RunPoint, Sample
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import DeadGroup
from shoal.view.chronicle import Entry, chronicle, paged
from shoal.view.progress import POINTS, points, progress

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


def told(found: list[Entry]) -> list[str]:
    return [entry.what for entry in found]


def test_what_people_did_to_a_run_is_told_and_nothing_of_others() -> None:
    at = (BEGUN + 5) * MICRO
    actions = [
        Action(at, "mara", "pause", "r"),
        Action(at + 1, "mara", "resume", "r"),
        Action(at + 2, "ben", "revive", "30064771073", {"run": "r", "count": 1}),
        Action(at + 3, "ben", "park", "r"),  # a host of that name
        Action(at + 4, "ben", "pause", "r2"),
        Action(at - 6 * MICRO, "ben", "purge", "r"),  # the one that had this name before
    ]
    found = chronicle(run(), Stats(), actions, [], series())
    assert told(found) == ["dead letters put back to work: 1", "went on", "paused", "begun"]
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
    (begun,) = chronicle(run(spec=spec), Stats(), [], [], series())
    assert "pw" not in begun.more
    assert begun.more == words


def test_its_end_is_told_with_what_came_of_it() -> None:
    ended = run(state="finished", finished_at=(BEGUN + 90) * MICRO)
    found = chronicle(ended, Stats(done=2, dead=1, records=4), [], [], series())
    assert (found[0].what, found[0].more) == ("finished", "after 1:30: 2 pages done, 1 failed, 4 records")
    cancelled = run(state="cancelled", finished_at=(BEGUN + 90) * MICRO)
    assert told(chronicle(cancelled, Stats(), [], [], series()))[0] == "ended: cancelled"


def test_its_end_is_the_last_of_it_though_it_was_sampled_later() -> None:
    ended = run(state="finished", finished_at=(BEGUN + 3) * MICRO)
    found = chronicle(ended, Stats(done=5), [], [], series(RunPoint(done=5)))
    assert told(found) == ["finished", "the first pages came in", "begun"]


def test_a_cause_is_told_when_it_was_first_seen_with_how_many_there_are_by_now() -> None:
    def group(lane: str, number: int, first: int) -> DeadGroup:
        at = (BEGUN + first) * MICRO
        return DeadGroup(lane, "http.404", number, f"https://{lane}/x", "", at, at + 9)

    found = chronicle(run(), Stats(), [], [group("b.example", 5, 30), group("a.example", 2, 20)], series())
    assert (found[0].at, found[0].cause) == ((BEGUN + 20) * MICRO, "http.404")
    assert found[0].more == "at a.example; 7 of it by now"


def test_only_what_is_far_above_the_usual_is_a_burst() -> None:
    steady = [RunPoint(done=50, dead=2, retries=1, ready=9)] * 20
    burst = [RunPoint(done=10, dead=40, ready=9), RunPoint(done=10, dead=60, ready=9)]
    found = chronicle(run(), Stats(), [], [], series(*steady, *burst, *steady))
    assert told(found) == [
        "108 pages failed for good, many more than usual",  # of the minute
        "the first pages came in",
        "begun",
    ]
    assert (found[0].at, found[0].more) == ((BEGUN + 250) * MICRO, "within 1:00")


def test_a_time_with_more_pages_is_no_burst_though_more_of_them_fail() -> None:
    busy = [RunPoint(done=500, dead=25, retries=25, ready=9)] * 12
    calm = [RunPoint(done=5, ready=9)] * 90
    assert told(chronicle(run(), Stats(), [], [], series(*busy, *calm))) == [
        "the first pages came in",
        "begun",
    ]


def test_what_was_told_once_stays_as_it_was() -> None:
    steady = RunPoint(done=50, dead=2, ready=9)
    history = [*[steady] * 200, RunPoint(done=10, dead=60, ready=9), *[steady] * 200]
    for more in (1, 7, 50):
        before = chronicle(run(), Stats(), [], [], series(*history))
        after = chronicle(run(), Stats(), [], [], series(*history, *[steady] * more))
        assert after == before


def test_a_run_that_stands_still_for_minutes_is_told_and_one_that_waits_for_nothing_is_not() -> None:
    busy, stands, empty = RunPoint(done=5, ready=9), RunPoint(ready=9), RunPoint()
    found = chronicle(run(), Stats(), [], [], series(busy, *[stands] * 31, busy, *[empty] * 40))
    assert told(found)[0] == "no page for 5:10, though there was work"
    assert len(found) == 3
    assert len(chronicle(run(), Stats(), [], [], series(busy, *[stands] * 29, busy))) == 2


def test_of_an_older_run_the_history_does_not_know_the_first_pages() -> None:
    old = run(created_at=(BEGUN - 90_000) * MICRO)
    assert told(chronicle(old, Stats(), [], [], series(RunPoint(done=1))))[0] == "at work"


@pytest.mark.parametrize("size", [1, 2, 3, 50])
def test_pages_of_the_log_have_every_entry_once_however_many_came_at_one_moment(size: int) -> None:
    entries = [Entry(at, f"{at}.{n}") for at in (9, 7, 7, 7, 7, 3, 2, 2) for n in range(1)]
    seen: list[Entry] = []
    before = 0
    while True:
        some, before = paged(entries, before, size)
        assert some
        seen += some
        if not before:
            break
    assert seen == entries
    assert paged([], 0, size) == ([], 0)


def test_progress_ends_with_what_the_store_says_and_never_falls() -> None:
    point = RunPoint(done=8, dead=2, ready=5)
    now = (BEGUN + 55) * MICRO
    found = progress(run(), Stats(seen=100, done=50, dead=5), series(*[point] * 5), now, 45.0)
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
def test_an_end_is_forecast_only_for_what_goes_on(
    more: dict[str, Any], left: float | None, ends: float
) -> None:
    found = progress(run(**more), Stats(seen=9, done=3), series(), (BEGUN + 100) * MICRO, left)
    assert found is not None and found.ends == ends
    assert found.last == (BEGUN + 60 if "finished_at" in more else BEGUN + 100)


def test_there_is_no_progress_to_draw_before_the_first_page() -> None:
    assert progress(run(), Stats(seen=9), series(), (BEGUN + 100) * MICRO, None) is None


def test_a_day_of_samples_becomes_few_points_that_lose_nothing() -> None:
    found = points(run(), series(*[RunPoint(done=1, dead=1)] * 5_000))
    assert len(found) <= POINTS + 1
    assert sum(point.done for point in found) == 5_000
    assert sum(point.span for point in found) == 50_000
    assert points(run(), series(RunPoint(done=1), name="another")) == []
