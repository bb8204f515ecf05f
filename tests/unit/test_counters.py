"""What workers count: classes of errors, sums and differences, lag, and the way to a supervisor."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from shoal.core.counters import (
    DURATION_BOUNDS,
    ERROR_CLASSES,
    MAX_REPORTED_LANES,
    SIZE_BOUNDS,
    Counters,
    LaneCounters,
    bucket_index,
    combine,
    decode,
    difference,
    encode,
    error_class,
)
from shoal.core.retry import RULES
from shoal.core.task import Attempt, Outcome, Result
from shoal.worker.counters import LAG_INTERVAL, MAX_TRACKED_LANES, CounterRecorder
from shoal.worker.pool.crash_note import MAX_COUNTER_BYTES, CrashNote, CrashNoteReader, read_note


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
    assert {error_class(cause) for cause in RULES} <= set(ERROR_CLASSES)
    unclear = {cause for cause in RULES if error_class(cause) == "other"}
    assert unclear == {"http", "lane_busy", "stalled", "closed", "not_kept", "garbled"}


@pytest.mark.parametrize(("value", "bucket"), [(0.0, 0), (0.005, 0), (0.0051, 1), (60.0, 12), (61.0, 13)])
def test_upper_bounds_belong_to_their_bucket(value: float, bucket: int) -> None:
    assert bucket_index(DURATION_BOUNDS, value) == bucket


def test_settled_outcomes_are_counted_by_what_became_of_them() -> None:
    recorder = CounterRecorder()
    for it in (
        outcome(),
        outcome("retry", "http.503", 0.004, 0),
        outcome("dead", "http.404", 70.0),
        outcome("cancelled", "robots"),
        Outcome(task=1, lease=1, result="released"),
    ):
        recorder.count_settled(it)
    recorder.count_stale()
    recorder.count_lost(2)
    recorder.count_queue_call(0.25)
    found = recorder.snapshot()
    assert (found.done, found.records, found.retries, found.stale, found.lost) == (1, 1, 1, 1, 2)
    assert (found.failed, found.dead) == ({"http.5xx": 1, "http.404": 1}, {"http.404": 1})
    assert (sum(found.took), found.took[0], found.took[-1]) == (4, 1, 1)
    assert (sum(found.size), found.size_sum, found.bytes) == (4, 15_000, 15_000)
    assert (found.asks, found.ask_seconds) == (1, 0.25)


def test_counters_of_another_version_are_no_counters() -> None:
    assert decode(b"\xc1 nothing") == Counters()
    assert decode(b"") == Counters()
    some = Counters(done=3, failed={"dns": 1}, lanes={"a": LaneCounters(1, 2, 3.0, 4)})
    assert decode(encode(some)) == some


def test_sums_and_differences_agree() -> None:
    one = Counters(done=3, failed={"dns": 1}, took=[1, 0, 2], lag=0.5, lanes={"a": LaneCounters(3, 1, 1.0, 9)})
    other = Counters(
        done=2, failed={"tls": 4}, took=[0, 5, 0], lag=0.1, lanes={"a": LaneCounters(1), "b": LaneCounters(1)}
    )
    both = combine(one, other)
    assert (both.done, both.failed, both.took, both.lag) == (5, {"dns": 1, "tls": 4}, [1, 5, 2], 0.5)
    assert both.lanes == {"a": LaneCounters(4, 1, 1.0, 9), "b": LaneCounters(1)}
    more = difference(one, both)
    assert (more.done, more.failed, more.took) == (2, {"tls": 4}, [0, 5, 0])
    assert more.lanes == {"a": LaneCounters(1), "b": LaneCounters(1)}
    assert difference(both, Counters()).done == 0  # whoever counts from 0 again has not counted backwards


def test_host_that_was_not_told_of_before_is_no_burst() -> None:
    before = Counters(done=100)
    now = Counters(done=103, lanes={"old": LaneCounters(90)})
    assert difference(before, now).lanes["old"].done == 3


def test_errors_in_the_code_are_told_apart_from_those_of_a_host() -> None:
    recorder = CounterRecorder()
    causes = ("handler.KeyError", "handler_timeout", "memory", "http.503", "missing_field")
    for it in (outcome(), *(outcome("dead", cause) for cause in causes)):
        recorder.count_attempt("h", it)
        recorder.count_settled(it)
    now = recorder.snapshot()
    assert (now.lanes["h"].done, now.lanes["h"].failed, now.lanes["h"].code_errors) == (1, 5, 3)
    assert decode(encode(now)).lanes == now.lanes
    assert difference(Counters(), now).lanes["h"].code_errors == 3
    assert combine(now, now).lanes["h"].code_errors == 6


def test_busiest_hosts_are_those_of_now_and_few() -> None:
    recorder = CounterRecorder()
    for number in range(2 * MAX_REPORTED_LANES):
        for _ in range(number + 1):
            recorder.count_attempt(f"h{number}", outcome())
    first = recorder.snapshot().lanes
    assert len(first) == MAX_REPORTED_LANES and f"h{2 * MAX_REPORTED_LANES - 1}" in first and "h0" not in first
    for _ in range(100):
        recorder.count_attempt("h0", outcome("dead", "dns"))
    assert "h0" in recorder.snapshot().lanes
    assert recorder.snapshot().lanes["h0"].failed == 100


def test_hosts_that_are_idle_are_told_of_while_there_is_room() -> None:
    recorder = CounterRecorder()
    recorder.count_attempt("quiet", outcome())
    for _ in range(12):
        told = recorder.snapshot().lanes
    assert told["quiet"].done == 1
    for number in range(MAX_REPORTED_LANES):
        recorder.count_attempt(f"h{number}", outcome())
    told = recorder.snapshot().lanes
    assert len(told) == MAX_REPORTED_LANES and "quiet" not in told


def test_hosts_that_are_counted_are_bounded() -> None:
    recorder = CounterRecorder()
    for number in range(3 * MAX_TRACKED_LANES):
        recorder.count_attempt(f"h{number}", outcome())
    recorder.snapshot()
    assert len(recorder._lanes) <= MAX_TRACKED_LANES


async def test_lag_shows_an_event_loop_that_was_held_up_and_one_that_is() -> None:
    told: list[bytes] = []
    recorder = CounterRecorder()
    recorder.watch_lag(told.append)
    assert recorder.lag == 0.0
    time.sleep(LAG_INTERVAL + 0.3)
    assert recorder.lag >= 0.25  # seen from another thread while it lasts
    while len(told) < 2:
        await asyncio.sleep(0.01)
    assert decode(told[-1]).lag >= 0.25
    recorder.stop()


def test_note_tells_counters_also_when_its_worker_took_it_away(tmp_path: Path) -> None:
    note, reader = CrashNote.create(tmp_path, "w-1"), CrashNoteReader(tmp_path / "w-1")
    note.write_counters(b"one")
    snapshot = reader.read()
    assert snapshot is not None and snapshot.counters == b"one"
    note.write_counters(b"two")
    note.close()
    assert read_note(tmp_path / "w-1") is None
    snapshot = reader.read()
    assert snapshot is not None and snapshot.counters == b"two"
    reader.close()


def test_half_written_counters_are_those_before() -> None:
    note = CrashNote.in_memory()
    note.write_counters(b"one")
    note.write_counters(b"two")
    at = note._map[:].index(b"two")
    note._map[at : at + 1] = b"!"
    assert note.snapshot().counters == b"one"


def test_counters_always_fit_into_a_note() -> None:
    big = Counters(
        **dict.fromkeys(("done", "records", "retries", "bytes", "stale", "lost", "asks"), 2**53),
        failed=dict.fromkeys(ERROR_CLASSES, 2**53),
        dead=dict.fromkeys(ERROR_CLASSES, 2**53),
        took=[2**53] * (len(DURATION_BOUNDS) + 1),
        size=[2**53] * (len(SIZE_BOUNDS) + 1),
        took_sum=1e9,
        ask_seconds=1e9,
        size_sum=2**60,
    )
    assert len(encode(big)) < MAX_COUNTER_BYTES
    note = CrashNote.in_memory()
    note.write_counters(encode(big))
    assert decode(note.snapshot().counters) == big
