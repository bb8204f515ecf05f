"""The hostile site, every page of it by a browser: it ends within its limits, and reaches nothing that is private."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rendering import need_browser

from shoal.fetch.browser.process_tree import descendants, own_share

sys.path.insert(0, str(Path(__file__).parents[1] / "site"))

from hostile.crawl import CrawlResult, Sites, crawl
from hostile.memory import tree
from hostile.registry import BEHAVIOURS

MOST_MEMORY = 1_000_000_000  # bytes of a browser with all of its processes
PAGE_TIMEOUT = 15  # seconds
# An answer that a browser may not have noticed, as it had only begun; or one that it makes the best of.
ENDS = {"done", "too_complex", "too_large", "bad_response", "decode", "connect", "tls", "dns", "browser", "robots"}

pytestmark = [pytest.mark.faults, pytest.mark.timeout(2_400)]


class BrowserMemory:
    """The most that any browser below this process takes, measured exactly, again and again."""

    def __init__(self) -> None:
        self.most = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            for pid in filter(_is_browser, tree(os.getpid())):
                self.most = max(self.most, sum(map(own_share, descendants(pid))))


def _is_browser(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"chrom" in words[0] and not any(word.startswith(b"--type=") for word in words)


@dataclass(frozen=True)
class Crawled:
    result: CrawlResult
    canary: dict[str, int]
    notes: dict[str, int]
    most_memory: int
    pages: int


@pytest.fixture(scope="module")
def crawled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crawled]:
    need_browser()
    limits = ("--fetch", "browser", "--browser-timeout", f"{PAGE_TIMEOUT}s", "--workers", "1")
    memory = BrowserMemory()
    with Sites(hosts=1, pages=5) as sites:
        result = crawl(sites, tmp_path_factory.mktemp("hostile"), BEHAVIOURS, limits, timeout=1_800)
        seen = sites.seen()
        memory.stop()
        yield Crawled(result, seen["canary"], seen["notes"], memory.most, sites.pages)


def test_the_run_ends_by_itself_with_its_account_in_balance(crawled: Crawled) -> None:
    assert crawled.result.code == 3, crawled.result.words[-2_000:]
    assert crawled.result.is_balanced
    assert "Traceback" not in crawled.result.words


def test_every_page_ends_and_for_a_reason_that_is_known(crawled: Crawled) -> None:
    known = ("timeout.", "http.", "blocked.", "redirects", "robots")
    odd = [str(one) for one in crawled.result.results if one.outcome not in ENDS and not one.outcome.startswith(known)]
    assert odd == []


def test_nobody_reaches_the_canary(crawled: Crawled) -> None:
    assert crawled.canary == {}
    assert not {"canary", "smuggled"} & crawled.result.titles


def test_secrets_and_cookies_stay_with_the_host_they_belong_to(crawled: Crawled) -> None:
    assert crawled.notes == {"secret_at_home": 1}
    assert crawled.result.with_cookies == 0


def test_no_browser_takes_more_than_a_gigabyte(crawled: Crawled) -> None:
    assert 0 < crawled.most_memory <= MOST_MEMORY


def test_the_neighbours_are_crawled_whole(crawled: Crawled) -> None:
    assert crawled.result.neighbour_pages == crawled.pages
