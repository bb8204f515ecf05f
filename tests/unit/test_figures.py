"""What workers count: classes of errors, sums and differences, lag, and the way to a supervisor."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from shoal.core.figures import (
    CLASSES,
    LANES_KEPT,
    SECONDS,
    SIZES,
    Figures,
    LaneFigures,
    decode,
    encode,
    error_class,
    place,
    plus,
    since,
)
from shoal.core.retry import RULES
from shoal.core.task import Attempt, Outcome, Result
from shoal.worker.figures import LAG_EVERY, LANES_COUNTED, Counting
from shoal.worker.note import FIGURES, Note, Reader, read


def outcome(result: Result = "done", cause: str = "", seconds: float = 0.2, size: int = 5_000) -> Outcome:
    attempt = Attempt(at=0, worker="w", cause=cause, status=200, seconds=seconds, size=size)
    return Outcome(task=1, lease=1, result=result, cause=cause, attempt=attempt, records=(b"{}",))


@pytest.mark.parametrize(
    ("cause", "named"),
    [
        ("http.429", "http.429"),
        ("http.404", "http.404"),
        ("http.418", "http.4xx"),
        ("http.503", "http.5xx"),
        ("http.304", "other"),
        ("http.", "other"),
        ("timeout.connect", "timeout"),
        ("handler.KeyError", "handler"),
        ("handler_timeout", "handler"),
        ("memory", "handler"),
        ("robots_unreachable", "robots"),
        ("blocked", "refused"),
        ("decode", "content"),
        ("worker_lost", "worker_lost"),
        ("internal.OSError", "other"),
        ("what a site invents", "other"),
        ("", "other"),
    ],
)
def test_every_cause_belongs_to_one_of_few_classes(cause: str, named: str) -> None:
    assert error_class(cause) == named


def test_every_cause_with_a_rule_of_its_own_has_a_class_that_is_known() -> None:
    assert {error_class(cause) for cause in RULES} <= set(CLASSES)
    unclear = {cause for cause in RULES if error_class(cause) == "other"}
    assert unclear == {"http", "lane_busy", "stalled", "closed", "not_kept"}


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (0.005, 0), (0.0051, 1), (60.0, 12), (61.0, 13)])
def test_upper_bounds_belong_to_their_bucket(value: float, bucket: int) -> None:
    assert place(SECONDS, value) == bucket


def test_settled_outcomes_are_counted_by_what_became_of_them() -> None:
    counting = Counting()
    for it in (
        outcome(),
        outcome("retry", "http.503", 0.004, 0),
        outcome("dead", "http.404", 70.0),
        outcome("cancelled", "robots"),
        Outcome(task=1, lease=1, result="released"),
    ):
        counting.settled(it)
    counting.stale()
    counting.lost(2)
    counting.asked(0.25)
    found = counting.report()
    assert (found.done, found.records, found.retries, found.stale, found.lost) == (1, 1, 1, 1, 2)
    assert (found.failed, found.dead) == ({"http.5xx": 1, "http.404": 1}, {"http.404": 1})
    assert (sum(found.took), found.took[0], found.took[-1]) == (4, 1, 1)
    assert (sum(found.size), found.size_sum, found.bytes) == (4, 15_000, 15_000)
    assert (found.asks, found.ask_seconds) == (1, 0.25)


def test_figures_of_another_version_are_no_figures() -> None:
    assert decode(b"\xc1 nothing") == Figures()
    assert decode(b"") == Figures()
    some = Figures(done=3, failed={"dns": 1}, lanes={"a": LaneFigures(1, 2, 3.0, 4)})
    assert decode(encode(some)) == some


def test_sums_and_differences_agree() -> None:
    one = Figures(done=3, failed={"dns": 1}, took=[1, 0, 2], lag=0.5, lanes={"a": LaneFigures(3, 1, 1.0, 9)})
    other = Figures(
        done=2, failed={"tls": 4}, took=[0, 5, 0], lag=0.1, lanes={"a": LaneFigures(1), "b": LaneFigures(1)}
    )
    both = plus(one, other)
    assert (both.done, both.failed, both.took, both.lag) == (5, {"dns": 1, "tls": 4}, [1, 5, 2], 0.5)
    assert both.lanes == {"a": LaneFigures(4, 1, 1.0, 9), "b": LaneFigures(1)}
    more = since(one, both)
    assert (more.done, more.failed, more.took) == (2, {"tls": 4}, [0, 5, 0])
    assert more.lanes == {"a": LaneFigures(1), "b": LaneFigures(1)}
    assert since(both, Figures()).done == 0  # whoever counts from 0 again has not counted backwards


def test_host_that_was_not_told_of_before_is_no_burst() -> None:
    before = Figures(done=100)
    now = Figures(done=103, lanes={"old": LaneFigures(90)})
    assert since(before, now).lanes["old"].done == 3


def test_busiest_hosts_are_those_of_now_and_few() -> None:
    counting = Counting()
    for number in range(2 * LANES_KEPT):
        for _ in range(number + 1):
            counting.visited(f"h{number}", outcome())
    first = counting.report().lanes
    assert len(first) == LANES_KEPT and f"h{2 * LANES_KEPT - 1}" in first and "h0" not in first
    for _ in range(100):
        counting.visited("h0", outcome("dead", "dns"))
    assert "h0" in counting.report().lanes
    assert counting.report().lanes["h0"].failed == 100


def test_hosts_that_are_idle_are_told_of_while_there_is_room() -> None:
    counting = Counting()
    counting.visited("quiet", outcome())
    for _ in range(12):
        told = counting.report().lanes
    assert told["quiet"].done == 1
    for number in range(LANES_KEPT):
        counting.visited(f"h{number}", outcome())
    told = counting.report().lanes
    assert len(told) == LANES_KEPT and "quiet" not in told


def test_hosts_that_are_counted_are_bounded() -> None:
    counting = Counting()
    for number in range(3 * LANES_COUNTED):
        counting.visited(f"h{number}", outcome())
    counting.report()
    assert len(counting._lanes) <= LANES_COUNTED


async def test_lag_shows_an_event_loop_that_was_held_up_and_one_that_is() -> None:
    told: list[bytes] = []
    counting = Counting()
    counting.watch(told.append)
    assert counting.lag == 0.0
    time.sleep(LAG_EVERY + 0.3)
    assert counting.lag >= 0.25  # seen from another thread while it lasts
    while len(told) < 2:
        await asyncio.sleep(0.01)
    assert decode(told[-1]).lag >= 0.25
    counting.stop()


def test_note_tells_figures_also_when_its_worker_took_it_away(tmp_path: Path) -> None:
    note, reader = Note.create(tmp_path, "w-1"), Reader(tmp_path / "w-1")
    note.figures(b"one")
    seen = reader.read()
    assert seen is not None and seen.figures == b"one"
    note.figures(b"two")
    note.close()
    assert read(tmp_path / "w-1") is None
    seen = reader.read()
    assert seen is not None and seen.figures == b"two"
    reader.close()


def test_half_written_figures_are_those_before() -> None:
    note = Note.unwritten()
    note.figures(b"one")
    note.figures(b"two")
    at = note._map[:].index(b"two")
    note._map[at : at + 1] = b"!"
    assert note.seen().figures == b"one"


def test_figures_always_fit_into_a_note() -> None:
    big = Figures(
        **dict.fromkeys(("done", "records", "retries", "bytes", "stale", "lost", "asks"), 2**53),
        failed=dict.fromkeys(CLASSES, 2**53),
        dead=dict.fromkeys(CLASSES, 2**53),
        took=[2**53] * (len(SECONDS) + 1),
        size=[2**53] * (len(SIZES) + 1),
        took_sum=1e9,
        ask_seconds=1e9,
        size_sum=2**60,
    )
    assert len(encode(big)) < FIGURES
    note = Note.unwritten()
    note.figures(encode(big))
    assert decode(note.seen().figures) == big
