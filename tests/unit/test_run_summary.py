"""What a run says at its end: files, columns that stayed empty, and what to do next."""

from __future__ import annotations

import pytest

from shoal.cli.run_summary import fill_lines, summary_lines
from shoal.core.run import Run
from shoal.core.stats import Stats
from shoal.queue.base import DeadLetterGroup
from shoal.runs.progress import RunSummary, describe_cause, describe_failures

RUN = Run(id=1, name="7KQ2", scraper="pages", key="k", state="finished", created_at=1, changed_at=1)
DEAD = (DeadLetterGroup("a", "http.404", 8, "u", "", 1, 1), DeadLetterGroup("b", "timeout.total", 3, "u", "", 1, 1))


def test_files_are_listed_with_their_rows_and_what_is_in_them() -> None:
    files = (
        ("pages.csv", 1476, "url, title"),
        ("pages.failed.csv", 11, describe_failures(DEAD)),
        ("pages.rejected.csv", 1, ""),
    )
    stats = Stats(seen=1487, done=1476, dead=11, records=1476)
    lines = summary_lines(RunSummary(RUN, stats, "dead", dead=DEAD, files=files, output="pages.csv"))
    assert lines[2:5] == [
        "  pages.csv           1,476 rows: url, title",
        "  pages.failed.csv       11 rows: 8 × 404 not found · 3 × no answer in time",
        "  pages.rejected.csv      1 row",
    ]
    assert "  failed: 8 × http.404" in lines  # the cause by which others are asked for: shoal dead --cause
    assert any("shoal revive 7KQ2" in line for line in lines)


def test_without_a_file_some_records_are_shown_and_how_to_keep_them() -> None:
    first = ({"url": "https://a.example/", "title": "one\n two", "n": [], "text": "x" * 200},)
    lines = summary_lines(RunSummary(RUN, Stats(seen=3, done=3, records=3), "complete", first=first))
    shown = "\n".join(lines)
    assert "  · url: https://a.example/  title: one two  text: xxx" in shown and "x" * 61 not in shown
    assert "and 2 more records" in shown and "shoal export 7KQ2 -o pages.jsonl" in shown


def test_fields_that_are_often_empty_are_pointed_out() -> None:
    assert fill_lines((("title", 9, 9), ("sku", 0, 9), ("price", 4, 9), ("tag", 999, 1000))) == [
        "  filled in:",
        "    title  100 %  9 of 9",
        "    sku      0 %  0 of 9  ← never",
        "    price   44 %  4 of 9  ← rarely",
        "    tag     99 %  999 of 1,000",
    ]
    assert fill_lines((("title", 9, 9),)) == fill_lines(()) == []


def test_warnings_are_sentences_of_their_own() -> None:
    said = "price is filled in 3 % of records, last time 98 %"
    assert f"  ! {said}" in summary_lines(RunSummary(RUN, Stats(), "complete", warnings=(said,)))


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        ("http.404", "404 not found"),
        ("http.418", "status 418"),
        ("http.502", "502 server error"),
        ("timeout.connect", "no answer in time"),
        ("handler.KeyError", "errors in the handler"),
        ("something_new", "something_new"),
    ],
)
def test_causes_are_said_in_words(cause: str, words: str) -> None:
    assert describe_cause(cause) == words


def test_causes_with_the_same_words_are_counted_together() -> None:
    groups = (
        DeadLetterGroup("a", "timeout.total", 2, "u", "", 1, 1),
        DeadLetterGroup("a", "timeout.slow", 1, "u", "", 1, 1),
    )
    assert describe_failures(groups) == "3 × no answer in time"
