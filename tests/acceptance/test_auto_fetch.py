"""fetch="auto" by the real command, on a site of which scripts write one half, and then the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from rendering import HALVES, mixed_site, need_browser
from shell_user import ShellUser

PAGES = 16  # of each half
SCRAPER = """
import shoal

start = [{origin!r} + path for path in ("/left/1", "/right/1")]
shop = shoal.Scraper("shop", start=start, steps=["wait body[data-ready]"])

@shop.page("/*")
def page(page):
    for item in page.css(".item"):
        yield {{"item": item.text}}
    yield page.follow("nav a")
"""
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ShellUser]:
    with ShellUser(tmp_path) as user:
        yield user


def test_all_records_are_found_with_fewer_pages_in_the_browser(user: ShellUser) -> None:
    need_browser()
    with mixed_site(PAGES) as site:
        (user.folder / "shop.py").write_text(SCRAPER.format(origin=site.origin))

        def crawl() -> list[str]:
            done = user.shoal(
                "run", "shop.py", "--fetch", "auto", "--fresh", "-o", "out.jsonl", "--workers", "1", "--allow-private"
            )
            assert done.code == 0, done.err
            return sorted(json.loads(line)["item"] for line in (user.folder / "out.jsonl").read_text().splitlines())

        assert crawl() == site.all_items()
        assert site.by_browser.total() < 2 * PAGES
        site.swap()
        assert crawl() == site.all_items()
        assert max(map(site.pages_until_right, HALVES)) <= 20
