"""Every page in a real Chromium: light and dark, wide and on a phone, and for people who do not see it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import PHONE, WIDE, BrowserSession, blank_charts, browser_session, overflowing_elements
from server_process import ServerProcess, running_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

RUN = "products-2026-11"
TOKEN = "a-token-that-may-do-everything"
PAGES = (
    "/", "/runs", f"/runs/{RUN}", f"/runs/{RUN}/tasks", f"/runs/{RUN}/hosts", f"/runs/{RUN}/dead",
    f"/runs/{RUN}/dead?cause=http.404", f"/runs/{RUN}/records", f"/runs/{RUN}/log", f"/runs/{RUN}/settings",
    "task", "/hosts", "/hosts/shop05.example", "/fleet", "/fleet/node04-7f3a-1", "/dead", "/advice",
    "/schedules", "/settings", "/submit", "/search?q=shop", "/docs",
)  # fmt: skip
CHARTS = {
    "/": 4, f"/runs/{RUN}": 2, "/hosts": 1, "/hosts/shop05.example": 2, "/fleet": 2,
    "/fleet/node04-7f3a-1": 2, "/dead": 2, "/advice": 2, "/settings": 2,
}  # fmt: skip
# Until a chart is drawn, or says that there is nothing to draw, it holds what people without scripts read.
CHARTED = """() => [...document.querySelectorAll("figure.chart")].every((it) =>
  it.querySelector("canvas") || !it.querySelector("noscript"))"""
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}
ALIKE = {"exclude": [["tbody tr:nth-child(n+5)"], ["li:nth-child(n+3):has(details)"]]}  # what repeats itself


@pytest.fixture(scope="module")
def session(browser: Browser, server: ServerProcess) -> Iterator[BrowserSession]:
    with browser_session(browser, server.url) as made:
        yield made


def accessible(page: Page, **options: Any) -> None:
    """Nothing that axe knows to be in somebody's way."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, ALIKE, options | {"resultTypes": ["violations"]}).response["violations"]
    assert not found, [(it["id"], it["help"], [node["html"][:200] for node in it["nodes"][:3]]) for it in found]


def fits(page: Page) -> None:
    page.set_viewport_size(PHONE)
    assert not overflowing_elements(page)
    page.set_viewport_size(WIDE)
    assert not overflowing_elements(page)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_in_both_themes_and_at_every_width(
    session: BrowserSession, server: ServerProcess, path: str
) -> None:
    if path == "task":
        dead = server.ask(f"/api/v1/runs/{RUN}/tasks?state=dead&cause=handler&limit=1")["items"]
        path = f"/tasks/{dead[0]['id']}"
    page = session.page
    page.emulate_media(color_scheme="light")
    session.go(path)
    assert page.locator("h1").count() == 1
    page.wait_for_function(CHARTED)
    assert page.locator("figure.chart").count() == CHARTS.get(path, 0)
    assert page.locator("figure.chart canvas").count() >= CHARTS.get(path, 0) - (path.startswith("/hosts/") * 2)
    assert not blank_charts(page)
    accessible(page)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert not blank_charts(page)
    accessible(page, **COLOURS)
    fits(page)
    session.assert_no_problems()


@pytest.mark.parametrize("name", ["nothing there", "login", "nothing has run", "confirmation", "dialog", "undo"])
def test_what_is_seen_less_often_is_whole_as_well(
    browser: Browser, server: ServerProcess, tmp_path: Path, name: str
) -> None:
    if name in ("login", "nothing has run"):
        token = TOKEN if name == "login" else ""
        address = f"sqlite:///{tmp_path}/shoal.db"
        with (
            running_server(address, "--no-maintenance", token=token) as other,
            browser_session(browser, other.url) as session,
        ):
            session.go("/")
            _whole(session.page)
        return
    with browser_session(browser, server.url) as session:
        session.expected = ("status of 404",)
        session.go("/nowhere" if name == "nothing there" else f"/runs/{RUN}", 404 if name == "nothing there" else 200)
        if name == "confirmation":
            session.page.evaluate("document.querySelector('form.action-form').submit()")
            session.page.get_by_role("heading", name="Pause run").wait_for()
        elif name != "nothing there":
            session.page.get_by_role("button", name="Pause").click()
            session.page.locator("dialog[open]").wait_for()
        if name == "undo":
            session.page.locator("dialog [data-confirm]").click()
            session.page.get_by_role("button", name="Undo").focus()  # it stays while somebody is at it
        _whole(session.page)
        if name == "undo":
            session.page.get_by_role("button", name="Undo").click()
            session.page.get_by_role("button", name="Pause").wait_for()


def _whole(page: Page) -> None:
    accessible(page)
    page.emulate_media(color_scheme="dark")
    accessible(page, **COLOURS)
    fits(page)


def test_a_chart_can_be_read_as_a_table(session: BrowserSession) -> None:
    session.go("/")
    figure = session.page.locator("#chart-queue")
    figure.locator("canvas").wait_for()
    label = figure.locator(".plot").get_attribute("aria-label") or ""
    assert label.startswith("Queue: in progress ")
    figure.locator("summary").click()
    figure.locator("tbody tr").first.wait_for()
    assert figure.locator("thead th").all_inner_texts()[:2] == ["at", "in progress"]
    assert figure.locator("tbody tr").count() > 3


def test_records_are_downloaded_whole(session: BrowserSession, server: ServerProcess) -> None:
    session.go(f"/runs/{RUN}/records")
    number = server.ask(f"/api/v1/runs/{RUN}")["records"]
    with session.page.expect_download() as given:
        session.page.get_by_role("link", name="Download JSONL").click()
    assert len(Path(given.value.path()).read_text().splitlines()) == number


def test_a_phone_shows_the_columns_that_matter_and_the_others_at_a_tap(session: BrowserSession) -> None:
    session.page.set_viewport_size(PHONE)
    session.go("/hosts")
    row = session.page.locator("#live-part table.fold tbody tr").first
    tall = row.bounding_box()
    assert tall is not None and row.locator("td[data-label=waiting]").is_visible()
    assert not row.locator("td[data-label='set by']").is_visible()
    session.page.get_by_text("All columns").first.click()
    assert row.locator("td[data-label='set by']").is_visible()
    opened = row.bounding_box()
    assert opened is not None and opened["height"] > 1.5 * tall["height"]
    session.page.set_viewport_size(WIDE)
    assert not session.page.get_by_text("All columns").first.is_visible()
    assert row.locator("td[data-label='set by']").is_visible()


def test_hosts_are_filtered_by_the_url_which_can_be_shared(session: BrowserSession) -> None:
    session.go("/hosts")
    session.page.get_by_label("Name contains").fill("shop0")
    session.page.get_by_label("Only").select_option("parked")
    session.page.get_by_role("button", name="Filter").click()
    session.page.wait_for_url("**/hosts?like=shop0&only=parked*")
    assert session.page.locator("#live-part tbody th").all_inner_texts() == ["shop03.example"]
