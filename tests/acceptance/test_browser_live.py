"""Pages that keep up by themselves while a real worker crawls, and say so when they cannot."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from browser import Visit, chromium, visit, with_queue
from control_room import room
from flotilla import PLAIN, queue_url
from small_site import SmallSite, small_site
from user import User, until

from shoal.control.runs import run_name
from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.extract.links import start_tasks
from shoal.queue.base import Queue

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = 60
SPACING = 0.08
PATIENCE = 40.0
OLDEST = 2.0  # seconds that a number on a page may be behind the store


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as made:
        yield made


def submit(address: str, site: SmallSite, pages: int = PAGES, spacing: float = SPACING) -> Run:
    tasks, _ = start_tasks([*(site.url(f"/p/{number}") for number in range(pages)), site.url("/missing")])

    async def job(queue: Queue) -> Run:
        new = NewRun("plain", f"k-{uuid4().hex}", run_name(), {"scraper": "plain", "mode": "distributed"})
        run = await queue.start_run(new)
        await queue.add(run.id, tasks, {task.lane: Pace(spacing, 4) for task in tasks})
        return run

    return with_queue(address, job)


def stats(address: str, run: Run) -> Stats:
    return with_queue(address, lambda queue: queue.stats(run.id))


def number(page: Page, key: str) -> int:
    return int(page.locator(f'[data-key="{key}"]').first.inner_text().replace(",", ""))


def marked(page: Page) -> None:
    page.evaluate("window.untouched = true")


def same(page: Page) -> bool:
    """Whether it was not loaded again since it was marked."""
    return bool(page.evaluate("window.untouched === true"))


def keeps_up(page: Page, address: str, run: Run, worker: subprocess.Popen[str]) -> set[int]:
    """Every number shown was the store's at most two seconds ago; all that were seen."""
    known: list[tuple[float, int]] = [(time.monotonic(), 0)]
    seen: set[int] = set()
    ends = time.monotonic() + PATIENCE
    while known[-1][1] < PAGES:
        assert worker.poll() is None and time.monotonic() < ends, "the worker does not work"
        asked = time.monotonic()
        value = number(page, "run:done")
        seen.add(value)
        known.append((time.monotonic(), stats(address, run).done))
        least = max((done for at, done in known if at < asked - OLDEST), default=0)
        assert least <= value <= known[-1][1], f"{value} is shown where the store has {known[-1][1]}"
        page.wait_for_timeout(100)
    return seen


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_numbers_of_a_crawl_follow_the_store_without_reloading_and_end_as_it_does(
    browser: Browser, kind: str, tmp_path: Path
) -> None:
    address = queue_url(kind, tmp_path)
    with small_site() as site, User(tmp_path) as user:
        site.pages["/p/*"] = 200, {}, b"<h1>a page</h1>"
        (tmp_path / "plain.py").write_text(PLAIN.format(name="plain", url=site.url()).format())
        run = submit(address, site)
        user.environment |= {"SHOAL_QUEUE": address, "SHOAL_ALLOW_PRIVATE": site.lane, "SHOAL_WORKERS": "1"}
        with room(address, folder=tmp_path) as server, visit(browser, server.url) as looker:
            page = looker.go(f"/runs/{run.name}")
            overview = looker.context.new_page()
            overview.goto(server.url)
            marked(page)
            marked(overview)
            worker = user.start("worker", "plain.py")
            seen = keeps_up(page, address, run, worker)
            assert any(0 < value < PAGES for value in seen), "it moves on, and does not jump to the end"
            page.locator("h1 + .state", has_text="finished").wait_for()
            row = overview.locator("tr", has_text=run.name)
            row.get_by_text("finished").wait_for()
            found = stats(address, run)
            assert (found.done, found.dead, found.open) == (PAGES, 1, 0)
            for key in ("done", "seen", "dead", "records", "leased", "delayed"):
                assert number(page, f"run:{key}") == getattr(found, key), key
            until(lambda: number(overview, "fleet:totals.leased") == 0)
            assert row.get_by_role("link", name=str(PAGES), exact=True).count() == 2, "done, and records"
            assert number(overview, "fleet:totals.dead") == 0, "of what is unfinished"
            assert same(page) and same(overview)


def _live(looker: Visit) -> None:
    looker.page.locator("#live[data-state=live]").wait_for()


def test_a_server_that_goes_away_is_noticed_and_so_is_its_return(browser: Browser, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/shoal.db"
    with small_site() as site:
        run = submit(address, site, pages=3)
    with room(address, "--no-upkeep") as server, visit(browser, server.url) as looker:
        looker.expected = (
            "ERR_CONNECTION_REFUSED",
            "ERR_INCOMPLETE_CHUNKED_ENCODING",
            "ERR_EMPTY_RESPONSE",
            "Failed to fetch",  # a part that was asked for at that moment
        )
        looker.go(f"/runs/{run.name}")
        marked(looker.page)
        _live(looker)
        assert server.stop() == 0
        sign = looker.page.locator(
            "#live", has_text=re.compile(r"^not live since \d\d:\d\d:\d\d, trying again$")
        )
        sign.wait_for()
        assert sign.is_visible()
        with room(address, "--no-upkeep", "--listen", f"127.0.0.1:{server.port}") as again:
            assert again.url == server.url
            _live(looker)
            assert again.post(f"/api/v1/runs/{run.name}/pause").status_code == 200
            looker.page.locator("h1 + .state", has_text="paused").wait_for()
            assert same(looker.page)


TOLD_ONCE = """
window.EventSource = class extends EventTarget {
  constructor() { super(); setTimeout(() => this.dispatchEvent(new MessageEvent("run", { data: %r })), 100); }
  close() {}
}
"""


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        pytest.param("2001-01-01T00:00:00.000Z", 0, id="older"),
        pytest.param("2999-01-01T00:00:00.000Z", 7, id="newer"),
    ],
)
def test_an_event_counts_unless_the_page_knows_more_already(
    browser: Browser, tmp_path: Path, at: str, shown: int
) -> None:
    address = f"sqlite:///{tmp_path}/shoal.db"
    with small_site() as site:
        run = submit(address, site, pages=3)
    with room(address, "--no-upkeep") as server, visit(browser, server.url) as looker:
        event = json.dumps({"event": "run", "data": {"at": at, "done": 7}})
        looker.context.add_init_script(TOLD_ONCE % event)
        parts: list[str] = []
        looker.page.on(
            "response",
            lambda answer: parts.append(answer.url) if "hx-source" in answer.request.headers else None,
        )
        page = looker.go(f"/runs/{run.name}")
        wanted = 3 if shown else 1  # a part that is older than what was told is asked for again
        until(lambda: page.wait_for_timeout(50) or len(parts) >= wanted)
        assert number(page, "run:done") == shown


def test_what_somebody_is_at_is_left_alone_by_what_is_new(browser: Browser, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/shoal.db"
    with small_site() as site:
        run = submit(address, site, pages=3)
    with room(address, "--no-upkeep") as server, visit(browser, server.url) as looker:
        page = looker.go(f"/runs/{run.name}/tasks")
        _live(looker)
        page.get_by_label("Address (* matches anything)").focus()
        page.keyboard.type("*/p")
        assert server.post(f"/api/v1/runs/{run.name}/pause").status_code == 200
        page.wait_for_timeout(2_500)  # more than the time between two looks
        page.keyboard.type("/1")
        assert page.get_by_label("Address (* matches anything)").input_value() == "*/p/1"
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("url="))
        assert page.locator("tbody tr").count() == 1
        looker.go(f"/runs/{run.name}")
        page.get_by_role("button", name="Cancel").click()
        assert server.post(f"/api/v1/runs/{run.name}/resume").status_code == 200
        page.wait_for_timeout(2_500)
        assert page.locator("dialog#confirm").is_visible()
        page.keyboard.press("Escape")
        page.locator("h1 + .state", has_text="paused").wait_for(state="detached")
