"""Crawls by a browser with the real commands; killed ones leave nothing behind, lose nothing and double nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from rendered_crawl import RenderedCrawl, rendered_site_thread
from rendering import RenderedSite, need_browser
from server_process import running_server
from shell_user import SHOAL
from wait import FOREVER, HANG, wait_until

from shoal.queue.captures import MAX_CAPTURE, Capture, save_capture
from shoal.queue.sqlite import SqliteQueue

pytestmark = pytest.mark.timeout(600)
PAGES = 30


@pytest.fixture(scope="module")
def site() -> Iterator[RenderedSite]:
    need_browser()
    with rendered_site_thread() as site:
        yield site


def shoal(crawl: RenderedCrawl, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SHOAL, *arguments], cwd=crawl.folder, env=crawl.environment, capture_output=True, text=True, timeout=HANG
    )


async def keep_too_big(state: Path, task: int, number: int) -> None:
    queue = await SqliteQueue.open(str(state))
    assert await save_capture(queue, task, number, Capture("application/pdf", bytes(MAX_CAPTURE + 1)))
    await queue.close()


def records(crawl: RenderedCrawl) -> list[dict[str, int]]:
    return [json.loads(line) for line in (crawl.folder / "out.jsonl").read_text().splitlines()]


def killed_crawl(folder: Path, site: RenderedSite, kills: int, pages: int) -> tuple[RenderedCrawl, float]:
    """A crawl that is killed so often, and then may end; and the longest that anything was left behind."""
    crawl, longest = RenderedCrawl(folder, site, pages), 0.0
    for number in range(kills):
        kind = ("worker", "supervisor", "group")[number % 3]
        running = crawl.start()
        crawl.kill_some(running, kind)
        if kind == "worker":
            crawl.stop(running)
        running.wait(HANG)
        ended = time.monotonic()
        wait_until(lambda: not crawl.left())
        longest = max(longest, time.monotonic() - ended)
    assert crawl.start().wait(FOREVER) == 0, crawl.log()
    return crawl, longest


def test_a_crawl_by_a_browser_that_is_killed_again_and_again_loses_and_leaves_nothing(
    site: RenderedSite, tmp_path: Path
) -> None:
    crawl, _ = killed_crawl(tmp_path, site, kills=10, pages=PAGES)
    assert sorted(one["page"] for one in records(crawl)) == list(range(1, PAGES + 1))
    assert {one["items"] for one in records(crawl)} == {20}
    assert crawl.left() == []


def test_pages_whose_slot_goes_by_while_a_tab_is_opened_are_fetched_in_another(
    site: RenderedSite, tmp_path: Path
) -> None:
    crawl = RenderedCrawl(tmp_path, site, 6)
    assert crawl.start("--delay", "100ms").wait(HANG) == 0, crawl.log()
    assert sorted(one["page"] for one in records(crawl)) == [1, 2, 3, 4, 5, 6]


HANDLERS = """
import shoal

shop = shoal.Scraper("shop", start="{origin}/page/1")

@shop.page("/page/1")
def first(page):
    yield {{"plain": len(page.css(".item"))}}
    yield page.follow(["/page/2"])
    yield page.follow(["/search"], to=search)

@shop.page("/page/2", fetch="browser", steps=["wait .item"])
async def second(page):
    later = await page.perform("more #more until #item-30")
    [first, *others] = await page.responses("*/api/*")
    yield {{
        "items": [len(page.css(".item")), len(later.css(".item"))],
        "first": first.json()[0],
        "image": (await page.screenshot())[1:4].decode(),
        "errors": list(page.console_errors),
    }}

@shop.handler(fetch="browser")
async def search(page):
    found = await page.perform("fill #q = x", "press Enter in #q")
    yield {{"found": found.css("#result::text").get()}}
"""
TEMPLATE = """
name: shop
start: {origin}/page/1
pages:
  - match: /page/1
    follow: /page/*
  - match: /page/*
    fetch: browser
    steps:
      - wait .item
      - more: "#more"
        until: "#item-50"
    each: .item
    fields:
      name: ::text
"""


def test_handlers_say_which_pages_are_fetched_by_a_browser_and_captures_are_shown(
    site: RenderedSite, tmp_path: Path
) -> None:
    crawl = RenderedCrawl(tmp_path, site, 1)
    (tmp_path / "shop.py").write_text(HANDLERS.format(origin=site.origin))
    done = shoal(crawl, "run", "shop.py", "-o", "out.jsonl", "--workers", "1")
    assert done.returncode == 0, done.stderr
    found = {name: value for record in records(crawl) for name, value in record.items()}
    assert found["plain"] == 0
    assert found["items"][0] == 20
    assert found["items"][1] >= 40  # the page loads more by itself when its end comes into view
    assert (found["first"], found["image"], found["found"]) == (0, "PNG", "x")
    assert found["errors"] == ["a mistake of the page"]
    # What was captured is shown on the page of its task.
    task = json.loads(shoal(crawl, "why", f"{site.origin}/page/2", "--json").stdout)["id"]
    with running_server(f"sqlite:///{tmp_path}/.shoal/shoal.db", folder=tmp_path) as server:
        assert f'src="/tasks/{task}/captures/0"' in server.get(f"/tasks/{task}").text
        image = server.get(f"/tasks/{task}/captures/0")
        assert image.headers["content-type"] == "image/png"
        assert image.content.startswith(b"\x89PNG")
        assert {server.get(f"/tasks/{task}/captures/{n}").status_code for n in ("1", "-1", "x")} == {404}
    # One that is too big is told of.
    asyncio.run(keep_too_big(tmp_path / ".shoal" / "shoal.db", task, 1))
    with running_server(f"sqlite:///{tmp_path}/.shoal/shoal.db", folder=tmp_path) as server:
        assert "PDF file 2: 400 kB, which is too big" in server.get(f"/tasks/{task}").text
        assert server.get(f"/tasks/{task}/captures/1").status_code == 404


def test_templates_lists_and_routes_say_so_too(site: RenderedSite, tmp_path: Path) -> None:
    crawl = RenderedCrawl(tmp_path, site, 1)
    (tmp_path / "shop.yaml").write_text(TEMPLATE.format(origin=site.origin))
    done = shoal(crawl, "run", "shop.yaml", "-o", "out.jsonl", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert len(records(crawl)) == 60
    (tmp_path / "out.jsonl").unlink()
    (tmp_path / "routes").write_text("*/page/3* fetch=http\n*/page/* fetch=browser\n")
    urls = [f"{site.origin}/page/{number}" for number in (3, 4)]
    fields = ("-f", "item=.item::text", "--routes", "routes", "--steps", "wait .item")
    done = shoal(crawl, "run", *urls, *fields, "-o", "out.jsonl", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert {record["url"]: record["item"] for record in records(crawl)} == {urls[0]: None, urls[1]: "item 0"}


def test_saved_pages_are_read_again_as_the_browser_gave_them_and_without_one(
    site: RenderedSite, tmp_path: Path
) -> None:
    crawl = RenderedCrawl(tmp_path, site, 3)
    assert shoal(crawl, "run", "shop.py", "-o", "out.jsonl", "--keep-raw", "--workers", "1").returncode == 0
    first = sorted(records(crawl), key=str)
    assert [one["items"] for one in first] == [20, 20, 20]
    run = json.loads(shoal(crawl, "raw", "list", "--json").stdout)["runs"][0]["run"]
    site.requests.clear()
    # The scraper's pages are for a browser, and this machine has none.
    again = shoal(crawl, "run", "shop.py", "-o", "out.jsonl", "--fresh", "--from-raw", run, "--browser", "no-browser")
    assert again.returncode == 0, again.stderr
    assert sorted(records(crawl), key=str) == first
    assert not site.requests


def test_a_list_is_read_again_as_the_browser_gave_it(site: RenderedSite, tmp_path: Path) -> None:
    crawl = RenderedCrawl(tmp_path, site, 1)
    (tmp_path / "urls.txt").write_text(f"{site.origin}/page/1\n{site.origin}/page/2\n")
    command = ("run", "urls.txt", "-o", "out.jsonl", "--fetch", "auto", "--steps", "wait .item", "--workers", "1")
    done = shoal(crawl, *command, "-f", "item=.nothing")
    assert done.returncode == 3, done.stderr
    site.requests.clear()
    again = shoal(crawl, *command, "-f", "item=.item::text", "--reread")
    assert again.returncode == 0, again.stderr
    assert [record["item"] for record in records(crawl)] == ["item 0", "item 0"]
    assert not site.requests


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--steps", "evaluate alert(1)"], "'evaluate' is not an action"),
        (["--steps", "wait .item"], "steps are taken by a browser"),
        (["--fetch", "telepathy"], "telepathy"),
        (["--fetch", "browser", "--browser", "no-such-browser"], "there is no program no-such-browser"),
        (["--browser-load", "viruses"], "viruses"),
    ],
)
def test_what_cannot_be_done_is_said_at_once(
    site: RenderedSite, tmp_path: Path, arguments: list[str], said: str
) -> None:
    crawl = RenderedCrawl(tmp_path, site, 1)
    done = shoal(crawl, "run", f"{site.origin}/page/1", "-f", "item=.item", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert "try:" in done.stderr
