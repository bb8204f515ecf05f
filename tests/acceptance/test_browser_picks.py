"""Rows chosen in a real Chromium: ticks stay on their own rows while the list keeps up by itself."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import seeded
from browser import PHONE, Visit, chromium, too_wide, visit
from control_room import ControlRoom, room
from playwright.sync_api import expect
from test_browser_pages import COLOURS, accessible


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlRoom]:
    folder = tmp_path_factory.mktemp("picks")
    # In a thread of its own: another test's browser may have an event loop in this one.
    with ThreadPoolExecutor(1) as other:
        other.submit(lambda: seeded.made(Path(folder), "r1", done=2, dead=3, ready=9)).result()
    with room(seeded.address(folder), "--no-upkeep") as made:
        yield made


@pytest.fixture(scope="module")
def looker(server: ControlRoom) -> Iterator[Visit]:
    with chromium() as browser, visit(browser, server.url) as made:
        yield made


def test_a_tick_stays_on_its_row_when_others_go_and_only_that_row_is_dropped(
    looker: Visit, server: ControlRoom
) -> None:
    page = looker.go("/runs/r1/tasks?state=ready")
    expect(page.locator("#live")).to_have_text("live")
    boxes = page.locator('input[name="pick"]')
    first, chosen = boxes.nth(0), boxes.nth(4).get_attribute("value")
    gone = first.get_attribute("value")
    drop = page.get_by_role("button", name="Drop chosen")
    expect(drop).to_be_disabled()
    page.locator(f"#pick-{chosen}").check()
    expect(page.locator("[data-picked]")).to_have_text("1 chosen")
    page.locator("h1").click()  # not at the box any more, so that the list may change
    page.evaluate("document.activeElement.blur()")
    assert server.post(f"/api/v1/tasks/{gone}/drop").status_code == 200
    expect(page.locator(f"#task-{gone}")).to_have_count(0)
    checked = page.locator('input[name="pick"]:checked')
    expect(checked).to_have_count(1)
    assert checked.get_attribute("value") == chosen
    drop.click()
    page.get_by_role("heading", name="Give up what waits in run r1?").wait_for()
    accessible(page)
    page.get_by_role("button", name="Drop", exact=True).click()
    expect(page.locator("#said")).to_contain_text("1 page of run r1 given up.")
    assert server.ask(f"/api/v1/tasks/{chosen}")["state"] == "cancelled"
    assert server.ask("/api/v1/runs/r1")["cancelled"] == 2
    looker.fine()


def test_all_rows_of_a_page_are_chosen_at_once_and_the_page_is_whole(looker: Visit) -> None:
    page = looker.go("/runs/r1/tasks?state=dead")
    page.get_by_role("button", name="Choose all on this page").click()
    expect(page.locator('input[name="pick"]:checked')).to_have_count(3)
    expect(page.locator("[data-picked]")).to_have_text("3 chosen")
    accessible(page)
    page.emulate_media(color_scheme="dark")
    accessible(page, **COLOURS)
    page.set_viewport_size(PHONE)
    assert not too_wide(page)
    page.get_by_role("button", name="Choose none").click()
    expect(page.get_by_role("button", name="Revive chosen")).to_be_disabled()
    looker.fine()


def test_enter_beside_the_pace_of_chosen_hosts_sets_it_and_parks_nothing(looker: Visit) -> None:
    page = looker.go("/hosts")
    page.locator('input[name="pick"]').first.check()
    expect(page.locator("[data-picked]")).to_have_text("1 chosen")
    page.fill('input[name="spacing"]', "3")
    page.press('input[name="spacing"]', "Enter")
    page.get_by_role("heading", name="Change the pace of").wait_for()
    expect(page.locator("main code").last).to_contain_text(f"{looker.url}/api/v1/hosts/pace")
    looker.fine()
