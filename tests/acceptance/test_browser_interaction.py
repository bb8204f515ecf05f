"""Pages in a real browser: live, asking before they act, by keyboard, on a phone, and without scripts."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from busy_queue import SERVES
from playwright.sync_api import Browser, BrowserContext, Page, expect
from server_process import ServerProcess, running_server
from test_pages_html import RUN
from wait import HANG

from shoal.core.task import Outcome
from shoal.queue.sqlite import SqliteQueue


def in_thread(job: Coroutine[Any, Any, Any]) -> None:
    """In a thread of its own: the browser's driver has an event loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, job).result()


@pytest.fixture(scope="module")
def queue(shown: Path) -> Path:
    """A copy, which tests may change."""
    return copied(shown, "mine")


def copied(path: Path, name: str) -> Path:
    copy = path.parent / f"{name}.db"
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    return copy


@pytest.fixture(scope="module")
def server(queue: Path) -> Iterator[ServerProcess]:
    with running_server(f"sqlite:///{queue}", "--no-maintenance") as made:
        yield made


class PageReader:
    """Somebody in front of a page; what the browser complains about is kept."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.set_default_timeout(HANG * 1_000)
        page.on("console", lambda it: self.complaints.append(it.text) if it.type == "error" else None)
        page.on("pageerror", lambda it: self.complaints.append(str(it)))

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    made = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield made
    made.close()


@pytest.fixture
def reader(context: BrowserContext, server: ServerProcess) -> PageReader:
    return PageReader(context.new_page(), server.url)


async def work(path: Path, count: int) -> int:
    """Do so many pages of the showroom's big run; says how many there were to do."""
    queue = await SqliteQueue.open(str(path))
    try:
        done = 0
        await queue.reap({f"node0{n}-7f3a-{m}": [] for n in (4, 5) for m in (1, 2)})  # what they held
        while done < count:
            claim = await queue.claim("somebody", min(3, count - done), serves=SERVES)
            settled = [Outcome(task.id, task.lease, "done", records=(b"{}",)) for task in claim.tasks]
            await queue.settle(settled)
            done += len(settled)
            await asyncio.sleep(0.05)
        return done
    finally:
        await queue.close()


def test_numbers_and_lists_keep_up_by_themselves(reader: PageReader, queue: Path) -> None:
    page = reader.open(f"/runs/{RUN}")
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("window.here = true")
    number = page.locator('[data-key="run:done"]')
    before = int(number.inner_text().replace(",", ""))
    row = page.locator("p.key .k-done")
    share = row.inner_text()
    in_thread(work(queue, 12))
    expect(number).to_have_text(f"{before + 12:,}")
    expect(row).not_to_have_text(share)
    assert page.evaluate("window.here"), "the page was not loaded again"
    assert reader.complaints == []


def test_an_action_is_asked_about_first_and_can_be_undone(reader: PageReader, server: ServerProcess) -> None:
    page = reader.open(f"/runs/{RUN}")
    page.get_by_role("button", name="Pause", exact=True).click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text(f"Pause run {RUN}?")
    expect(dialog).to_contain_text(f"shoal pause {RUN}")
    expect(dialog).to_contain_text(f"{server.url}/api/v1/runs/{RUN}/pause")
    dialog.get_by_role("button", name="Go back").click()
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "running"
    page.get_by_role("button", name="Pause", exact=True).click()
    dialog.locator("[data-confirm]").click()
    expect(page.locator("#flash")).to_contain_text(f"Run {RUN} is paused.")
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "paused"
    page.locator("#flash").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "running"
    assert reader.complaints == []


def test_the_pace_of_a_host_is_shown_in_its_command_before_it_is_set(reader: PageReader, server: ServerProcess) -> None:
    page = reader.open("/hosts/shop01.example")
    page.get_by_label("Seconds between requests").fill("3")
    page.get_by_label("Requests at once").fill("1")
    page.get_by_role("button", name="Set for all runs and workers").click()
    expect(page.locator("#confirm")).to_contain_text("shoal hosts set shop01.example --delay 3 --in-flight 1")
    page.locator("#confirm [data-confirm]").click()
    expect(page.locator("#flash")).to_contain_text("shop01.example has its new rate limit.")
    host = server.ask("/api/v1/hosts/shop01.example")
    assert (host["rule"], host["limit"]) == (3.0, 1)


def test_keys_lead_everywhere(reader: PageReader) -> None:
    page = reader.open("/")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.keyboard.type("biggest.exam")
    page.keyboard.press("Enter")
    page.wait_for_url("**/hosts/biggest.example")
    for key, path in (("r", "/runs"), ("h", "/hosts"), ("w", "/fleet"), ("f", "/dead"), ("o", "/")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(reader.url + path)
    page.keyboard.press("?")
    expect(page.locator("#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#help")).to_be_hidden()


def test_the_first_stop_of_the_keyboard_skips_to_the_content(reader: PageReader) -> None:
    page = reader.open("/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_theme_is_kept_and_is_there_before_the_page_is_drawn(reader: PageReader, context: BrowserContext) -> None:
    page = reader.open("/")
    for wanted in ("light", "dark"):
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == wanted
    answer = context.request.get(reader.url + "/runs", headers={"Accept": "text/html"})
    assert 'data-theme="dark"' in answer.text()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 24)"


def test_what_is_open_or_typed_stays_while_the_page_keeps_up(reader: PageReader, queue: Path) -> None:
    page = reader.open("/advice")
    expect(page.locator("#live")).to_have_text("live")
    details = page.locator("#live-part details").first
    details.locator("summary").click()
    with page.expect_response(lambda it: it.request.headers.get("hx-source") == "div#live-part"):
        in_thread(work(queue, 3))
    expect(details).to_have_attribute("open", "")


def test_dead_letters_are_revived_from_their_page(reader: PageReader, server: ServerProcess) -> None:
    page = reader.open(f"/runs/{RUN}/dead")
    before = server.ask(f"/api/v1/runs/{RUN}")["dead"]
    page.get_by_role("row", name=re.compile("404 not found")).get_by_role("button", name="Revive").click()
    expect(page.locator("#confirm")).to_contain_text("--where cause=http.404")
    page.locator("#confirm [data-confirm]").click()
    expect(page.locator("#flash")).to_contain_text("requeued")
    assert server.ask(f"/api/v1/runs/{RUN}")["dead"] < before
    expect(page.get_by_role("row", name=re.compile("404 not found"))).to_have_count(0)


def test_a_run_is_submitted_from_the_form(reader: PageReader, server: ServerProcess) -> None:
    page = reader.open("/submit")
    page.get_by_label("URLs, one per line").fill("https://a.example/1\nhttps://a.example/2")
    page.get_by_label("Requests per second and host").fill("fast")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#rate-wrong")).to_contain_text("a rate such as 30/m")
    page.get_by_label("Requests per second and host").fill("30/m")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/runs/2*")
    expect(page.locator(".stat-tiles")).to_contain_text("done of 2")
