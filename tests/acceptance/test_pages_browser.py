"""Pages in a real browser: live, asking before they act, by keyboard, on a phone, and without scripts."""

from __future__ import annotations

import asyncio
import re
import signal
import sqlite3
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import browser
import pytest
from control_room import ControlRoom, room
from playwright.sync_api import Browser, BrowserContext, Page, expect
from showroom import SERVES, furnish
from test_pages_shown import PAGES, RUN

from shoal.core.task import Outcome
from shoal.queue.sqlite import SqliteQueue


def apart(job: Coroutine[Any, Any, Any]) -> None:
    """In a thread of its own: the browser's driver has an event loop in this one."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, job).result()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser.chromium() as made:
        yield made


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("showroom") / "shoal.db"
    apart(furnish(path, minutes=2, scale=0.03))
    return path


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
def server(queue: Path) -> Iterator[ControlRoom]:
    with room(f"sqlite:///{queue}", "--no-upkeep") as made:
        yield made


class Reader:
    """Somebody in front of a page; what the browser complains about is kept."""

    def __init__(self, page: Page, url: str) -> None:
        self.page = page
        self.url = url
        self.complaints: list[str] = []
        page.set_default_timeout(15_000)
        page.on("console", lambda it: self.complaints.append(it.text) if it.type == "error" else None)
        page.on("pageerror", lambda it: self.complaints.append(str(it)))

    def open(self, path: str) -> Page:
        self.page.goto(self.url + path)
        return self.page


@pytest.fixture
def context(chromium: Browser) -> Iterator[BrowserContext]:
    made = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    yield made
    made.close()


@pytest.fixture
def reader(context: BrowserContext, server: ControlRoom) -> Reader:
    return Reader(context.new_page(), server.url)


async def work(path: Path, count: int) -> int:
    """Do so many pages of the showroom's big run; says how many there were to do."""
    queue = await SqliteQueue.open(str(path))
    try:
        done = 0
        await queue.reap({f"node0{n}-7f3a-{m}": [] for n in (4, 5) for m in (1, 2)})  # what they held
        end = time.monotonic() + 20
        while done < count:
            assert time.monotonic() < end, "nothing to do"
            claim = await queue.claim("somebody", min(3, count - done), serves=SERVES)
            settled = [Outcome(task.id, task.lease, "done", records=(b"{}",)) for task in claim.tasks]
            await queue.settle(settled)
            done += len(settled)
            await asyncio.sleep(0.05)
        return done
    finally:
        await queue.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_no_page_complains_or_is_wider_than_the_screen(
    chromium: Browser, server: ControlRoom, width: int, scheme: Any
) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    reader = Reader(context.new_page(), server.url)
    for path in PAGES:
        page = reader.open(path)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{path} is {wide} wide"
        assert page.title().endswith("· shoal"), "nothing that was scraped has run"
    assert reader.complaints == []
    context.close()


def test_numbers_and_lists_keep_up_by_themselves(reader: Reader, queue: Path) -> None:
    page = reader.open(f"/runs/{RUN}")
    expect(page.locator("#live")).to_have_text("live")
    page.evaluate("window.here = true")
    number = page.locator('[data-key="run:done"]')
    before = int(number.inner_text().replace(",", ""))
    row = page.locator("p.key .k-done")
    share = row.inner_text()
    apart(work(queue, 12))
    expect(number).to_have_text(f"{before + 12:,}")
    expect(row).not_to_have_text(share)
    assert page.evaluate("window.here"), "the page was not loaded again"
    assert reader.complaints == []


def test_an_action_is_asked_about_first_and_can_be_undone(reader: Reader, server: ControlRoom) -> None:
    page = reader.open(f"/runs/{RUN}")
    page.get_by_role("button", name="Pause", exact=True).click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text(f"Pause run {RUN}?")
    expect(dialog).to_contain_text(f"shoal pause {RUN}")
    expect(dialog).to_contain_text(f"{server.url}/api/v1/runs/{RUN}/pause")
    dialog.get_by_role("button", name="Leave it").click()
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "running"
    page.get_by_role("button", name="Pause", exact=True).click()
    dialog.locator("[data-yes]").click()
    expect(page.locator("#said")).to_contain_text(f"Run {RUN} is paused.")
    expect(page.get_by_role("button", name="Resume", exact=True)).to_be_visible()
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "paused"
    page.locator("#said").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()
    assert server.ask(f"/api/v1/runs/{RUN}")["state"] == "running"
    assert reader.complaints == []


def test_the_pace_of_a_host_is_shown_in_its_command_before_it_is_set(
    reader: Reader, server: ControlRoom
) -> None:
    page = reader.open("/hosts/shop01.example")
    page.get_by_label("Seconds between two").fill("3")
    page.get_by_label("Requests at once").fill("1")
    page.get_by_role("button", name="Set for all runs and workers").click()
    expect(page.locator("#confirm")).to_contain_text("shoal hosts set shop01.example --delay 3 --in-flight 1")
    page.locator("#confirm [data-yes]").click()
    expect(page.locator("#said")).to_contain_text("shop01.example has its new pace.")
    host = server.ask("/api/v1/hosts/shop01.example")
    assert (host["rule"], host["limit"]) == (3.0, 1)


def test_keys_lead_everywhere(reader: Reader) -> None:
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


def test_the_first_stop_of_the_keyboard_skips_to_the_content(reader: Reader) -> None:
    page = reader.open("/runs")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_theme_is_kept_and_is_there_before_the_page_is_drawn(
    reader: Reader, context: BrowserContext
) -> None:
    page = reader.open("/")
    for wanted in ("light", "dark"):
        page.locator("#theme").click()
        assert page.evaluate("document.documentElement.dataset.theme") == wanted
    answer = context.request.get(reader.url + "/runs", headers={"Accept": "text/html"})
    assert 'data-theme="dark"' in answer.text()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(14, 20, 24)"


def test_charts_are_drawn_and_can_be_read_as_tables(reader: Reader) -> None:
    page = reader.open("/")
    chart = page.locator("#chart-flow")
    expect(chart.locator("canvas")).to_be_visible()
    expect(chart.locator(".legend")).to_contain_text("ok")
    assert "ok" in (chart.locator(".plot").get_attribute("aria-label") or "")
    chart.locator("summary").click()
    expect(chart.locator("tbody tr").first).to_be_visible()


def test_a_lost_connection_is_said_and_found_again(chromium: Browser, shown: Path) -> None:
    path = copied(shown, "lost")
    context = chromium.new_context()
    with room(f"sqlite:///{path}", "--no-upkeep") as first:
        reader = Reader(context.new_page(), first.url)
        page = reader.open("/")
        expect(page.locator("#live")).to_have_text("live")
        port = first.port
        first.stop(signal.SIGKILL)
        expect(page.locator("#live")).to_have_text(re.compile(r"not live since \d\d:\d\d:\d\d, trying again"))
    with room(f"sqlite:///{path}", "--no-upkeep", "--listen", f"127.0.0.1:{port}"):
        expect(page.locator("#live")).to_have_text("live", timeout=20_000)
    context.close()


def test_what_is_open_or_typed_stays_while_the_page_keeps_up(reader: Reader, queue: Path) -> None:
    page = reader.open("/advice")
    expect(page.locator("#live")).to_have_text("live")
    details = page.locator("#live-part details").first
    details.locator("summary").click()
    with page.expect_response(lambda it: it.request.headers.get("hx-source") == "div#live-part"):
        apart(work(queue, 3))
    expect(details).to_have_attribute("open", "")


def test_everything_can_be_done_without_scripts(chromium: Browser, server: ControlRoom) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = Reader(context.new_page(), server.url).open("/hosts/shop02.example")
    page.get_by_role("button", name="Park").click()
    expect(page.locator("h1")).to_have_text("Send no request to shop02.example?")
    page.get_by_role("button", name="Park").click()
    expect(page.locator("#said")).to_contain_text("shop02.example is parked.")
    assert server.ask("/api/v1/hosts/shop02.example")["parked"]
    page.locator("#said").get_by_role("button", name="Undo").click()
    expect(page.get_by_role("button", name="Park")).to_be_visible()
    assert not server.ask("/api/v1/hosts/shop02.example")["parked"]
    context.close()


def test_dead_letters_are_revived_from_their_page(reader: Reader, server: ControlRoom) -> None:
    page = reader.open(f"/runs/{RUN}/dead")
    before = server.ask(f"/api/v1/runs/{RUN}")["dead"]
    page.get_by_role("row", name=re.compile("404 not found")).get_by_role("button", name="Revive").click()
    expect(page.locator("#confirm")).to_contain_text("--where cause=http.404")
    page.locator("#confirm [data-yes]").click()
    expect(page.locator("#said")).to_contain_text("put back to work")
    assert server.ask(f"/api/v1/runs/{RUN}")["dead"] < before
    expect(page.get_by_role("row", name=re.compile("404 not found"))).to_have_count(0)


def test_a_run_is_submitted_from_the_form(reader: Reader, server: ControlRoom) -> None:
    page = reader.open("/submit")
    page.get_by_label("Addresses, one a line").fill("https://a.example/1\nhttps://a.example/2")
    page.get_by_label("Requests per second and host").fill("fast")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#rate-wrong")).to_contain_text("a rate such as 30/m")
    page.get_by_label("Requests per second and host").fill("30/m")
    page.get_by_role("button", name="Submit").click()
    page.wait_for_url("**/runs/2*")
    expect(page.locator(".figures")).to_contain_text("done of 2")
