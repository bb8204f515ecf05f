"""Every page in a real Chromium: light and dark, wide and on a phone, and for people who do not see it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from browser import PHONE, WIDE, Visit, chromium, drawn, too_wide, visit
from control_room import ControlRoom, room
from showroom import furnish

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
CHARTED = """() => [...document.querySelectorAll("figure.chart")].every((it) =>
  it.querySelector("canvas") || it.querySelector(".empty").textContent.trim())"""
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}
ALIKE = {"exclude": [["tbody tr:nth-child(n+5)"], ["li:nth-child(n+3):has(details)"]]}  # what repeats itself


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("browser") / "shoal.db"
    asyncio.run(furnish(path, minutes=3, scale=0.04))
    return path


@pytest.fixture(scope="module")
def server(shown: Path) -> Iterator[ControlRoom]:
    with room(f"sqlite:///{shown}", "--no-upkeep") as made:
        yield made


@pytest.fixture(scope="module")
def browser(server: ControlRoom) -> Iterator[Browser]:
    with chromium() as made:
        yield made


@pytest.fixture(scope="module")
def looker(browser: Browser, server: ControlRoom) -> Iterator[Visit]:
    with visit(browser, server.url) as made:
        yield made


def accessible(page: Page, **options: Any) -> None:
    """Nothing that axe knows to be in somebody's way."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page, ALIKE, options | {"resultTypes": ["violations"]}).response["violations"]
    assert not found, [
        (it["id"], it["help"], [node["html"][:200] for node in it["nodes"][:3]]) for it in found
    ]


def fits(page: Page) -> None:
    page.set_viewport_size(PHONE)
    assert not too_wide(page)
    page.set_viewport_size(WIDE)
    assert not too_wide(page)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_whole_in_both_themes_and_at_every_width(
    looker: Visit, server: ControlRoom, path: str
) -> None:
    if path == "task":
        dead = server.ask(f"/api/v1/runs/{RUN}/tasks?state=dead&cause=handler&limit=1")["items"]
        path = f"/tasks/{dead[0]['id']}"
    page = looker.page
    page.emulate_media(color_scheme="light")
    looker.go(path)
    assert page.locator("h1").count() == 1
    page.wait_for_function(CHARTED)
    assert page.locator("figure.chart").count() == CHARTS.get(path, 0)
    assert page.locator("figure.chart canvas").count() >= CHARTS.get(path, 0) - (
        path.startswith("/hosts/") * 2
    )
    assert not drawn(page)
    accessible(page)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    assert not drawn(page)
    accessible(page, **COLOURS)
    fits(page)
    looker.fine()


@pytest.mark.parametrize(
    "name", ["nothing there", "login", "nothing has run", "confirmation", "dialog", "undo"]
)
def test_what_is_seen_less_often_is_whole_as_well(
    browser: Browser, server: ControlRoom, tmp_path: Path, name: str
) -> None:
    if name in ("login", "nothing has run"):
        token = TOKEN if name == "login" else ""
        address = f"sqlite:///{tmp_path}/shoal.db"
        with room(address, "--no-upkeep", token=token) as other, visit(browser, other.url) as looker:
            looker.go("/")
            _whole(looker.page)
        return
    with visit(browser, server.url) as looker:
        looker.expected = ("status of 404",)
        looker.go(
            "/nowhere" if name == "nothing there" else f"/runs/{RUN}", 404 if name == "nothing there" else 200
        )
        if name == "confirmation":
            looker.page.evaluate("document.querySelector('form.act').submit()")
            looker.page.get_by_role("heading", name="Pause run").wait_for()
        elif name != "nothing there":
            looker.page.get_by_role("button", name="Pause").click()
            looker.page.locator("dialog[open]").wait_for()
        if name == "undo":
            looker.page.locator("dialog [data-yes]").click()
            looker.page.get_by_role("button", name="Undo").wait_for()
        _whole(looker.page)
        if name == "undo":
            looker.page.get_by_role("button", name="Undo").click()
            looker.page.get_by_role("button", name="Pause").wait_for()


def _whole(page: Page) -> None:
    accessible(page)
    page.emulate_media(color_scheme="dark")
    accessible(page, **COLOURS)
    fits(page)


def test_a_chart_can_be_read_as_a_table(looker: Visit) -> None:
    looker.go("/")
    figure = looker.page.locator("#chart-queue")
    figure.locator("canvas").wait_for()
    label = figure.locator(".plot").get_attribute("aria-label") or ""
    assert label.startswith("Queue: under way ")
    figure.locator("summary").click()
    figure.locator("tbody tr").first.wait_for()
    assert figure.locator("thead th").all_inner_texts()[:2] == ["at", "under way"]
    assert figure.locator("tbody tr").count() > 3


def test_records_are_downloaded_whole(looker: Visit, server: ControlRoom) -> None:
    looker.go(f"/runs/{RUN}/records")
    number = server.ask(f"/api/v1/runs/{RUN}")["records"]
    with looker.page.expect_download() as given:
        looker.page.get_by_role("link", name="Download JSONL").click()
    assert len(Path(given.value.path()).read_text().splitlines()) == number


def test_hosts_are_filtered_by_the_address_which_can_be_shared(looker: Visit) -> None:
    looker.go("/hosts")
    looker.page.get_by_label("Name contains").fill("shop0")
    looker.page.get_by_label("Only").select_option("parked")
    looker.page.get_by_role("button", name="Filter").click()
    looker.page.wait_for_url("**/hosts?like=shop0&only=parked*")
    assert looker.page.locator("#live-part tbody th").all_inner_texts() == ["shop03.example"]
