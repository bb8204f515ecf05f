"""What workers and the whole system are told as: restarts, versions, and a report without secrets."""

from __future__ import annotations

import pytest

from shoal.config import load
from shoal.control.history import Series
from shoal.control.sample import Base, Sample, Sight, measure, merge
from shoal.core.figures import Figures, encode
from shoal.core.lane import Mark
from shoal.queue.base import Finding, Promises
from shoal.version import __version__
from shoal.view.report import kept_words, report, skew
from shoal.view.series import fleet_series
from shoal.view.snapshot import Snapshot
from shoal.web.pages.fleet import replaced

SCALE = {"desired_workers": 3, "current_workers": 1, "reason": "hosts allow more"}
PROMISES = Promises("everything", False, "one machine")


def mark(id: str, name: str = "", version: str = __version__) -> Mark:
    return Mark(id, name or id.rpartition("-")[0], "node", 1, version, 0, 0)


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
def test_processes_that_were_started_anew_are_counted_by_worker(
    ids: list[str], found: dict[str, int]
) -> None:
    assert replaced([mark(id) for id in ids]) == found


def test_a_number_that_is_a_part_of_the_name_is_no_restart() -> None:
    assert replaced([mark("w-12345678", name="w-12345678")]) == {}


def test_other_versions_are_named_with_their_number() -> None:
    assert skew([mark("a-1")]) == ""
    marks = [mark("a-1"), mark("b-1", version="9.1"), mark("b-2", version="9.1")]
    assert skew(marks) == f"2 workers 9.1; this server {__version__}"


@pytest.mark.parametrize(("days", "words"), [(0, "for ever"), (1, "1 day after"), (30, "30 days after")])
def test_how_long_runs_are_kept(days: int, words: str) -> None:
    assert words in kept_words(load({"retention": str(days)}, env={}))


def test_a_report_has_everything_but_secrets() -> None:
    settings = load(
        {"store": "postgresql://me:hush@db.example/x", "token": "not-to-be-told-to-anybody"}, env={}
    )
    snapshot = Snapshot(1_700_000_000_000_000, workers=(mark("a-1"),))
    text = report(
        snapshot, settings, PROMISES, SCALE, apart=0.25, answers=0.001,
        place="redis://me:hush@queue.example/0",
        findings=(Finding("schema", "ok", "14 of\n14"),),
    )  # fmt: skip
    assert "hush" not in text and "not-to-be-told" not in text
    for words in (
        f"shoal {__version__}",
        "queue.example",
        "+0.250 s",
        "1.00 ms",
        "wanted 3",
        "hosts allow more",
    ):
        assert words in text
    assert text.splitlines()[-1] == "ok schema: 14 of 14", "one line for each"


def test_the_time_of_a_question_is_measured_between_two_looks() -> None:
    def sight(now: int, asks: int, seconds: float) -> Sight:
        told = encode(Figures(asks=asks, ask_seconds=seconds))
        return Sight(now * 1_000_000, (), (Mark("a-1", "a", "node", 1, "1", 1, 0, figures=told),), {})

    _, base = measure(Base(), sight(1_000, 100, 5.0))
    first, base = measure(base, sight(1_010, 110, 5.02))
    second, _ = measure(base, sight(1_020, 110, 5.02))
    assert (first.asks, first.ask_seconds, second.asks) == (10, 0.02, 0)
    drawn = fleet_series(Series(1_025.0, (first, second)), 0.01)
    assert [value for value in drawn["ask"] if value is not None] == [0.002]
    both = merge([first, Sample(1_030, asks=10, ask_seconds=0.04)])
    assert (both.asks, both.ask_seconds) == (20, 0.06)
