"""The hostile site: a few hundred ways to go wrong in one crawl, and well-behaved hosts beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "site"))

from hostile.crawl import BehaviourResult, CrawlResult, Sites, crawl
from hostile.registry import BEHAVIOURS

PAGES = 200  # of each neighbour
MOST_MEMORY = 256.0  # MB
# On a busy machine a page may reach a limit of time before the one it is there for.
PATIENT = (
    *("--timeout", "90", "--first-byte-timeout", "20", "--connect-timeout", "20"),
    *("--slow-for", "20", "--parse-timeout", "20"),
)

pytestmark = pytest.mark.timeout(600)  # two crawls, on however busy a machine


@dataclass(frozen=True)
class Both:
    alone: CrawlResult
    beside: CrawlResult
    again: tuple[BehaviourResult, ...]  # what did not end as it should, with all the time in the world
    canary: dict[str, int]
    notes: dict[str, int]
    pages: int


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The neighbours crawled alone, then beside everything that is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    with Sites(pages=PAGES) as sites:
        alone = crawl(sites, folder / "alone", (), timeout=280)
        beside = crawl(sites, folder / "beside", BEHAVIOURS, timeout=280)
        seen = sites.seen()
        wrong = [one.behaviour for one in beside.results if not one.as_expected]
        again = crawl(sites, folder / "again", wrong, PATIENT, timeout=280).results if wrong else ()
        yield Both(alone, beside, again, seen["canary"], seen["notes"], sites.pages)


def test_there_are_enough_behaviours_each_with_a_name_and_an_expectation() -> None:
    assert len(BEHAVIOURS) >= 60
    assert all(one.name and one.expect and one.why for one in BEHAVIOURS)


def test_a_run_over_the_hostile_site_ends_by_itself_with_its_account_in_balance(both: Both) -> None:
    assert both.alone.code == 0, both.alone.words[-2_000:]
    assert both.beside.code == 3, both.beside.words[-2_000:]
    assert both.beside.is_balanced


def test_every_page_ends_as_it_should(both: Both) -> None:
    assert [str(fate) for fate in both.again if not fate.as_expected] == []


def test_no_process_grows_beyond_its_memory(both: Both) -> None:
    assert {name: peak for name, peak in both.beside.peaks.items() if peak > MOST_MEMORY} == {}


def test_nobody_ever_reaches_the_canary(both: Both) -> None:
    assert both.canary == {}
    assert "canary" not in both.beside.titles


def test_no_request_gets_an_answer_that_was_meant_for_another(both: Both) -> None:
    assert "smuggled" not in both.beside.titles


def test_secrets_and_cookies_stay_with_the_host_they_belong_to(both: Both) -> None:
    assert both.notes == {"secret_at_home": 1}
    assert both.beside.with_cookies == 0


def test_nothing_of_ours_breaks_on_the_way(both: Both) -> None:
    assert "Traceback" not in both.beside.words


def test_the_neighbours_are_crawled_whole(both: Both) -> None:
    assert both.alone.neighbour_pages == both.beside.neighbour_pages == both.pages
