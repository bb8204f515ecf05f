"""What a run says at its end: files, columns that stayed empty, and what to do next."""

from __future__ import annotations

import pytest

from shoal.cli.progress import header_lines
from shoal.cli.run_summary import fill_lines, summary_lines
from shoal.cli.status import _filled
from shoal.core.run import Run
from shoal.core.run_counters import FieldFill, sitemap_usage
from shoal.core.stats import Stats
from shoal.queue.base import DeadLetterGroup
from shoal.runs.no_records import NoRecords, is_without_records
from shoal.runs.progress import RunInfo, RunSummary, describe_cause, describe_failures
from shoal.view.no_records import describe_no_records

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


@pytest.mark.parametrize(
    ("read", "aside", "dead", "failed", "told"),
    [
        (0, 0, 2, "; 2 pages failed.", ""),
        (2, 3, 1, "; 1 sitemap failed.", "2 sitemaps read: 40 URLs listed; 1 failed"),
        (1, 2, 3, "; 2 pages and 1 sitemap failed.", "1 sitemap read: 40 URLs listed; 1 failed"),
        (0, 1, 1, "; 1 sitemap failed.", ""),
        (1, 1, 0, " B.", "1 sitemap read: 40 URLs listed"),
    ],
)
def test_a_sitemap_that_failed_is_not_called_a_page(read: int, aside: int, dead: int, failed: str, told: str) -> None:
    stats = Stats(seen=9, done=9 - dead, dead=dead, aside=aside, records=5)
    sitemaps = sitemap_usage({"sitemap.read": read, "sitemap.entries": 40}, stats)
    lines = summary_lines(RunSummary(RUN, stats, "complete", sitemaps=sitemaps))
    assert lines[0].endswith(failed)
    assert f"{9 - dead - read} page" in lines[0]
    assert [line.strip() for line in lines if "URLs listed" in line] == ([told] if told else [])


@pytest.mark.parametrize(
    ("causes", "words"),
    [
        (("http.404", "robots.disallowed", "blocked.private"), ""),
        (("handler.KeyError",), "when the code is fixed, requeue it"),
        (("http.404", "handler.KeyError", "timeout.total"), "    requeue it"),
    ],
)
def test_what_would_fail_again_is_not_to_be_requeued(causes: tuple[str, ...], words: str) -> None:
    dead = tuple(DeadLetterGroup("a", cause, 1, "u", "", 1, 1) for cause in causes)
    stats = Stats(seen=9, done=9 - len(dead), dead=len(dead), records=5)
    shown = "\n".join(summary_lines(RunSummary(RUN, stats, "dead", dead=dead)))
    assert ("shoal revive" in shown) == bool(words) and words in shown and "shoal dead 7KQ2" in shown
    assert ("--allow-private" in shown) == ("blocked.private" in causes)


@pytest.mark.parametrize(("cause", "is_explained"), [("handler.KeyError", False), ("http.404", True)])
def test_where_the_code_failed_no_selector_is_blamed_and_next_is_said_once(cause: str, is_explained: bool) -> None:
    dead = (DeadLetterGroup("a", cause, 3, "u", "", 1, 1),)
    found = NoRecords(6, 9, 5, page="https://a.example/")
    stats = Stats(seen=9, done=6, dead=3)
    lines = summary_lines(RunSummary(RUN, stats, "dead", dead=dead, no_records=found))
    shown = "\n".join(lines)
    assert ("No records: " in shown) == ("shoal shell https://a.example/" in shown) == is_explained
    assert shown.count("Next: ") == 1 and lines[-1].startswith(("Next: ", "      shoal "))


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


def test_where_no_field_was_ever_found_the_next_step_is_said() -> None:
    stats, page = Stats(seen=9, done=9, records=9), "https://a.example/"
    lines = summary_lines(RunSummary(RUN, stats, "no_records", fill=(("sku", 0, 9),), empty_page=page))
    assert lines[-1].startswith("Next: shoal shell https://a.example/ ")


def test_pages_that_were_read_again_are_not_called_a_crawl() -> None:
    stats = Stats(seen=9, done=9, records=9)
    assert summary_lines(RunSummary(RUN, stats, "complete", is_reread=True))[0].startswith("Read again: 9 pages")
    info = RunInfo(RUN, stats, "here", pace="at most 1 page/s per site", is_reread=True)
    assert "no site is asked while saved pages are read again" in (said := "\n".join(header_lines(info)))
    assert "page/s" not in said and "robots" not in said


def test_warnings_are_sentences_of_their_own() -> None:
    said = "price is filled in 3 % of records, last time 98 %"
    assert f"  ! {said}" in summary_lines(RunSummary(RUN, Stats(), "complete", warnings=(said,)))


def test_a_run_without_records_says_why_in_words_that_fit_the_numbers() -> None:
    one = NoRecords(1, 1, 1, ("https://a.example/x\x1b[2J",), ((".a", 1),), "https://a.example/?a=1&b=2", ("/p/*",))
    assert describe_no_records(one) == [
        "No records: 1 page was fetched and 1 link found, but nothing was extracted.",
        "  1 of 1 link matches no handler, such as",
        "    https://a.example/x\N{REPLACEMENT CHARACTER}[2J",
        "  handlers are for /p/*",
        "  .a found nothing on 1 page",
        "Next: shoal shell 'https://a.example/?a=1&b=2'    try selectors on a page",
    ]
    many = describe_no_records(NoRecords(2, 9, 5, page="http://127.0.0.1:8808/"))
    assert many[0].startswith("No records: 2 pages were fetched and 9 links found")
    assert "  5 of 9 links match no handler, such as" in many and many[-1].startswith("Next: ")
    assert "shoal shell http://127.0.0.1:8808/ --allow-private" in many[-1]
    assert any("filled in by scripts" in line for line in describe_no_records(NoRecords(2, 0, 0)))


@pytest.mark.parametrize(
    ("stats", "is_empty"),
    [
        (Stats(seen=3, done=3), True),
        (Stats(seen=3, done=3, records=1), False),
        (Stats(seen=3, dead=3), False),  # there is a cause for each of them
        (Stats(seen=1, done=1, skipped={"seen": 4}), False),  # nothing is new
    ],
)
def test_only_pages_that_were_read_and_gave_nothing_are_a_run_without_records(stats: Stats, is_empty: bool) -> None:
    assert is_without_records(RUN, stats) is is_empty


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


def test_a_field_that_only_some_records_have_is_not_said_to_be_filled_in_all_of_them() -> None:
    fill = {"type": FieldFill(9, 9, {}), "price": FieldFill(3, 3, {})}
    assert _filled(fill, 9) == "type 100 % · price 100 % of the 3 that have it"
