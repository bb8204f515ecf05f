"""Rows chosen in a real Chromium: ticks stay on their own rows while the list keeps up by itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sample_queue
from browser import PHONE, BrowserSession, browser_session, chromium, overflowing_elements
from playwright.sync_api import expect
from server_process import ServerProcess, running_server
from test_browser_layout import COLOURS, accessible


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("picks")
    # In a thread of its own: another test's browser may have an event loop in this one.
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: sample_queue.create(Path(folder), "r1", done=2, dead=3, ready=9)).result()
    with running_server(sample_queue.state_url(folder), "--no-maintenance") as made:
        yield made


@pytest.fixture(scope="module")
def session(server: ServerProcess) -> Iterator[BrowserSession]:
    with chromium() as browser, browser_session(browser, server.url) as made:
        yield made


def test_a_tick_stays_on_its_row_when_others_go_and_only_that_row_is_dropped(
    session: BrowserSession, server: ServerProcess
) -> None:
    page = session.go("/runs/r1/tasks?state=ready")
    expect(page.locator("#live")).to_have_text("live")
    boxes = page.locator('input[name="pick"]')
    first, chosen = boxes.nth(0), boxes.nth(4).get_attribute("value")
    gone = first.get_attribute("value")
    drop = page.get_by_role("button", name="Drop selected")
    expect(drop).to_be_disabled()
    page.locator(f"#pick-{chosen}").check()
    expect(page.locator("[data-picked]")).to_have_text("1 selected")
    page.locator("h1").click()  # not at the box any more, so that the list may change
    page.evaluate("document.activeElement.blur()")
    assert server.post(f"/api/v1/tasks/{gone}/drop").status_code == 200
    expect(page.locator(f"#task-{gone}")).to_have_count(0)
    checked = page.locator('input[name="pick"]:checked')
    expect(checked).to_have_count(1)
    assert checked.get_attribute("value") == chosen
    drop.click()
    page.get_by_role("heading", name="Drop waiting pages of run r1?").wait_for()
    accessible(page)
    page.get_by_role("button", name="Drop", exact=True).click()
    expect(page.locator("#flash")).to_contain_text("1 page of run r1 dropped.")
    assert server.ask(f"/api/v1/tasks/{chosen}")["state"] == "cancelled"
    assert server.ask("/api/v1/runs/r1")["cancelled"] == 2
    session.assert_no_problems()


def test_all_rows_of_a_page_are_chosen_at_once_and_the_page_is_whole(session: BrowserSession) -> None:
    page = session.go("/runs/r1/tasks?state=dead")
    page.get_by_role("button", name="Select all on this page").click()
    expect(page.locator('input[name="pick"]:checked')).to_have_count(3)
    expect(page.locator("[data-picked]")).to_have_text("3 selected")
    accessible(page)
    page.emulate_media(color_scheme="dark")
    accessible(page, **COLOURS)
    page.set_viewport_size(PHONE)
    assert not overflowing_elements(page)
    page.get_by_role("button", name="Select none").click()
    expect(page.get_by_role("button", name="Revive selected")).to_be_disabled()
    session.assert_no_problems()


def test_enter_beside_the_pace_of_chosen_hosts_sets_it_and_parks_nothing(session: BrowserSession) -> None:
    page = session.go("/hosts")
    page.locator('input[name="pick"]').first.check()
    expect(page.locator("[data-picked]")).to_have_text("1 selected")
    page.fill('input[name="spacing"]', "3")
    page.press('input[name="spacing"]', "Enter")
    page.get_by_role("heading", name="Change the rate limit of").wait_for()
    expect(page.locator("main code").last).to_contain_text(f"{session.url}/api/v1/hosts/pace")
    session.assert_no_problems()
