"""Pages that keep up by themselves while a real worker crawls, and say so when they cannot."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from backend_urls import backend_url
from browser import BrowserSession, browser_session, with_queue
from local_fleet import PLAIN_SCRAPER
from server_process import running_server
from shell_user import ShellUser
from small_site import SmallSite, small_site
from wait import HANG, wait_until

from shoal.core.lane import Pace
from shoal.core.run import NewRun, Run
from shoal.core.stats import Stats
from shoal.queue.base import Queue
from shoal.runs.identity import run_name
from shoal.sources.start_task import start_tasks

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAGES = 60
SPACING = 0.08
STEP = 20  # pages that are answered before the page must say so


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


def keeps_up(page: Page, address: str, run: Run, answered: threading.Semaphore) -> None:
    """Every number shown is one that the store had, and comes to be the one it has."""
    for goal in range(STEP, PAGES + 1, STEP):
        for _ in range(STEP):
            answered.release()
        shown = 0
        while shown < goal:
            before, shown = shown, number(page, "run:done")
            assert before <= shown <= stats(address, run).done
            page.wait_for_timeout(100)
        assert shown == goal


@pytest.mark.parametrize("kind", ["sqlite"])
def test_numbers_of_a_crawl_follow_the_store_without_reloading_and_end_as_it_does(
    browser: Browser, kind: str, tmp_path: Path
) -> None:
    address = backend_url(kind, tmp_path)
    with small_site() as site, ShellUser(tmp_path) as user:
        answered = threading.Semaphore(0)
        site.pages["/p/*"] = lambda hit: answered.acquire(timeout=HANG) and (200, {}, b"<h1>a page</h1>")
        (tmp_path / "plain.py").write_text(PLAIN_SCRAPER.format(name="plain", url=site.url()).format())
        run = submit(address, site)
        user.environment |= {"SHOAL_QUEUE": address, "SHOAL_ALLOW_PRIVATE": site.lane, "SHOAL_WORKERS": "1"}
        with running_server(address, folder=tmp_path) as server, browser_session(browser, server.url) as session:
            page = session.go(f"/runs/{run.name}")
            overview = session.context.new_page()
            overview.goto(server.url)
            marked(page)
            marked(overview)
            user.start("worker", "plain.py")
            keeps_up(page, address, run, answered)
            page.locator("h1 + .state", has_text="finished").wait_for()
            row = overview.locator("tr", has_text=run.name)
            row.get_by_text("finished").wait_for()
            found = stats(address, run)
            assert (found.done, found.dead, found.open) == (PAGES, 1, 0)
            for key in ("done", "seen", "dead", "records", "leased", "delayed"):
                wait_until(lambda key=key: number(page, f"run:{key}") == getattr(found, key))
            wait_until(lambda: number(overview, "fleet:totals.leased") == 0)
            assert row.get_by_role("link", name=str(PAGES), exact=True).count() == 2, "done, and records"
            wait_until(lambda: number(overview, "fleet:totals.dead") == 1)  # of all runs that are kept
            assert same(page) and same(overview)


def _live(session: BrowserSession) -> None:
    session.page.locator("#live[data-state=live]").wait_for()


def test_a_server_that_goes_away_is_noticed_and_so_is_its_return(browser: Browser, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/shoal.db"
    with small_site() as site:
        run = submit(address, site, pages=3)
    with running_server(address, "--no-maintenance") as server, browser_session(browser, server.url) as session:
        session.expected = (
            "ERR_CONNECTION_REFUSED",
            "ERR_INCOMPLETE_CHUNKED_ENCODING",
            "ERR_EMPTY_RESPONSE",
            "Failed to fetch",  # a part that was asked for at that moment
        )
        session.go(f"/runs/{run.name}")
        marked(session.page)
        _live(session)
        menu = session.page.locator(".nav").bounding_box()
        assert server.stop() == 0
        sign = session.page.locator("#live", has_text=re.compile(r"^offline since \d\d:\d\d:\d\d, retrying$"))
        sign.wait_for()
        assert sign.is_visible()
        assert session.page.locator(".nav").bounding_box() == menu, "what comes and goes in the bar does not move it"
        with running_server(address, "--no-maintenance", "--listen", f"127.0.0.1:{server.port}") as again:
            assert again.url == server.url
            _live(session)
            assert again.post(f"/api/v1/runs/{run.name}/pause").status_code == 200
            session.page.locator("h1 + .state", has_text="paused").wait_for()
            assert same(session.page)


TOLD_ONCE = """
window.EventSource = class extends EventTarget {
  constructor() { super(); setTimeout(() => this.dispatchEvent(new MessageEvent("run", { data: %r })), 100); }
  close() {}
}
"""


@pytest.mark.parametrize(
    ("at", "shown"),
    [pytest.param("2001-01-01T00:00:00.000Z", 0, id="older"), pytest.param("2999-01-01T00:00:00.000Z", 7, id="newer")],
)
def test_an_event_counts_unless_the_page_knows_more_already(
    browser: Browser, tmp_path: Path, at: str, shown: int
) -> None:
    address = f"sqlite:///{tmp_path}/shoal.db"
    with small_site() as site:
        run = submit(address, site, pages=3)
    with running_server(address, "--no-maintenance") as server, browser_session(browser, server.url) as session:
        event = json.dumps({"event": "run", "data": {"at": at, "done": 7}})
        session.context.add_init_script(TOLD_ONCE % event)
        parts: list[str] = []
        session.page.on(
            "response", lambda answer: parts.append(answer.url) if "hx-source" in answer.request.headers else None
        )
        page = session.go(f"/runs/{run.name}")
        wanted = 3 if shown else 1  # a part that is older than what was told is asked for again
        wait_until(lambda: page.wait_for_timeout(50) or len(parts) >= wanted)
        assert number(page, "run:done") == shown


def test_what_somebody_is_at_is_left_alone_by_what_is_new(browser: Browser, tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/shoal.db"
    with small_site() as site:
        run = submit(address, site, pages=3)
    with running_server(address, "--no-maintenance") as server, browser_session(browser, server.url) as session:
        page = session.go(f"/runs/{run.name}/tasks")
        _live(session)
        page.get_by_label("URL (* matches anything)").focus()
        page.keyboard.type("*/p")
        assert server.post(f"/api/v1/runs/{run.name}/pause").status_code == 200
        page.wait_for_timeout(2_500)  # more than the time between two looks; nothing to wait for
        page.keyboard.type("/1")
        assert page.get_by_label("URL (* matches anything)").input_value() == "*/p/1"
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile("url="))
        page.locator("tbody tr").first.wait_for()
        assert page.locator("tbody tr").count() == 1
        session.go(f"/runs/{run.name}")
        page.get_by_role("button", name="Cancel").click()
        assert server.post(f"/api/v1/runs/{run.name}/resume").status_code == 200
        page.wait_for_timeout(2_500)
        assert page.locator("dialog#confirm").is_visible()
        page.keyboard.press("Escape")
        page.locator("h1 + .state", has_text="paused").wait_for(state="detached")
