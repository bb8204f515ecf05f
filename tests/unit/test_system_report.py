"""What workers and the whole system are told as: restarts, versions, and a report without secrets."""

from __future__ import annotations

import pytest

from shoal.config.load import load
from shoal.control.history import Series
from shoal.control.history_sample import Baseline, Observation, Sample, measure, merge
from shoal.core.counters import Counters, encode
from shoal.core.lane import WorkerStatus
from shoal.queue.base import Finding, Promises
from shoal.version import __version__
from shoal.view.report import format_retention, system_report, version_skew
from shoal.view.series import fleet_series
from shoal.view.snapshot import Snapshot
from shoal.web.pages.workers import restarts

SCALE = {"desired_workers": 3, "current_workers": 1, "reason": "hosts allow more"}
PROMISES = Promises("everything", False, "one machine")


def worker_status(id: str, name: str = "", version: str = __version__) -> WorkerStatus:
    return WorkerStatus(id, name or id.rpartition("-")[0], "node", 1, version, 0, 0)


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (["a-1", "a-2"], {"a": 0}),
        (["a-1", "a-3"], {"a": 1}),
        (["a-12"], {"a": 11}),
        (["node-04-7f-2", "node-04-7f-5"], {"node-04-7f": 3}),
        (["odd"], {}),
        (["w-4af3"], {}),
    ],
)
def test_processes_that_were_started_anew_are_counted_by_worker(ids: list[str], found: dict[str, int]) -> None:
    assert restarts([worker_status(id) for id in ids]) == found


def test_a_number_that_is_a_part_of_the_name_is_no_restart() -> None:
    assert restarts([worker_status("w-12345678", name="w-12345678")]) == {}


def test_other_versions_are_named_with_their_number() -> None:
    assert version_skew([worker_status("a-1")]) == ""
    marks = [worker_status("a-1"), worker_status("b-1", version="9.1"), worker_status("b-2", version="9.1")]
    assert version_skew(marks) == f"2 workers 9.1; this server {__version__}"


@pytest.mark.parametrize(("days", "words"), [(0, "forever"), (1, "1 day after"), (30, "30 days after")])
def test_how_long_runs_are_kept(days: int, words: str) -> None:
    assert words in format_retention(load({"retention": str(days)}, env={}))


def test_a_report_has_everything_but_secrets() -> None:
    settings = load({"store": "postgresql://me:hush@db.example/x", "token": "not-to-be-told-to-anybody"}, env={})
    snapshot = Snapshot(1_700_000_000_000_000, workers=(worker_status("a-1"),))
    text = system_report(
        snapshot, settings, PROMISES, SCALE, apart=0.25, answers=0.001,
        place="redis://me:hush@queue.example/0",
        findings=(Finding("schema", "ok", "14 of\n14"),),
    )  # fmt: skip
    assert "hush" not in text and "not-to-be-told" not in text
    for words in (f"shoal {__version__}", "queue.example", "+0.250 s", "1.00 ms", "needed 3", "hosts allow more"):
        assert words in text
    assert text.splitlines()[-1] == "ok schema: 14 of 14", "one line for each"


def test_the_time_of_a_question_is_measured_between_two_looks() -> None:
    def sight(now: int, asks: int, seconds: float) -> Observation:
        told = encode(Counters(asks=asks, ask_seconds=seconds))
        return Observation(now * 1_000_000, (), (WorkerStatus("a-1", "a", "node", 1, "1", 1, 0, counters=told),), {})

    _, base = measure(Baseline(), sight(1_000, 100, 5.0))
    first, base = measure(base, sight(1_010, 110, 5.02))
    second, _ = measure(base, sight(1_020, 110, 5.02))
    assert (first.asks, first.ask_seconds, second.asks) == (10, 0.02, 0)
    drawn = fleet_series(Series(1_025.0, (first, second)), 0.01)
    assert [value for value in drawn["ask"] if value is not None] == [0.002]
    both = merge([first, Sample(1_030, asks=10, ask_seconds=0.04)])
    assert (both.asks, both.ask_seconds) == (20, 0.06)
